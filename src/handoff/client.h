// The receiving side of a hand-off: asks a peer for the bundle of one prefix, pulls it into memory
// the caller reserved, verifies it, and leaves every destination unit VERIFIED, or FREE again.
// It plans from its own layout and boundary, never from what the peer offers; it computes nothing,
// retries nothing (the caller does, with a fresh attempt and fresh units) and keeps nothing.
//
//   connect -> HELLO <-> HELLO -> ASK -> (peer computes) -> OFFER -> RESERVED->LANDING -> pull
//   -> LANDED -> verify -> VERIFIED -> RELEASE
//
// Thread rule: Pull blocks and may run on many threads at once; units of one Pull belong to it
// until it returns.
#ifndef BATON_HANDOFF_CLIENT_H_
#define BATON_HANDOFF_CLIENT_H_

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "connector/connectors.h"
#include "handoff/ask.h"
#include "handoff/checks.h"
#include "handoff/stats.h"
#include "identity/seal.h"
#include "memory/device.h"
#include "memory/pool.h"

namespace baton {

// The receiver's pools. They outlive whoever holds this.
struct BundlePools {
  SlotPool* slots = nullptr;       // null iff the layout has no state
  std::vector<BlockPool*> blocks;  // one per KV group
};

struct PullRequest {
  std::string endpoint;
  Ask ask;             // deadline_ms is filled from `deadline`
  Instant deadline{};  // of everything, on the client's clock
  // Per group, BlockCount(group, boundary) RESERVED blocks (FillMode::kGapsOnly suffices).
  std::vector<std::vector<BlockHandle>> blocks;
  std::optional<SlotHandle> slot;  // RESERVED; set iff the layout has state
};

struct PullReport {
  StateId state_id;
  uint64_t boundary = 0;
  uint64_t parts = 0;
  uint64_t kv_bytes = 0;     // landed
  uint64_t state_bytes = 0;  // landed
  uint64_t planned = 0;      // bytes over all parts; equal when verified
  uint64_t posted = 0;
  uint64_t landed = 0;
  double connect_seconds = 0;  // connect and hello
  double wait_seconds = 0;     // ask to offer
  double pull_seconds = 0;
  double verify_seconds = 0;
  // What the source says it did not have to compute; at most `boundary`. Not verifiable, counted
  // only.
  uint64_t reused_tokens = 0;
  std::string connector;
  NodeId source_node;
  Epoch source_epoch;
  Seal seal;
  std::vector<std::vector<Digest128>> block_digests;
};

// `report` is filled as far as the pull got, also when it failed. `status` carries a Reason
// whenever a peer, a connector or a check refused; InvalidArgument only for a bad request.
struct PullResult {
  Status status;
  PullReport report;
};

struct HandoffClientOptions {
  LocalIdentity self;
  BundlePools pools;
  const Clock* clock = nullptr;
  const Device* device = nullptr;
  const ConnectorSet* connectors = nullptr;
  HandoffStats* stats = nullptr;                       // may be null
  ThreadPool* verify_pool = nullptr;                   // may be null: verify on the calling thread
  Duration connect_timeout = std::chrono::seconds(5);  // connect and hello
  Checks checks;
};

class HandoffClient {
 public:
  explicit HandoffClient(HandoffClientOptions options);

  // On ok every unit of the request is VERIFIED. Otherwise every unit is FREE (its handle stale),
  // except those of a connector that could not prove quiet, which are QUARANTINED. A cancel from
  // any thread ends it with kCancelled, at any stage. Never throws, never crashes on peer bytes.
  PullResult Pull(const PullRequest& request, const CancelToken& cancel);

 private:
  const HandoffClientOptions options_;
  std::atomic_flag pool_busy_;
};

}  // namespace baton

#endif  // BATON_HANDOFF_CLIENT_H_
