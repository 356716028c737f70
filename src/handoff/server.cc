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
    BATON_CHECK(!started_);
    BATON_ASSIGN_OR_RETURN(
        std::unique_ptr<Listener> listener,
        options_.listen({endpoint, options_.regions, options_.clock, options_.hub}));
    endpoints_.push_back(listener->endpoint());
    listeners_.push_back(std::move(listener));
    return absl::OkStatus();
  }

  // A list of its own: the listeners go while others may ask.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  void Start() {
    started_ = true;
    for (const auto& listener : listeners_) Lead(listener.get());
  }

  void Stop() {
    std::list<Talk> rest;
    {
      MutexLock lock(&mu_);
      stopping_ = true;
      for (Talk& talk : talks_) {
        talk.cancel.request_stop();
        if (talk.link != nullptr) talk.link->Close();
      }
      // Nothing is added any more; Reap finds nothing.
      rest.splice(rest.end(), talks_);
    }
    for (const auto& listener : listeners_) listener->Close();
    for (Talk& talk : rest) talk.thread.join();
    listeners_.clear();
  }

 private:
  // A thread: it waits for a peer, makes another thread wait for the next one, and talks. The peer
  // is thus served by the thread it woke, not by one more that has to be woken in turn.
  struct Talk {
    std::unique_ptr<SourceLink> link;  // null while waiting and once done; guarded by mu_
    CancelSource cancel;
    bool done = false;  // guarded by mu_
    std::thread thread;
  };

  void Lead(Listener* listener) {
    MutexLock lock(&mu_);
    if (stopping_) return;
    Talk& talk = talks_.emplace_back();
    talk.thread = std::thread([this, &talk, listener] { TalkMain(&talk, listener); });
  }

  void TalkMain(Talk* talk, Listener* listener) {
    SourceLink* const link = AcceptOne(talk, listener);
    if (link != nullptr) {
      Lead(listener);
      Conversation(options_, provider_, link, talk->cancel, &joins_).Run();
    }
    Reap();
    std::unique_ptr<SourceLink> gone;
    {
      MutexLock lock(&mu_);
      gone = std::move(talk->link);
    }
    gone.reset();  // may take its time with the peer: not under the lock
    MutexLock lock(&mu_);
    talk->done = true;
    if (link == nullptr) return;
    --options_.stats->conversations_now;
    --talking_;
  }

  // The next peer there is room for; null once the server stops.
  SourceLink* AcceptOne(Talk* talk, Listener* listener) {
    for (;;) {
      auto link = listener->Accept();
      if (!link.ok()) return nullptr;
      {
        MutexLock lock(&mu_);
        if (stopping_) return nullptr;
        if (talking_ < options_.conversations_max) {
          ++talking_;
          ++options_.stats->conversations;
          ++options_.stats->conversations_now;
          talk->link = std::move(*link);
          return talk->link.get();
        }
      }
      ++options_.stats->conversations_refused;
      (*link)
          ->Send(EncodeError(Reject(
                     Reason::kNoCapacity,
                     absl::StrCat("already ", options_.conversations_max, " hand-offs at once"))),
                 options_.clock->Now() + kBusyTimeout)
          .IgnoreError();
    }
  }

  // Joins threads that have ended, so that no more than those of one moment are ever unjoined.
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

  HandoffServerOptions options_;
  BundleProvider* provider_;
  HandoffStats own_stats_;
  JoinRegistry joins_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::string> endpoints_;  // not changed after Start
  bool started_ = false;
  Mutex mu_;
  std::list<Talk> talks_ BATON_GUARDED_BY(mu_);
  size_t talking_ BATON_GUARDED_BY(mu_) = 0;
  bool stopping_ BATON_GUARDED_BY(mu_) = false;
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
