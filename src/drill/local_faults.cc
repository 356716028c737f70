// Faults of memory, time and requests: a worker's own slots, leases and ids.
#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "connector/hostile/attacks.h"
#include "drill/fault.h"

namespace baton::drill {
namespace {

engine::GenerateRequest Short(const std::vector<TokenId>& prompt) {
  engine::GenerateRequest r;
  r.prompt = prompt;
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 1;
  return r;
}

// Other requests take over what the prefill worker has freed.
void Reuse(Rig& rig, const Inputs& in, int requests) {
  rig.prefill().engine().RunOnEngineThread([](engine::Core& c) { c.DropCheckpoints(); });
  std::vector<std::shared_ptr<Recorder>> running;  // at once: they need places of their own
  for (int i = 0; i < requests; ++i) {
    engine::GenerateRequest r = Short(in.other);
    std::rotate(r.prompt.begin(), r.prompt.begin() + i + 1, r.prompt.end());
    r.sampling.max_tokens = 8;
    auto sink = std::make_shared<Recorder>();
    if (rig.prefill().engine().Start(std::move(r), sink).ok()) running.push_back(std::move(sink));
  }
  for (const auto& sink : running) sink->Wait();
}

// F04: the source's lease runs out before the bytes are read; their memory has a new owner.
Fault LateRead() {
  Fault f{"F04", "", "read of a slot that was freed and reused", "lease on the source's clock"};
  f.reasons = {"lease_expired", "peer_unavailable", "digest_mismatch", "block_digest_mismatch",
               "unknown_part"};
  f.no_twin = "the source refuses to read for a lease that has ended";
  f.lease = std::chrono::milliseconds(60);
  f.arm = [](Trial& t) {
    const auto ended = [&rig = t.rig] {
      return rig.prefill().handoff_stats().leases_expired.load();
    };
    t.rig.connector().Arm(BeforePull(
                              [&rig = t.rig, &in = t.in, ended, before = ended()] {
                                // Until then nobody else is given the memory.
                                for (int i = 0; i < 1000 && ended() == before; ++i)
                                  std::this_thread::sleep_for(std::chrono::milliseconds(10));
                                std::this_thread::sleep_for(std::chrono::milliseconds(50));
                                Reuse(rig, in, 4);
                              },
                              /*ignore_deadline=*/true),
                          1);
    return absl::OkStatus();
  };
  return f;
}

// F05: a transfer is given up, and its writer writes later, when the memory may be another's.
Fault LateWrite(bool claims_quiet) {
  Fault f{"F05", "", "a write that lands after the transfer was given up",
          "quarantine until the writer is proven quiet"};
  f.expect = Expect::kRejected;
  f.reasons = {"short_transfer", "peer_unavailable", "transfer_failed", "connector_failed"};
  f.needs_state = true;
  f.arm = [claims_quiet](Trial& t) {
    auto kept = std::make_shared<std::vector<MutableByteSpan>>();
    Attack attack;
    attack.name = "late_write";
    attack.pull = [kept, claims_quiet](const PullCall& call) {
      PullOutcome outcome;
      for (const ReadExtent& e : call.extents) {
        if (IsStatePart(e.part)) kept->push_back(e.destination);
        outcome.landed.push_back(0);
      }
      outcome.status = Reject(Reason::kPeerUnavailable, "given up in the middle of the transfer");
      outcome.quiet = claims_quiet;
      return outcome;
    };
    t.rig.connector().Arm(std::move(attack), 1);
    t.on_first_token = [kept] {
      for (const MutableByteSpan& bytes : *kept) {
        const float value = 0.37F;
        for (size_t i = 0; i + sizeof value <= bytes.size(); i += sizeof value)
          std::memcpy(bytes.data() + i, &value, sizeof value);
      }
    };
    return absl::OkStatus();
  };
  return f;
}

// F15: the source compacts its memory between translation and the end of the transfer. Requests
// that were running when the victim's state was made leave free places below it.
Fault CompactedUnderTransfer() {
  Fault f{"F15", "", "slot compacted between translation and the end of the transfer",
          "a leased slot never moves"};
  f.expect = Expect::kPrevented;
  f.needs_state = true;
  f.guards = {Check::kStateDigest, Check::kBlockDigest, Check::kFinite};
  f.pool_guards.lease_pin = true;
  f.twin_slots = 8;
  f.twin_tries = 20;  // it depends on who was given which place
  f.arm = [](Trial& t) -> Status {
    using Running = std::pair<std::shared_ptr<engine::Generation>, std::shared_ptr<Recorder>>;
    auto below = std::make_shared<std::vector<Running>>();
    for (size_t i = 0; i < 3; ++i) {
      engine::GenerateRequest r =
          Short({t.in.other.begin(), t.in.other.begin() + 4 + static_cast<ptrdiff_t>(i)});
      r.sampling.max_tokens = 2000;
      auto sink = std::make_shared<Recorder>();
      BATON_ASSIGN_OR_RETURN(auto handle, t.rig.prefill().engine().Start(std::move(r), sink));
      sink->WaitForTokens(1);
      below->emplace_back(std::move(handle), std::move(sink));
    }
    t.rig.connector().Arm(BeforePull([&rig = t.rig, &in = t.in, below] {
                            for (const auto& [handle, sink] : *below) handle->Cancel();
                            for (const auto& [handle, sink] : *below) sink->Wait();
                            rig.prefill().engine().RunOnEngineThread([&rig](engine::Core&) {
                              SlotPool* slots = rig.prefill().memory().pools().slots;
                              for (int i = 0; i < 64; ++i) {
                                const StatusOr<bool> moved = slots->CompactOne();
                                if (!moved.ok() || !*moved) break;
                              }
                            });
                            Reuse(rig, in, 8);
                          }),
                          1);
    return absl::OkStatus();
  };
  return f;
}

// F20: two clients choose the same request id.
Fault SameRequestId() {
  Fault f{"F20", "", "two clients use the same request id", "owner ids are minted by the engine"};
  f.expect = Expect::kPrevented;
  f.no_twin = "the client's id is a label in log lines: nothing is looked up by it";
  f.arm = [](Trial& t) {
    engine::GenerateRequest r = Short(t.in.other);
    r.label = "victim";  // the label of the attacked request, too
    r.sampling.max_tokens = t.in.max_tokens;
    r.sampling.stop_token_ids = t.in.stop_ids;
    t.extra_requests.push_back(std::move(r));
    return absl::OkStatus();
  };
  return f;
}

// F22: the client leaves at each stage of the hand-off.
Fault ClientLeaves(std::string stage, Attack (*make)(std::function<void()>)) {
  Fault f{"F22", stage, "the client leaves: " + stage, "cancel tokens and leases"};
  f.expect = Expect::kCancelled;
  f.no_twin = "what would show is a leak, not a text: counted here, forced in the unit tests";
  f.arm = [make](Trial& t) {
    t.rig.connector().Arm(make(t.cancel), 1);
    return absl::OkStatus();
  };
  return f;
}

// F24: one prompt, two seeds: what is handed over carries nothing of a sampler.
Fault SamplerState() {
  Fault f{"F24", "", "a sampled token or sampler state of another request",
          "no token, tail or sampler state travels"};
  f.expect = Expect::kPrevented;
  f.no_twin = "the path does not exist";
  f.arm = [](Trial& t) {
    for (const uint64_t seed : {uint64_t{1}, uint64_t{2}}) {
      engine::GenerateRequest r = Short(t.in.victim);
      r.sampling.temperature = 1;
      r.sampling.seed = seed;
      r.sampling.max_tokens = t.in.max_tokens;
      t.extra_requests.push_back(std::move(r));
    }
    return absl::OkStatus();
  };
  return f;
}

}  // namespace

void AddLocalFaults(const Layout& layout, std::vector<Fault>* faults) {
  (void)layout;
  faults->push_back(LateRead());
  // The twin: the connector swears that all is quiet. One slot, so that the retry must take it.
  Fault late_write = LateWrite(false);
  late_write.twin_arm = LateWrite(true).arm;
  late_write.twin_slots = 1;
  faults->push_back(std::move(late_write));
  faults->push_back(CompactedUnderTransfer());
  faults->push_back(SameRequestId());
  faults->push_back(ClientLeaves("after the offer", OnOffer));
  faults->push_back(ClientLeaves(
      "before the pull", [](std::function<void()> act) { return BeforePull(std::move(act)); }));
  faults->push_back(ClientLeaves("after the pull", AfterPull));
  faults->push_back(SamplerState());
}

}  // namespace baton::drill
