// THE verification routine: the same for hand-off, tier restore, move and resume (a tier restore
// is a hand-off whose peer is a disk). It compares what a peer, a file or a copy *claims* with what
// this process *derived from its own tokens, model and layout*, and digests the bytes where they
// landed. It adopts nothing from the claim. Each rejection names part, expected and found.
//
// It moves no bytes and changes no life-cycle state: the caller turns LANDED into VERIFIED only on
// ok. Thread rule: pure function over memory nobody may be writing.
#ifndef BATON_HANDOFF_VERIFY_H_
#define BATON_HANDOFF_VERIFY_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "handoff/checks.h"
#include "handoff/parts.h"
#include "identity/content_identity.h"
#include "identity/digest.h"
#include "identity/layout.h"
#include "identity/prefix_chain.h"
#include "identity/seal.h"
#include "memory/device.h"

namespace baton {

// What the receiver derived on its own.
struct Expectation {
  ContentIdentity identity;
  // Own chain over own tokens, rooted in identity.scope, at least identity.boundary long: seeds of
  // the block digests.
  const PrefixChain* chain = nullptr;
  // Compared where the source has such a thing; a disk object has neither attempt nor epoch.
  std::optional<Attempt> attempt;
  std::optional<Epoch> epoch;
  std::optional<StateId> state_id;
};

// What came with the bytes.
struct BundleClaim {
  Attempt attempt;
  Epoch epoch;       // of the serving incarnation (the seal names the producing one)
  StateId state_id;  // as the offer or the file's header names it
  Seal seal;
  // Per group, one digest per block, ascending.
  std::vector<std::vector<Digest128>> block_digests;
};

// One expected part and where it landed.
struct LandedPart {
  BundlePart part;
  ByteSpan bytes;        // exactly the part's extent in receiver memory
  uint64_t planned = 0;  // what the layout says
  uint64_t posted = 0;   // what the mover was asked for
  uint64_t landed = 0;   // what the mover says it wrote
  // Set if PartDigester digested exactly these bytes where they lie, after their last writer had
  // fallen silent, under a handle that check_handles still finds unchanged; else they are read now.
  std::optional<PartDigest> digest = std::nullopt;
};

struct LandedBundle {
  std::vector<LandedPart> parts;
  // Ok if every destination handle is still this receiver's, in this attempt. May be empty where
  // there are no handles (a file checked in a buffer).
  std::function<Status()> check_handles;
};

struct Verifier {
  const Layout* layout = nullptr;
  const Digester* digester = nullptr;
  const Device* device = nullptr;  // reads the landed bytes
  ThreadPool* pool = nullptr;      // parts are digested in parallel if given
  Checks checks;
};

// Everything that can be compared before a byte moves: identity, attempt, epoch, state-id,
// algorithm, the seal's parts against the layout, the root over the block digests. A hand-off
// calls it on the offer, so that a wrong bundle costs no transfer; VerifyBundle calls it again.
Status VerifyClaim(const Verifier& verifier, const Expectation& expected, const BundleClaim& claim);

// Digests parts that land before their bundle is sealed, as VerifyBundle would. `verifier` and
// `expected` outlive it. Thread rule: thread-safe.
class PartDigester {
 public:
  PartDigester(const Verifier& verifier, const Expectation& expected);
  // `part` is one of BundleParts(layout, expected boundary), bytes.size() == part.bytes.
  PartDigest Digest(const BundlePart& part, ByteSpan bytes) const;
  DigestSeed SeedOf(const BundlePart& part) const;

 private:
  const Verifier& v_;
  const IdentityBase base_;
  const PrefixChain& chain_;
  const Sha256 bundle_key_;  // content keys seed the digests, derived from the receiver's own chain
};

// VerifyClaim, then all parts present with planned == posted == landed, the handles, and every
// part's digest and finiteness. First difference found wins; in part order.
Status VerifyBundle(const Verifier& verifier,
                    const Expectation& expected,
                    const BundleClaim& claim,
                    const LandedBundle& landed);

// One part alone: for copies, moves and forks, and inside VerifyBundle. `name` is for the message,
// `mismatch` the reason to give (kDigestMismatch or kBlockDigestMismatch).
struct PartCheck {
  DigestSeed seed;
  Digest128 expected;
  std::string_view name;
  Reason mismatch = Reason::kDigestMismatch;
  std::optional<PartDigest> found;  // if the bytes have been digested already
};
Status VerifyPart(const Verifier& verifier, const PartCheck& check, ByteSpan bytes);

}  // namespace baton

#endif  // BATON_HANDOFF_VERIFY_H_
