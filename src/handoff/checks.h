// The checks of a verification, all on. Nothing but a test or a fault drill can switch one off,
// and only through checks_for_testing.h, which serve, route and the engine never include (a test
// shows it). Bounds of hostile records are not checks: they cannot be switched off at all.
// Thread rule: plain value.
#ifndef BATON_HANDOFF_CHECKS_H_
#define BATON_HANDOFF_CHECKS_H_

namespace baton {

enum class Check {
  kIdentity,  // sealed content identity == the derived one (model, layout, scope, boundary, prefix)
  kAttempt,   // offer echoes the asked attempt
  kEpoch,     // producer of seal and offer is the incarnation that said hello
  kStateId,   // seal, offer and parts name one bundle
  kParts,     // every expected part offered, none besides
  kLanded,    // planned == posted == landed
  kStateDigest,  // state parts where they landed
  kBlockDigest,  // KV blocks where they landed, and the root over them
  kFinite,       // no NaN or infinity
  kHandle,       // destination handles are still this receiver's
  kAlgorithm,    // digests of the agreed algorithm, none absent
  kPeer,         // hello: protocol, digest, layout, model agree
  kFreshMemory,  // the share of a connector that died moves to units it was never given
};

class Checks {
 public:
  // All on.
  constexpr Checks() = default;
  constexpr bool On(Check check) const { return (off_ & Bit(check)) == 0; }

 private:
  friend struct ChecksForTesting;
  static constexpr unsigned Bit(Check check) { return 1u << static_cast<unsigned>(check); }
  unsigned off_ = 0;
};

}  // namespace baton

#endif  // BATON_HANDOFF_CHECKS_H_
