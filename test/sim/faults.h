// What can go wrong, and where. Each seed draws a subset of the faults and a rate for each (swarm
// testing: a run with every fault at once hides what two of them do together). Some seeds draw
// none: there nothing may be refused.
// Thread rule: one OS thread.
#ifndef BATON_TEST_SIM_FAULTS_H_
#define BATON_TEST_SIM_FAULTS_H_

#include <array>
#include <cstdint>
#include <string_view>

#include "base/rng.h"

namespace baton::sim {

enum class Fault : uint8_t {
  kLoss,              // a frame or an extent never arrives; the transport may claim that it did
  kDelay,             // milliseconds
  kDuplicate,         // arrives twice, or one of an earlier conversation arrives first
  kReorder,           // overtakes what was sent before it
  kTear,              // only its beginning arrives
  kMiscount,          // the transport reports fewer bytes than it wrote
  kMisdirectRequest,  // another request's frame or payload in its place
  kMisdirectSlot,     // payload read from the neighbouring slot or block
  kMisdirectLayer,    // payload of another part of the same bundle and size
  kBitFlip,           // one bit, under a checksum that fits or does not
  kStall,             // seconds: past the deadline or the lease
  kReset,             // the connection breaks
  kLateRead,          // read after the source has let go
  kLateWrite,         // written after the pull has returned; the connector says so
  kRestartSource,     // the process dies and comes back with a new epoch
  kRestartReceiver,
  kCancel,  // the client gives up
};
inline constexpr size_t kFaults = 17;
std::string_view FaultName(Fault fault);

enum class Stage : uint8_t {
  kConnect,
  kHello,
  kAsk,
  kJoin,       // a further link of the same hand-off
  kProvide,    // the source computes
  kBlocks,     // blocks offered meanwhile, and the turn given back
  kEarlyPull,  // pulls before the offer
  kOffer,
  kPull,
  kVerify,
  kRelease,
};
inline constexpr size_t kStages = 11;
std::string_view StageName(Stage stage);

// Whether the fault can happen there at all: a connection has no payload to tear.
bool Applies(Fault fault, Stage stage);

// How often each fault fired at each stage.
struct FaultTable {
  std::array<std::array<uint64_t, kStages>, kFaults> fired{};
  void Add(const FaultTable& other);
};

// The faults of one seed.
class FaultPlan {
 public:
  explicit FaultPlan(uint64_t seed);
  // True if the fault is to happen now. The caller counts it with Count once it has found something
  // to do it to.
  bool Draw(Fault fault, Stage stage);
  void Count(Fault fault, Stage stage) {
    ++table_.fired[static_cast<size_t>(fault)][static_cast<size_t>(stage)];
  }
  bool Fire(Fault fault, Stage stage) {
    const bool fire = Draw(fault, stage);
    if (fire) Count(fault, stage);
    return fire;
  }
  bool clean() const { return clean_; }
  // No more faults from now on: the end of a run must become quiet.
  void Stop() { stopped_ = true; }
  // Everything drawn for the faults comes from here.
  SplitMix64& rng() { return rng_; }
  const FaultTable& table() const { return table_; }

 private:
  SplitMix64 rng_;
  std::array<double, kFaults> rate_{};
  bool clean_ = true;
  bool stopped_ = false;
  FaultTable table_;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_FAULTS_H_
