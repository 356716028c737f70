// Two fake nodes, a server on one, a client on the other, joined by one kind of connector.
#ifndef BATON_HANDOFF_TESTING_HANDOFF_FIXTURE_H_
#define BATON_HANDOFF_TESTING_HANDOFF_FIXTURE_H_

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/rng.h"
#include "connector/connectors.h"
#include "connector/frame.h"
#include "handoff/testing/fake_node.h"
#include "handoff/wire.h"

namespace baton {

// The parameters of tests that run over every connector of this build.
inline std::vector<const char*> AllConnectors() {
  std::vector<const char*> names = {"inproc", "shm", "tcp"};
  if (HaveUcx()) names.push_back("ucx");
  return names;
}

class HandoffFixture : public ::testing::Test {
 protected:
  explicit HandoffFixture(std::string scheme) : scheme_(std::move(scheme)) {
    connectors_ = ConnectorSet::Standard(&clock_, &hub_);
    SetUpNodes([](FakeNodeOptions*) {});
  }
  ~HandoffFixture() override {
    if (server_ != nullptr) server_->Stop();
  }

  // New nodes and a new server; `change_source` makes the source differ from the receiver.
  void SetUpNodes(const std::function<void(FakeNodeOptions*)>& change_source) {
    if (server_ != nullptr) server_->Stop();
    server_.reset();
    FakeNodeOptions options;
    options.layout = &layout_;
    options.clock = &clock_;
    receiver_ = std::make_unique<FakeNode>(options);
    change_source(&options);
    source_ = std::make_unique<FakeNode>(options);
    provider_ = std::make_unique<FakeProvider>(source_.get());
    client_options_.self = receiver_->self();
    client_options_.pools = receiver_->pools();
    client_options_.clock = &clock_;
    client_options_.device = &receiver_->device();
    client_options_.connectors = &connectors_;
    client_options_.stats = &stats_;
    server_options_.clock = &clock_;
    server_options_.hub = &hub_;
    server_options_.stats = &server_stats_;
  }

  // The source process dies and comes back: new epoch, new memory, same name.
  void RestartSource() {
    if (server_ != nullptr) server_->Stop();
    server_.reset();
    FakeNodeOptions options;
    options.layout = &layout_;
    options.clock = &clock_;
    source_ = std::make_unique<FakeNode>(options);
    provider_ = std::make_unique<FakeProvider>(source_.get());
  }

  // Starts client and server with the options as they are now.
  void Serve() { ServeWith(provider_.get()); }
  void ServeWith(BundleProvider* provider) {
    server_options_.self = source_->self();
    server_options_.regions = {source_->region()};
    server_ = std::make_unique<HandoffServer>(server_options_, provider);
    std::vector<std::string> schemes = more_schemes_;
    schemes.insert(schemes.begin(), scheme_);
    for (const std::string& scheme : schemes) {
      const std::string name = "baton-test-" + RandomBytes<StateId>().Hex();
      const std::string address = scheme == "tcp" || scheme == "ucx" ? "127.0.0.1:0"
                                  : scheme == "shm"                  ? "@" + name
                                                                     : name;
      const Status status = server_->AddListener(scheme + ":" + address);
      ASSERT_TRUE(status.ok()) << status;
    }
    endpoint_ = server_->endpoints()[0];
    server_->Start();
    client_ = std::make_unique<HandoffClient>(client_options_);
  }
  const std::string& endpoint() const { return endpoint_; }
  // The server's endpoint of this scheme.
  std::string EndpointOf(const std::string& scheme) const {
    for (const std::string& e : server_->endpoints())
      if (e.starts_with(scheme + ":")) return e;
    return "";
  }

  PullRequest NewRequest(std::vector<TokenId> tokens) {
    return receiver_->NewRequest(endpoint(), std::move(tokens), Attempt(++attempts_),
                                 clock_.Now() + deadline_);
  }
  PullResult Pull(const PullRequest& request) {
    return client_->Pull(request, cancel_.get_token());
  }

  void ExpectRejected(Reason reason) {
    const PullRequest request = NewRequest(SomeTokens(48, 5));
    const Status status = Pull(request).status;
    EXPECT_EQ(ReasonOf(status), reason) << status;
    ExpectAllFree(request);
    EXPECT_EQ(stats_.rejects[static_cast<size_t>(reason)], 1u);
    ExpectNothingLeaked();
  }
  void ExpectAllFree(const PullRequest& request) {
    for (const UnitState state : receiver_->StatesOf(request)) EXPECT_EQ(state, UnitState::kFree);
  }
  // Call once everything pulled has been freed.
  void ExpectNothingLeaked() {
    EXPECT_EQ(receiver_->UnitsInUse(), 0u);
    EXPECT_TRUE(receiver_->CheckInvariants().ok());
    // The source notices a release or a closed link in its own time.
    for (int i = 0; i < 10000 && server_stats_.conversations_now != 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(server_stats_.conversations_now, 0u);
    EXPECT_EQ(source_->UnitsInUse(), 0u);
    EXPECT_TRUE(source_->CheckInvariants().ok());
  }

  // A provider that computes for ever; `act` ends it once it has begun.
  void StopDuring(const std::function<void()>& act, std::optional<Reason> reason = std::nullopt) {
    std::atomic<bool> cancelled{false};
    provider_->before = [&](const Ask&, const CancelToken& cancel) {
      while (!cancel.stop_requested()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      cancelled = true;
      return Reject(Reason::kCancelled, "cancelled");
    };
    Serve();
    const PullRequest request = NewRequest(SomeTokens(32, 1));
    std::jthread actor([&] {
      while (provider_->asked == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      act();
    });
    const Status status = Pull(request).status;
    actor.join();
    EXPECT_FALSE(status.ok());
    if (reason.has_value()) {
      EXPECT_EQ(ReasonOf(status), *reason) << status;
    }
    ExpectAllFree(request);
    ExpectNothingLeaked();
    EXPECT_TRUE(cancelled);
  }

  // A link that has exchanged hellos.
  std::unique_ptr<Link> Greet() {
    const Instant soon = clock_.Now() + std::chrono::seconds(10);
    auto link = (*connectors_.For(endpoint()))->Connect(endpoint(), soon, {});
    EXPECT_TRUE(link.ok()) << link.status();
    EXPECT_TRUE((*link)->Send(EncodeHello(HelloOf(receiver_->self())), soon).ok());
    EXPECT_TRUE((*link)->Receive(soon).ok());
    return *std::move(link);
  }

  const std::string scheme_;
  std::vector<std::string> more_schemes_;  // also listened on
  MonotonicClock clock_;
  InprocHub hub_;
  Layout layout_ = SmallLayout();
  ConnectorSet connectors_;
  HandoffStats stats_;
  HandoffStats server_stats_;
  std::unique_ptr<FakeNode> receiver_;
  std::unique_ptr<FakeNode> source_;
  std::unique_ptr<FakeProvider> provider_;
  HandoffServerOptions server_options_;
  HandoffClientOptions client_options_;
  std::unique_ptr<HandoffServer> server_;
  std::unique_ptr<HandoffClient> client_;
  std::string endpoint_;
  CancelSource cancel_;
  Duration deadline_ = std::chrono::seconds(30);
  uint64_t attempts_ = 0;
};

}  // namespace baton

#endif  // BATON_HANDOFF_TESTING_HANDOFF_FIXTURE_H_
