// The receiving side of a hand-off: asks a peer for the bundle of one prefix, pulls it into memory
// the caller reserved, verifies it, and leaves every destination unit VERIFIED, or FREE again.
// It plans from its own layout and boundary, never from what the peer offers; it computes nothing,
// retries nothing (the caller does, with a fresh attempt and fresh units) and keeps nothing.
//
//   connect -> HELLO <-> HELLO -> ASK -> (peer computes; BLOCKS -> RESERVED->LANDING -> pull,
//   digest
//   -> NEXT)* -> OFFER -> pull the rest -> LANDED -> verify -> VERIFIED -> RELEASE
//
// Where the plan names several connectors, each has a link of its own beside the conversation's;
// the share of one that dies moves to another, into fresh units.
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
#include "handoff/quarantine.h"
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
  std::string endpoint;  // or a transfer plan (transfer_plan.h)
  Ask ask;               // deadline_ms, early_blocks and join_key are filled by the client
  Instant deadline{};    // of everything, on the client's clock
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
  double early_seconds = 0;   // pulling and digesting blocks while the source computed
  double finish_seconds = 0;  // from the offer to VERIFIED
  uint64_t early_blocks = 0;  // landed before the offer, and part of its bundle
  bool asked = false;         // an ask may have reached the source
  bool offered = false;       // an offer came: the source has computed or found the bundle
  // What the source says it did not have to compute; at most `boundary`. Not verifiable, counted
  // only.
  uint64_t reused_tokens = 0;
  std::string connector;  // "shm+tcp" if several carried bytes
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
  // On ok the VERIFIED units: the request's, or fresh ones where a share has moved. Else empty.
  std::vector<std::vector<BlockHandle>> blocks;
  std::optional<SlotHandle> slot;
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
  bool early_blocks = true;                            // take blocks while the source computes
  // Bytes that may be in quarantine before hand-offs are refused.
  uint64_t quarantine_bytes_max = uint64_t{256} << 20;
  Checks checks;
};

class HandoffClient {
 public:
  explicit HandoffClient(HandoffClientOptions options);

  // On ok every unit of the result is VERIFIED, and those of the request that are not among them
  // are FREE or QUARANTINED. Otherwise every unit is FREE (its handle stale), except those of a
  // connector that could not prove quiet, which are QUARANTINED. A cancel from any thread ends it
  // with kCancelled, at any stage. kNoCapacity while the quarantine is full. Never throws, never
  // crashes on peer bytes.
  PullResult Pull(const PullRequest& request, const CancelToken& cancel);

  // Pull sweeps it too; whoever waits for memory to come back may do so any time.
  Quarantine& quarantine() { return quarantine_; }

 private:
  const HandoffClientOptions options_;
  Quarantine quarantine_;
  std::atomic_flag pool_busy_;
};

}  // namespace baton

#endif  // BATON_HANDOFF_CLIENT_H_
