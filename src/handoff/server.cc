#include "handoff/server.h"

#include <algorithm>
#include <atomic>
#include <list>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/mutex.h"
#include "connector/frame.h"
#include "handoff/conversation.h"

namespace baton {
namespace {

constexpr Duration kBusyTimeout = std::chrono::milliseconds(50);

}  // namespace

class HandoffServer::Impl {
 public:
  Impl(HandoffServerOptions options, BundleProvider* provider)
      : options_(std::move(options)), provider_(provider) {
    if (options_.stats == nullptr) options_.stats = &own_stats_;
  }
  ~Impl() { Stop(); }

  Status AddListener(const std::string& endpoint) {
    BATON_CHECK(accepters_.empty());
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<Listener> listener,
                           Listen({endpoint, options_.regions, options_.clock, options_.hub}));
    listeners_.push_back(std::move(listener));
    return absl::OkStatus();
  }

  std::vector<std::string> endpoints() const {
    std::vector<std::string> out;
    for (const auto& listener : listeners_) out.push_back(listener->endpoint());
    return out;
  }

  void Start() {
    for (const auto& listener : listeners_)
      accepters_.emplace_back([this, l = listener.get()] { AcceptMain(l); });
  }

  void Stop() {
    for (const auto& listener : listeners_) listener->Close();
    for (std::thread& thread : accepters_) thread.join();
    accepters_.clear();
    // Nothing is added any more; whatever still runs is told to end, then joined.
    std::list<Talk> rest;
    {
      MutexLock lock(&mu_);
      for (Talk& talk : talks_) {
        talk.cancel.request_stop();
        if (talk.link != nullptr) talk.link->Close();
      }
      rest.splice(rest.end(), talks_);
    }
    for (Talk& talk : rest) talk.thread.join();
    listeners_.clear();
  }

 private:
  struct Talk {
    std::unique_ptr<SourceLink> link;  // null once done; guarded by mu_
    CancelSource cancel;
    bool done = false;  // guarded by mu_
    std::thread thread;
  };

  void AcceptMain(Listener* listener) {
    for (;;) {
      auto link = listener->Accept();
      if (!link.ok()) return;
      Reap();
      Begin(std::move(*link));
    }
  }

  // Joins conversations that have ended. At most conversations_max are ever unjoined.
  void Reap() {
    std::list<Talk> ended;
    {
      MutexLock lock(&mu_);
      for (auto it = talks_.begin(); it != talks_.end();) {
        const auto here = it++;
        if (here->done) ended.splice(ended.end(), talks_, here);
      }
    }
    for (Talk& talk : ended) talk.thread.join();
  }

  void Begin(std::unique_ptr<SourceLink> link) {
    MutexLock lock(&mu_);
    if (talks_.size() >= options_.conversations_max) {
      ++options_.stats->conversations_refused;
      link->Send(EncodeError(Reject(Reason::kNoCapacity,
                                    absl::StrCat("already ", talks_.size(), " hand-offs at once"))),
                 options_.clock->Now() + kBusyTimeout)
          .IgnoreError();
      return;
    }
    ++options_.stats->conversations;
    ++options_.stats->conversations_now;
    Talk& talk = talks_.emplace_back();
    talk.link = std::move(link);
    talk.thread = std::thread([this, &talk] { TalkMain(&talk); });
  }

  void TalkMain(Talk* talk) {
    Conversation(options_, provider_, talk->link.get(), talk->cancel).Run();
    MutexLock lock(&mu_);
    talk->link.reset();
    talk->done = true;
    --options_.stats->conversations_now;
  }

  HandoffServerOptions options_;
  BundleProvider* provider_;
  HandoffStats own_stats_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::thread> accepters_;
  Mutex mu_;
  std::list<Talk> talks_ BATON_GUARDED_BY(mu_);
};

HandoffServer::HandoffServer(HandoffServerOptions options, BundleProvider* provider)
    : impl_(std::make_unique<Impl>(std::move(options), provider)) {}
HandoffServer::~HandoffServer() = default;

Status HandoffServer::AddListener(const std::string& endpoint) {
  return impl_->AddListener(endpoint);
}
std::vector<std::string> HandoffServer::endpoints() const { return impl_->endpoints(); }
void HandoffServer::Start() { impl_->Start(); }
void HandoffServer::Stop() { impl_->Stop(); }

}  // namespace baton
