// The prefix hash: a SHA-256 chain over blocks of token ids, rooted in the tenant's scope. Two
// histories have the same hash only if every token and their number agree and the scope is the
// same; a cryptographic hash, because a key that can be collided on purpose would serve one
// tenant's state to another.
//
//   root     = SHA-256("baton.prefix.root\0" | scope)
//   H(0)     = root
//   H(n)     = SHA-256("baton.prefix.block\0" | H(floor16(n-1)) | u32 count | count * u32 token)
// where the last block holds count = 1..16 tokens; integers are little-endian.
//
// Thread rule: plain values.
#ifndef BATON_IDENTITY_PREFIX_CHAIN_H_
#define BATON_IDENTITY_PREFIX_CHAIN_H_

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace baton {

// SHA-256("baton.scope\0" | u32 length | salt). The empty salt is the shared scope.
Sha256 ScopeOf(std::string_view tenant_salt);

class PrefixChain {
 public:
  explicit PrefixChain(const Sha256& scope);
  // The chain of a whole history at once.
  PrefixChain(const Sha256& scope, std::span<const TokenId> tokens);

  void Append(TokenId token);
  void Append(std::span<const TokenId> tokens);

  // Tokens absorbed.
  uint64_t boundary() const { return block_hashes_.size() * kBlockTokens + pending_count_; }
  // Prefix hash at the current boundary, also inside a partial block. Hashes at most one block.
  Sha256 Hash() const;
  // Prefix hash at the end of full block `block` < full_blocks(), that is at boundary
  // kBlockTokens * (block + 1).
  const Sha256& BlockHash(size_t block) const { return block_hashes_[block]; }
  size_t full_blocks() const { return block_hashes_.size(); }
  std::span<const Sha256> block_hashes() const { return block_hashes_; }
  const Sha256& scope() const { return scope_; }

  // Forgets every token after `boundary`, which must lie on the grid and not after the current one.
  void TruncateToGrid(uint64_t boundary);

  // Hash at each full block's end of `tokens`; the tail of a partial block is ignored.
  static std::vector<Sha256> BlockHashes(const Sha256& scope, std::span<const TokenId> tokens);
  // Hash of the whole of `tokens`.
  static Sha256 HashOf(const Sha256& scope, std::span<const TokenId> tokens);

 private:
  const Sha256& Previous() const { return block_hashes_.empty() ? root_ : block_hashes_.back(); }

  Sha256 scope_;
  Sha256 root_;
  std::vector<Sha256> block_hashes_;
  std::array<TokenId, kBlockTokens> pending_{};
  uint32_t pending_count_ = 0;  // < kBlockTokens
};

}  // namespace baton

#endif  // BATON_IDENTITY_PREFIX_CHAIN_H_
