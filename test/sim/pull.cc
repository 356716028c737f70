// Bytes on their way: one Pull of the simulated connector, extent by extent.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "identity/xxh.h"
#include "sim/links.h"
#include "sim/network.h"

namespace baton::sim {

uint64_t HashOf(ByteSpan bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

namespace {

// Writes of one pull that come after its return.
class LateWrites final : public WritersLeft {
 public:
  bool Quiet() override { return left == 0; }
  int left = 0;
};

}  // namespace

struct Network::PullRun {
  Network& net;
  Session& s;
  std::span<const ReadExtent> extents;
  Instant deadline;
  PullOutcome out;
  std::vector<size_t> again;  // extents that will be written once more
  // The transport keeps no time and no grants on this pull.
  bool late = false;
  bool never = false;  // will never be able to say that its writers are silent
  Stage stage = Stage::kPull;
  std::shared_ptr<LateWrites> writers = std::make_shared<LateWrites>();

  bool Happens(Fault fault, const ReadExtent& e) {
    if (!net.plan_->Fire(fault, stage)) return false;
    Note(fault, e);
    return true;
  }
  void Note(Fault fault, const ReadExtent& e) {
    net.trace_->Event(FaultName(fault), s.id, e.part.value, [&] {
      return absl::StrCat("!! on part 0x", absl::Hex(e.part.value), " of ", NameOf(s));
    });
  }
  // Draws; counts only if there is something to do it to.
  template <class Find>
  std::optional<ByteSpan> Instead(Fault fault, const ReadExtent& e, const Find& find) {
    if (!net.plan_->Draw(fault, stage)) return std::nullopt;
    const std::optional<ByteSpan> bytes = find();
    if (!bytes.has_value()) return std::nullopt;
    net.plan_->Count(fault, stage);
    Note(fault, e);
    return bytes;
  }

  std::optional<ByteSpan> Raw(const ReadExtent& e, int64_t shift) const {
    if (e.region >= s.regions.size()) return std::nullopt;
    const ByteSpan region = s.regions[e.region].bytes;
    const int64_t at = static_cast<int64_t>(e.remote_offset) + shift;
    if (at < 0 || e.bytes > region.size() || static_cast<uint64_t>(at) > region.size() - e.bytes)
      return std::nullopt;
    return region.subspan(static_cast<size_t>(at), e.bytes);
  }

  // What the transport reads for `e`: the granted bytes, or what a fault puts in their place.
  StatusOr<ByteSpan> SourceBytes(const ReadExtent& e) {
    if (auto b = Instead(Fault::kMisdirectRequest, e, [&]() -> std::optional<ByteSpan> {
          for (const auto& [id, other] : net.sessions_) {
            if (id == s.id || other->revoked || !other->machine[kSource]->up) continue;
            for (const auto& g : other->granted)
              if (g.part == e.part && g.bytes.size() >= e.bytes) return g.bytes.first(e.bytes);
          }
          return std::nullopt;
        }))
      return *b;
    if (auto b = Instead(Fault::kMisdirectSlot, e, [&]() -> std::optional<ByteSpan> {
          const auto step = static_cast<int64_t>(e.part.value >> 32 == 0 ? 4096 : e.bytes);
          const auto up = Raw(e, step);
          return up.has_value() ? up : Raw(e, -step);
        }))
      return *b;
    if (auto b = Instead(Fault::kMisdirectLayer, e, [&]() -> std::optional<ByteSpan> {
          for (const auto& g : s.granted)
            if (g.part != e.part && g.bytes.size() == e.bytes && !s.revoked) return g.bytes;
          return std::nullopt;
        }))
      return *b;
    if (late) {
      const auto raw = Raw(e, 0);
      if (raw.has_value()) return *raw;
    }
    BATON_ASSIGN_OR_RETURN(const ByteSpan bytes,
                           s.grants.Resolve({e.state_id, e.part, 0, e.bytes}));
    CheckStill(e, bytes);
    return bytes;
  }

  // What is granted is leased: it stays where it is and as it was.
  void CheckStill(const ReadExtent& e, ByteSpan bytes) const {
    for (const auto& g : s.granted)
      if (g.state_id == e.state_id && g.part == e.part && HashOf(g.bytes) != g.hash)
        net.hooks_.violation(absl::StrCat("I3: part 0x", absl::Hex(e.part.value),
                                          " changed under its lease while ", NameOf(s),
                                          " was reading it"));
    if (s.revoked)
      net.hooks_.violation(
          absl::StrCat("a read was served after everything was revoked, ", NameOf(s)));
    (void)bytes;
  }

  Status Wait(Duration d) {
    net.scheduler_->SleepUntil(net.scheduler_->now() + d);
    return Alive();
  }
  Status Alive() const {
    if (s.closed[kReceiver] || s.ended[kReceiver])
      return Reject(Reason::kPeerUnavailable, absl::StrCat("sim link ", s.id, ": closed"));
    if (!late && net.scheduler_->now() >= deadline)
      return Reject(Reason::kPeerUnavailable, absl::StrCat("sim link ", s.id, ": deadline passed"));
    return absl::OkStatus();
  }

  Status One(size_t i) {
    const ReadExtent& e = extents[i];
    SplitMix64& rng = net.plan_->rng();
    MovedPart& moved = s.facts->moved[e.part.value];
    moved = {e.destination, e.bytes, 0};
    if (stage == Stage::kEarlyPull || rng.Below(2) == 0) net.AtStage(s, stage);
    BATON_RETURN_IF_ERROR(Wait(std::chrono::microseconds(5 + rng.Below(40))));
    if (Happens(Fault::kDelay, e))
      BATON_RETURN_IF_ERROR(Wait(std::chrono::microseconds(1000 + rng.Below(30'000))));
    if (Happens(Fault::kStall, e))
      BATON_RETURN_IF_ERROR(Wait(std::chrono::milliseconds(500 + rng.Below(8'000))));
    if (Happens(Fault::kReset, e)) net.Reset(s);
    if (Happens(Fault::kLateRead, e)) {
      late = true;
      // The link need not know: an address once given can be read until the memory is unmapped.
      net.scheduler_->SleepUntil(net.scheduler_->now() + std::chrono::seconds(3 + rng.Below(4)));
      if (!s.machine[kSource]->up) return Alive();
    } else {
      BATON_RETURN_IF_ERROR(Alive());
    }
    BATON_ASSIGN_OR_RETURN(const ByteSpan source, SourceBytes(e));
    uint64_t reported = e.bytes;
    if (Happens(Fault::kLoss, e)) {
      // Half of the transports do not notice.
      if (rng.Below(2) == 0)
        return Reject(Reason::kShortTransfer, absl::StrCat("sim link ", s.id, ": extent lost"));
    } else if (Happens(Fault::kTear, e)) {
      std::memcpy(e.destination.data(), source.data(), e.bytes / 2);
    } else if (Happens(Fault::kLateWrite, e)) {
      WriteLater(e, source);
      reported = 0;
    } else {
      std::memcpy(e.destination.data(), source.data(), e.bytes);
      if (Happens(Fault::kBitFlip, e)) {
        const uint64_t bit = rng.Below(e.bytes * 8);
        e.destination[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      }
      if (Happens(Fault::kDuplicate, e)) again.push_back(i);
    }
    if (Happens(Fault::kMiscount, e)) reported -= std::min<uint64_t>(reported, 1 + rng.Below(64));
    moved.reported = reported;
    out.landed[i] = reported;
    return absl::OkStatus();
  }

  // The bytes are on their way when the pull returns, and the connector says so.
  void WriteLater(const ReadExtent& e, ByteSpan source) {
    out.quiet = false;
    s.facts->suspect.insert(e.destination.data());
    // Some connectors never know.
    if (net.plan_->rng().Below(4) == 0) {
      if (out.writers_left != nullptr || !never) ++s.machine[kReceiver]->never_quiet;
      never = true;
    }
    out.writers_left = never ? nullptr : writers;
    ++writers->left;
    const std::vector<std::byte> bytes(source.begin(), source.end());
    const MachinePtr to = s.machine[kReceiver];
    const Instant when =
        net.scheduler_->now() +
        std::chrono::microseconds(
            200 + net.plan_->rng().Below(net.plan_->rng().Below(2) == 0 ? 2000 : 40'000));
    net.loop_.At(when, [to, bytes, destination = e.destination, facts = s.facts, left = writers] {
      if (to->up) std::memcpy(destination.data(), bytes.data(), bytes.size());
      facts->suspect.erase(destination.data());
      --left->left;
    });
  }

  void Run() {
    std::vector<size_t> order(extents.size());
    std::iota(order.begin(), order.end(), size_t{0});
    if (extents.size() > 1 && Happens(Fault::kReorder, extents[0]))
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[net.plan_->rng().Below(i)]);
    for (const size_t i : order) {
      out.status = One(i);
      if (!out.status.ok()) break;
    }
    for (const size_t i : again) {
      const ReadExtent& e = extents[i];
      const auto source = s.grants.Resolve({e.state_id, e.part, 0, e.bytes});
      if (source.ok()) std::memcpy(e.destination.data(), source->data(), e.bytes);
    }
    net.trace_->Event("pulled", s.id, extents.size(), [&] {
      return absl::StrCat(extents.size(), " parts, ",
                          out.status.ok() ? "ok" : std::string(out.status.message()),
                          out.quiet ? "" : ", not quiet", "  ", NameOf(s));
    });
  }
};

PullOutcome Network::Pull(Session& session, std::span<const ReadExtent> extents, Instant deadline) {
  PullRun run{*this, session, extents, deadline, {}, {}};
  run.stage = session.facts->offer.has_value() ? Stage::kPull : Stage::kEarlyPull;
  run.out.landed.assign(extents.size(), 0);
  run.Run();
  return std::move(run.out);
}

}  // namespace baton::sim
