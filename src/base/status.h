// Status helpers and the reason codes of rejected state. A Reason exists only where a caller can
// act on it: it is a metric label, a drill result, an HTTP error code. The text of a rejection
// names part, expected and found.
#ifndef BATON_BASE_STATUS_H_
#define BATON_BASE_STATUS_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace baton {

using absl::Status;
using absl::StatusOr;

// Why a state, a peer or an offer was refused. Stable snake_case names: ReasonName().
enum class Reason {
  kIdentityMismatch,     // sealed content identity is not the one derived from own tokens
  kModelMismatch,        // fingerprint of weights, config or adapter differs
  kLayoutMismatch,       // part table, dtype, axis order or numerics tag differs
  kScopeMismatch,        // tenant salt differs
  kBoundaryMismatch,     // right prefix, other number of tokens
  kAttemptMismatch,      // offer echoes another attempt
  kEpochMismatch,        // peer restarted since the ask
  kStateIdMismatch,      // part or seal of another bundle
  kDigestMismatch,       // bytes are not the sealed ones for this identity, layer, component
  kBlockDigestMismatch,  // same for a KV block, or the root over the blocks
  kMissingPart,          // an expected part was not offered or not landed
  kUnknownPart,          // a part that the layout does not have
  kShortTransfer,        // landed bytes != planned bytes
  kNonFinite,            // NaN or infinity in a verified part
  kMalformed,            // record fails its checksum, bounds or version
  kDigestAlgorithm,      // peers differ in digest algorithm, or a digest is absent
  kProtocolVersion,      // peers differ in protocol version
  kStaleHandle,          // destination or source handle is no longer the holder's
  kLeaseExpired,         // source lease ran out before the pull ended
  kPeerUnavailable,      // connect, send or receive failed, or a deadline passed
  kPeerError,            // the peer answered with an error of its own
  kNoCapacity,           // no block, slot or lease free
  kCancelled,            // the request was cancelled
  kAuditMismatch,        // computed again, the state is not the one that was sealed
};

// "identity_mismatch", ...
std::string_view ReasonName(Reason reason);

// A status (code chosen from the reason) that carries the reason as a payload.
Status Reject(Reason reason, std::string_view message);
// The reason carried by `status`, if any.
std::optional<Reason> ReasonOf(const Status& status);

}  // namespace baton

#define BATON_CONCAT_(a, b) a##b
#define BATON_CONCAT(a, b) BATON_CONCAT_(a, b)
#define BATON_RETURN_IF_ERROR(expr)                       \
  do {                                                    \
    if (::absl::Status baton_s_ = (expr); !baton_s_.ok()) \
      return baton_s_;                                    \
  } while (0)
#define BATON_ASSIGN_OR_RETURN(lhs, expr) \
  BATON_ASSIGN_OR_RETURN_(BATON_CONCAT(baton_or_, __LINE__), lhs, expr)
#define BATON_ASSIGN_OR_RETURN_(tmp, lhs, expr) \
  auto tmp = (expr);                            \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()

// A programmer's error; bytes from network, disk or user never reach one.
#define BATON_CHECK(cond)                                          \
  do {                                                             \
    if (!(cond)) ::baton::CheckFailed(#cond, __FILE__, __LINE__);  \
  } while (0)

namespace baton {
[[noreturn]] void CheckFailed(const char* cond, const char* file, int line);
}

#endif  // BATON_BASE_STATUS_H_
