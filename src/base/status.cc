#include "base/status.h"

#include <array>
#include <cstdio>
#include <cstdlib>

#include "absl/strings/cord.h"

namespace baton {
namespace {

constexpr char kReasonUrl[] = "baton/reason";

struct Entry {
  Reason reason;
  std::string_view name;
  absl::StatusCode code;
};

constexpr Entry kEntries[] = {
    {Reason::kIdentityMismatch, "identity_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kModelMismatch, "model_mismatch", absl::StatusCode::kFailedPrecondition},
    {Reason::kLayoutMismatch, "layout_mismatch", absl::StatusCode::kFailedPrecondition},
    {Reason::kScopeMismatch, "scope_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kBoundaryMismatch, "boundary_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kAttemptMismatch, "attempt_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kEpochMismatch, "epoch_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kStateIdMismatch, "state_id_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kDigestMismatch, "digest_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kBlockDigestMismatch, "block_digest_mismatch", absl::StatusCode::kDataLoss},
    {Reason::kMissingPart, "missing_part", absl::StatusCode::kDataLoss},
    {Reason::kUnknownPart, "unknown_part", absl::StatusCode::kDataLoss},
    {Reason::kShortTransfer, "short_transfer", absl::StatusCode::kDataLoss},
    {Reason::kNonFinite, "non_finite", absl::StatusCode::kDataLoss},
    {Reason::kMalformed, "malformed", absl::StatusCode::kInvalidArgument},
    {Reason::kDigestAlgorithm, "digest_algorithm", absl::StatusCode::kFailedPrecondition},
    {Reason::kProtocolVersion, "protocol_version", absl::StatusCode::kFailedPrecondition},
    {Reason::kStaleHandle, "stale_handle", absl::StatusCode::kFailedPrecondition},
    {Reason::kLeaseExpired, "lease_expired", absl::StatusCode::kFailedPrecondition},
    {Reason::kPeerUnavailable, "peer_unavailable", absl::StatusCode::kUnavailable},
    {Reason::kPeerError, "peer_error", absl::StatusCode::kUnavailable},
    {Reason::kNoCapacity, "no_capacity", absl::StatusCode::kResourceExhausted},
    {Reason::kCancelled, "cancelled", absl::StatusCode::kCancelled},
    {Reason::kAuditMismatch, "audit_mismatch", absl::StatusCode::kDataLoss},
};

const Entry& EntryOf(Reason reason) {
  for (const Entry& e : kEntries)
    if (e.reason == reason) return e;
  std::abort();
}

}  // namespace

std::string_view ReasonName(Reason reason) { return EntryOf(reason).name; }

Status Reject(Reason reason, std::string_view message) {
  const Entry& e = EntryOf(reason);
  Status status(e.code, absl::string_view(message.data(), message.size()));
  status.SetPayload(kReasonUrl, absl::Cord(absl::string_view(e.name.data(), e.name.size())));
  return status;
}

std::optional<Reason> ReasonOf(const Status& status) {
  const auto payload = status.GetPayload(kReasonUrl);
  if (!payload.has_value()) return std::nullopt;
  for (const Entry& e : kEntries)
    if (*payload == absl::string_view(e.name.data(), e.name.size())) return e.reason;
  return std::nullopt;
}

void CheckFailed(const char* cond, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: check failed: %s\n", file, line, cond);
  std::abort();
}

}  // namespace baton
