// Sealing on the source: the claim is compared with the live record beside the slot before anything
// is digested, so a bundle is never named after a boundary its state has not. It copies nothing and
// changes no life-cycle state. Thread rule: free functions over memory nobody is writing.
#ifndef BATON_HANDOFF_SEAL_BUNDLE_H_
#define BATON_HANDOFF_SEAL_BUNDLE_H_

#include <cstdint>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "handoff/ask.h"
#include "identity/seal.h"
#include "memory/device.h"
#include "memory/live_record.h"

namespace baton {

// Digest of a full, final KV block; computed once in the block's life and kept with it.
// `end_key` = record.BlockIdentity(block).Key(). kNonFinite if the block holds a NaN or infinity.
StatusOr<Digest128> DigestKvBlock(const LocalIdentity& self,
                                  const Device& device,
                                  const Sha256& end_key,
                                  size_t group,
                                  ByteSpan bytes);

struct SealRequest {
  ContentIdentity claim;             // what the request says the bundle is
  const LiveRecord* live = nullptr;  // what the slot really holds
  StateId parent;                    // zero: computed from token 0
  StateId state_id;                  // promised to somebody already; zero: a new random one
  ByteSpan slot;                     // the slot's bytes, under a lease; empty without state parts
  // Per group, BlockCount(group, boundary) digests, ascending.
  std::vector<std::vector<Digest128>> block_digests;
};

// The seal, under the promised state-id or a new one. Errors: the mismatch of claim and live record
// (kBoundaryMismatch, kIdentityMismatch, ...), kNonFinite, InvalidArgument if digest counts or the
// slot's size are not the layout's.
StatusOr<Seal> SealBundle(const LocalIdentity& self,
                          const Device& device,
                          const SealRequest& request);

}  // namespace baton

#endif  // BATON_HANDOFF_SEAL_BUNDLE_H_
