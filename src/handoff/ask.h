// What two nodes tell each other before bytes move: who they are, and what one wants from the
// other. Plain values; the wire form is wire.h. Thread rule: plain values.
#ifndef BATON_HANDOFF_ASK_H_
#define BATON_HANDOFF_ASK_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/types.h"
#include "identity/content_identity.h"
#include "identity/digest.h"
#include "identity/layout.h"

namespace baton {

inline constexpr uint32_t kHandoffProtocolVersion = 2;
// Longest token history of one ask.
inline constexpr uint64_t kAskTokensMax = uint64_t{1} << 20;
inline constexpr size_t kAskTextMax = 1024;  // of an endpoint or a label

// What a node is to its peers. Compared at connect: protocol, digest algorithm and key, layout,
// model; a difference is refused with both values printed.
struct LocalIdentity {
  NodeId node;
  Epoch epoch;  // of this incarnation of the process
  Sha256 model;
  const Layout* layout = nullptr;  // outlives whoever holds the identity
  Digester digester;               // algorithm and key
  uint32_t protocol = kHandoffProtocolVersion;
};

// "I hold the bundle of this prefix at that boundary myself and serve it there": lets the peer
// start from the asker's deeper checkpoint instead of computing. Only a hint; what is pulled
// through it is verified like everything else.
struct PrefixHint {
  uint64_t boundary = 0;  // on the grid, 0 < boundary < the asked one
  std::string endpoint;
  friend bool operator==(const PrefixHint&, const PrefixHint&) = default;
};

// Names a conversation to the further links that carry its bytes; random, known to its two sides.
using JoinKey = StrongBytes<struct JoinKeyTag, 16>;

struct Ask {
  Attempt attempt;           // chosen by the receiver, fresh for every try
  ContentIdentity expected;  // the only bundle the receiver will accept; boundary on the grid, > 0
  std::vector<TokenId> tokens;  // exactly expected.boundary of them
  std::optional<PrefixHint> hint;
  uint64_t deadline_ms = 0;  // how long the receiver will wait for the offer
  std::string label;         // for logs only; names nothing
  bool early_blocks = true;  // blocks may be offered before the bundle is sealed
  JoinKey join_key;          // zero: no further link will come
  friend bool operator==(const Ask&, const Ask&) = default;
};

}  // namespace baton

#endif  // BATON_HANDOFF_ASK_H_
