#include "sim/faults.h"

namespace baton::sim {

std::string_view FaultName(Fault fault) {
  constexpr std::string_view kNames[kFaults] = {
      "loss",          "delay",          "duplicate",       "reorder",          "tear",  "miscount",
      "misdirect:req", "misdirect:slot", "misdirect:layer", "bit flip",         "stall", "reset",
      "late read",     "late write",     "restart source",  "restart receiver", "cancel"};
  return kNames[static_cast<size_t>(fault)];
}

std::string_view StageName(Stage stage) {
  constexpr std::string_view kNames[kStages] = {"connect", "hello",  "ask",        "join",
                                                "provide", "blocks", "early pull", "offer",
                                                "pull",    "verify", "release"};
  return kNames[static_cast<size_t>(stage)];
}

bool Applies(Fault fault, Stage stage) {
  switch (fault) {
    case Fault::kRestartSource:
    case Fault::kRestartReceiver:
    case Fault::kCancel:
    case Fault::kDelay:
      return true;
    case Fault::kStall:
      return true;
    case Fault::kLoss:
    case Fault::kReset:
      return stage != Stage::kProvide && stage != Stage::kVerify;
    case Fault::kDuplicate:
    case Fault::kReorder:
    case Fault::kTear:
    case Fault::kMisdirectRequest:
    case Fault::kBitFlip:
      return stage != Stage::kConnect && stage != Stage::kProvide && stage != Stage::kVerify;
    case Fault::kMiscount:
    case Fault::kMisdirectSlot:
    case Fault::kMisdirectLayer:
    case Fault::kLateRead:
    case Fault::kLateWrite:
      return stage == Stage::kPull || stage == Stage::kEarlyPull;
  }
  return false;
}

void FaultTable::Add(const FaultTable& other) {
  for (size_t f = 0; f < kFaults; ++f)
    for (size_t s = 0; s < kStages; ++s) fired[f][s] += other.fired[f][s];
}

FaultPlan::FaultPlan(uint64_t seed) : rng_(seed ^ 0xFA017ull) {
  if (rng_.Below(16) == 0) return;  // a clean run
  clean_ = false;
  for (double& rate : rate_) {
    if (rng_.Below(3) != 0) continue;
    constexpr double kRates[] = {0.01, 0.04, 0.15};
    rate = kRates[rng_.Below(3)];
  }
}

bool FaultPlan::Draw(Fault fault, Stage stage) {
  double rate = rate_[static_cast<size_t>(fault)];
  if (rate == 0 || stopped_ || !Applies(fault, stage)) return false;
  // Few conversations come far, and a pull draws for every part.
  constexpr double kWeights[kStages] = {0.4, 0.4, 0.5, 0.7, 1, 1.2, 3, 1, 0.6, 4, 4};
  rate *= kWeights[static_cast<size_t>(stage)];
  return rng_.Uniform() < rate;
}

}  // namespace baton::sim
