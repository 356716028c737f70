// Remembers which decode worker ran which token prefix, so that the next turn of a conversation
// goes where its state is. A hint only: a wrong answer costs a hand-off, never a wrong token.
// Thread rule: thread-safe.
#ifndef BATON_SERVER_PREFIX_AFFINITY_H_
#define BATON_SERVER_PREFIX_AFFINITY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/types.h"

namespace baton::server {

class PrefixAffinity {
 public:
  struct Placement {
    size_t worker = 0;
    std::string epoch;  // the worker's incarnation; a restarted one has forgotten
  };

  // Keeps the `entries_max` most recently used prefixes.
  explicit PrefixAffinity(size_t entries_max) : entries_max_(entries_max) {}

  // `tokens` are floored to the grid; fewer than one block is not remembered.
  void Remember(std::span<const TokenId> tokens, std::string_view salt, Placement placement)
      BATON_EXCLUDES(mu_);
  // Placement of the longest remembered prefix of `tokens` that ends on the grid.
  std::optional<Placement> Find(std::span<const TokenId> tokens, std::string_view salt)
      BATON_EXCLUDES(mu_);
  size_t size() const BATON_EXCLUDES(mu_);

 private:
  using Entries = std::list<std::pair<uint64_t, Placement>>;  // most recently used first

  const size_t entries_max_;
  mutable Mutex mu_;
  Entries entries_ BATON_GUARDED_BY(mu_);
  absl::flat_hash_map<uint64_t, Entries::iterator> by_key_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::server

#endif  // BATON_SERVER_PREFIX_AFFINITY_H_
