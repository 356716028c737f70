// One fault of the catalogue: how it is injected into a hand-off of a running deployment, which
// check finds it, and what has to be switched off for it to reach compute. The ids are those of
// docs/drill.md. Thread rule: plain values; `arm` runs on the drill's thread.
#ifndef BATON_DRILL_FAULT_H_
#define BATON_DRILL_FAULT_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "drill/at_rest.h"
#include "drill/bundle.h"
#include "drill/rig.h"
#include "handoff/checks.h"

namespace baton::drill {

// The prompts a drill works with; token ids of the model. Hand-off boundaries must be >= 48, and
// `other` at least as long as `victim`.
struct Inputs {
  std::vector<TokenId> victim;     // the request that is attacked
  std::vector<TokenId> other;      // another user's, with other facts
  std::vector<TokenId> bystander;  // runs beside the victim
  std::vector<TokenId> stop_ids;
  int64_t max_tokens = 40;
};

// True memories of other histories, to be delivered in place of the victim's. B: its boundary.
struct Payloads {
  Payload other;           // of the other user's first B tokens
  Payload token_before;    // the victim's at B - 1
  Payload token_after;     // at B + 1
  Payload block_less_one;  // at B - 15
  Payload block_before;    // at B - 16
  Payload truth;           // at B
};

// One attacked run in the making.
struct Trial {
  Rig& rig;
  const Inputs& in;
  const Payloads& payloads;
  uint64_t boundary;  // of the attacked hand-off
  // To be filled by `arm` where a fault needs them.
  std::function<void()> on_first_token{};                 // on the decode engine's thread
  std::function<void()> cancel{};                         // set by the drill: cancels the victim
  std::vector<engine::GenerateRequest> extra_requests{};  // run beside the victim
};

// A bundle of the victim's at rest, while a fault is done to it.
struct AtRest {
  Resting& bundle;
  Rig& rig;
  const Inputs& in;
  std::span<const TokenId> history;  // what the bundle is the memory of
  RestingObject* object = nullptr;   // of a tier
  ObjectName name{};                 // of a tier
  std::optional<SlotHandle> slot{};  // in pool memory
  // A tier: changes the object's bytes as they will lie.
  std::function<void(std::vector<uint8_t>*)> raw{};
  bool save = true;  // a tier: write the bundle back
};

// What must become of the attacked request.
enum class Expect {
  kRejected,   // refused with one of `reasons`, then answered by a retry or recomputation
  kPrevented,  // nothing to refuse: the lie finds no way in; right at once
  kCancelled,  // the client leaves: nothing is left behind
};

struct Fault {
  std::string id;       // "F01"
  std::string variant;  // "state": tells apart faults of one id
  std::string title;
  std::string check;  // which check finds it, in words
  Expect expect = Expect::kRejected;
  std::vector<std::string> reasons{};  // any of these reason codes

  std::vector<Check> guards{};  // off in the twin, which must reach compute
  PoolChecksOff pool_guards{};
  std::string no_twin{};    // why there is none, if there are no guards
  bool same_bits = false;   // the twin is handed the right bytes under a wrong name
  uint32_t twin_slots = 0;  // memory of the twin's workers; 0: as always
  int twin_tries = 1;       // where it depends on which place a slot was given

  bool needs_state = false;
  bool needs_kv = false;
  uint64_t needs_blocks = 1;      // of the first KV group in a bundle, if needs_kv
  std::string needs_component{};  // of the state, "conv" or "ssm"; "": any
  size_t needs_parts = 1;         // of that component
  size_t needs_axes = 1;          // each of them
  std::string only_connector{};   // "": all
  std::string not_applicable{};   // why, if a part of the system does not exist
  Duration lease = std::chrono::seconds(30);
  std::function<Status(Trial&)> arm{};
  std::function<Status(Trial&)> twin_arm{};  // in the twin; empty: `arm`

  // Faults of bundles at rest: there, `tamper` takes the place of `arm`.
  Rest rest = Rest::kNowhere;
  std::function<Status(AtRest&)> tamper{};       // empty: nothing is done to it
  std::function<Status(AtRest&)> twin_tamper{};  // in the twin; empty: `tamper`
  std::string victim_salt{};                     // the victim is another tenant's
  bool fresh = false;                            // the victim finds no bundle of its own
  // What other requests have left in every free slot; empty: numbers that are none of anybody's.
  std::function<void(const Payload& other, const Layout& layout, MutableByteSpan slot)> litter{};
};

// Every fault of a hand-off, in order of id.
std::vector<Fault> Catalogue(const Layout& layout);
// Every fault of a bundle that rests there, in order of id.
std::vector<Fault> CatalogueAtRest(const Layout& layout, Rest rest);

}  // namespace baton::drill

#endif  // BATON_DRILL_FAULT_H_
