// A transfer alone, over links that do as they are told: what moves when one of
// them cannot say that it has stopped writing.
#include "handoff/transfer.h"

#include <gtest/gtest.h>

#include <utility>

#include "base/rng.h"
#include "handoff/testing/fake_node.h"

namespace baton {
namespace {

class SilentLink final : public Link {
 public:
  Status Send(const Frame&, Instant) override { return absl::OkStatus(); }
  StatusOr<Frame> Receive(Instant) override { return Reject(Reason::kPeerUnavailable, "closed"); }
  Event WaitReadable(Instant) override { return Event::kDeadline; }
  void Interrupt() override {}
  void Close() override {}
  std::string peer() const override { return "silent"; }
};

// Lands everything, until it is told to die without a word about its writers.
class ObedientConnector final : public Connector {
 public:
  explicit ObedientConnector(std::string name) : name_(std::move(name)) {}
  std::string_view name() const override { return name_; }
  StatusOr<std::unique_ptr<Link>> Connect(const std::string&,
                                          Instant,
                                          const CancelToken&) override {
    return std::make_unique<SilentLink>();
  }
  PullOutcome Pull(Link&, std::span<const ReadExtent> extents, Instant) override {
    PullOutcome outcome;
    for (const ReadExtent& e : extents) outcome.landed.push_back(dies ? 0 : e.bytes);
    if (dies) outcome.status = Reject(Reason::kPeerUnavailable, "gone");
    outcome.quiet = !dies;
    return outcome;
  }
  bool dies = false;

 private:
  const std::string name_;
};

// A block that a link brought under a bundle's first name, and that the source
// has withdrawn since, is memory which that link was given: if it then dies
// unquiet, the block moves like those it was bringing, though nobody has asked
// for it again yet.
TEST(Transfer, WhatALinkWasGivenUnderAnEarlierNameMovesTooWhenItDiesUnquiet) {
  const Layout layout = SmallLayout();
  const MonotonicClock clock;
  FakeNodeOptions options;
  options.layout = &layout;
  options.clock = &clock;
  FakeNode node(options);
  const Instant deadline = clock.Now() + std::chrono::minutes(1);
  const PullRequest request = node.NewRequest("x", SomeTokens(64, 1), Attempt(1), deadline);
  Quarantine quarantine(uint64_t{1} << 30);
  ObedientConnector control("control"), dying("dying");
  Destination destination(node.pools(), layout, request, &quarantine);
  ASSERT_TRUE(destination.CheckShape().ok());
  ASSERT_TRUE(destination.Land().ok());
  Transfer transfer(BundleParts(layout, 64), &destination, &clock, nullptr, Checks());
  transfer.AddLink(&control, std::make_unique<SilentLink>());
  transfer.AddLink(&dying, std::make_unique<SilentLink>());
  transfer.RouteKv(1);
  const auto block = [&](uint64_t b) {
    return Transfer::Wanted{*transfer.Find(BlockPartKey(0, b)), {}};
  };

  transfer.Under(RandomBytes<StateId>());
  ASSERT_TRUE(transfer.Fetch({block(0), block(1)}, deadline).ok());
  transfer.Under(RandomBytes<StateId>());
  dying.dies = true;
  const Status status = transfer.Fetch({block(2)}, deadline);
  ASSERT_TRUE(status.ok()) << status;

  const auto now = destination.blocks();
  for (uint64_t b = 0; b < 3; ++b) EXPECT_NE(now[0][b], request.blocks[0][b]) << b;
  EXPECT_EQ(now[0][3], request.blocks[0][3]);
  EXPECT_EQ(destination.quarantined(), 3u);
  // Only what was asked for has been fetched anew.
  EXPECT_FALSE(transfer.progress()[block(0).index].have());
  EXPECT_TRUE(transfer.progress()[block(2).index].have());
  EXPECT_TRUE(destination.Landed().ok());
  destination.Abort();
}

}  // namespace
}  // namespace baton
