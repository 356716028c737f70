// What a bundle *is*, independent of where it lies: model, layout, scope, prefix, boundary. Both
// sides of a hand-off derive it on their own; it is compared, never adopted. No request id, step or
// attempt is part of it: they would reject every reuse and live in the placement stamp instead.
// Thread rule: plain values.
#ifndef BATON_IDENTITY_CONTENT_IDENTITY_H_
#define BATON_IDENTITY_CONTENT_IDENTITY_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "base/types.h"
#include "identity/prefix_chain.h"

namespace baton {

struct ContentIdentity {
  Sha256 model;   // ModelFingerprint
  Sha256 layout;  // Layout::fingerprint
  Sha256 scope;   // ScopeOf(tenant salt)
  Sha256 prefix;  // PrefixChain::Hash at `boundary`
  uint64_t boundary = 0;

  // The key everywhere: SHA-256("baton.content\0" | model | layout | scope | prefix | u64
  // boundary).
  Sha256 Key() const;
  // Short form for logs: "boundary 48, key 1f0a...".
  std::string ToString() const;

  friend bool operator==(const ContentIdentity&, const ContentIdentity&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ContentIdentity& c) {
    return H::combine(std::move(h), c.model, c.layout, c.scope, c.prefix, c.boundary);
  }
};

// The part of an identity that one engine shares among the sequences of one tenant.
struct IdentityBase {
  Sha256 model;
  Sha256 layout;
  Sha256 scope;

  ContentIdentity At(const Sha256& prefix, uint64_t boundary) const {
    return {model, layout, scope, prefix, boundary};
  }
  // At the chain's current boundary. The chain must be rooted in `scope`.
  ContentIdentity At(const PrefixChain& chain) const { return At(chain.Hash(), chain.boundary()); }
  // At the own end of full block `block`: the identity that seeds that KV block's digest.
  ContentIdentity AtBlockEnd(const PrefixChain& chain, size_t block) const {
    return At(chain.BlockHash(block), (block + 1) * static_cast<uint64_t>(kBlockTokens));
  }
  friend bool operator==(const IdentityBase&, const IdentityBase&) = default;
};

// Ok if equal. Else a rejection that names the first differing field with both values, in this
// order: kModelMismatch, kLayoutMismatch, kScopeMismatch, kBoundaryMismatch, kIdentityMismatch (the
// prefix). `expected` is what this side derived, `found` what was sealed or claimed.
Status MatchIdentity(const ContentIdentity& expected, const ContentIdentity& found);

}  // namespace baton

#endif  // BATON_IDENTITY_CONTENT_IDENTITY_H_
