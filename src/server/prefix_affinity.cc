#include "server/prefix_affinity.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <vector>

namespace baton::server {
namespace {

// Keys of all grid boundaries of `tokens`, shallowest first.
std::vector<uint64_t> Keys(std::span<const TokenId> tokens, std::string_view salt) {
  std::vector<uint64_t> keys;
  uint64_t key = XXH3_64bits(salt.data(), salt.size());
  for (size_t at = 0; at + kBlockTokens <= tokens.size(); at += kBlockTokens) {
    key = XXH3_64bits_withSeed(tokens.data() + at, kBlockTokens * sizeof(TokenId), key);
    keys.push_back(key);
  }
  return keys;
}

}  // namespace

void PrefixAffinity::Remember(std::span<const TokenId> tokens,
                              std::string_view salt,
                              Placement placement) {
  const std::vector<uint64_t> keys = Keys(tokens, salt);
  if (keys.empty()) return;
  MutexLock lock(&mu_);
  if (const auto it = by_key_.find(keys.back()); it != by_key_.end()) entries_.erase(it->second);
  entries_.emplace_front(keys.back(), std::move(placement));
  by_key_[keys.back()] = entries_.begin();
  if (entries_.size() > entries_max_) {
    by_key_.erase(entries_.back().first);
    entries_.pop_back();
  }
}

std::optional<PrefixAffinity::Placement> PrefixAffinity::Find(std::span<const TokenId> tokens,
                                                              std::string_view salt) {
  const std::vector<uint64_t> keys = Keys(tokens, salt);
  MutexLock lock(&mu_);
  for (auto key = keys.rbegin(); key != keys.rend(); ++key) {
    const auto it = by_key_.find(*key);
    if (it == by_key_.end()) continue;
    entries_.splice(entries_.begin(), entries_, it->second);
    return it->second->second;
  }
  return std::nullopt;
}

size_t PrefixAffinity::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace baton::server
