#include "identity/prefix_chain.h"

#include "base/sha256.h"
#include "base/status.h"

namespace baton {
namespace {

// The trailing NUL is hashed too, so no tag is a prefix of another tag plus data.
constexpr std::string_view kScopeTag("baton.scope\0", 12);
constexpr std::string_view kRootTag("baton.prefix.root\0", 18);
constexpr std::string_view kBlockTag("baton.prefix.block\0", 19);

ByteSpan View(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

Sha256 RootOf(const Sha256& scope) {
  ByteWriter w;
  w.PutRaw(View(kRootTag));
  w.Put(scope);
  return Sha256Of(AsBytes(w.data()));
}

// One fixed buffer and one Update: a decode step hashes at most one block per sequence.
Sha256 HashBlock(const Sha256& previous, std::span<const TokenId> tokens) {
  std::array<std::byte, kBlockTag.size() + Sha256::kSize + 4 + 4 * kBlockTokens> buffer;
  std::byte* p = buffer.data();
  const auto put = [&p](const void* src, size_t n) {
    std::memcpy(p, src, n);
    p += n;
  };
  const auto count = static_cast<uint32_t>(tokens.size());
  put(kBlockTag.data(), kBlockTag.size());
  put(previous.bytes.data(), Sha256::kSize);
  put(&count, sizeof(count));
  put(tokens.data(), tokens.size_bytes());
  return Sha256Of(ByteSpan(buffer.data(), static_cast<size_t>(p - buffer.data())));
}

}  // namespace

Sha256 ScopeOf(std::string_view tenant_salt) {
  ByteWriter w;
  w.PutRaw(View(kScopeTag));
  w.PutString(tenant_salt);
  return Sha256Of(AsBytes(w.data()));
}

PrefixChain::PrefixChain(const Sha256& scope) : scope_(scope), root_(RootOf(scope)) {}

PrefixChain::PrefixChain(const Sha256& scope, std::span<const TokenId> tokens)
    : PrefixChain(scope) {
  block_hashes_.reserve(tokens.size() / kBlockTokens);
  Append(tokens);
}

void PrefixChain::Append(TokenId token) {
  pending_[pending_count_++] = token;
  if (pending_count_ == kBlockTokens) {
    block_hashes_.push_back(HashBlock(Previous(), pending_));
    pending_count_ = 0;
  }
}

void PrefixChain::Append(std::span<const TokenId> tokens) {
  for (TokenId t : tokens) Append(t);
}

Sha256 PrefixChain::Hash() const {
  if (pending_count_ == 0) return Previous();
  return HashBlock(Previous(), std::span(pending_).first(pending_count_));
}

void PrefixChain::TruncateToGrid(uint64_t boundary) {
  BATON_CHECK(boundary % kBlockTokens == 0 && boundary <= this->boundary());
  block_hashes_.resize(boundary / kBlockTokens);
  pending_count_ = 0;
}

std::vector<Sha256> PrefixChain::BlockHashes(const Sha256& scope, std::span<const TokenId> tokens) {
  PrefixChain chain(scope, tokens.first(tokens.size() - tokens.size() % kBlockTokens));
  return std::move(chain.block_hashes_);
}

Sha256 PrefixChain::HashOf(const Sha256& scope, std::span<const TokenId> tokens) {
  return PrefixChain(scope, tokens).Hash();
}

}  // namespace baton
