// What stands behind include/baton/state_plane.h: pools over one arena, a hand-off client and
// server, and the shelf of offered bundles. Thread rule: thread-safe but for the states of a
// sequence, which belong to one thread at a time.
#ifndef BATON_API_PLANE_H_
#define BATON_API_PLANE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "baton/state_plane.h"
#include "handoff/client.h"
#include "handoff/server.h"
#include "memory/arena.h"
#include "memory/live_record.h"

namespace baton::plane::internal {

// "For ever" in milliseconds overflows a clock of nanoseconds.
inline constexpr auto kTimeoutMax = std::chrono::hours(24 * 365);

// The public form of a status.
plane::Status ToPublic(const absl::Status& status);

struct LeaseState {
  const Layout* layout = nullptr;
  StateLease slot;
  std::vector<BlockLeaseSet> blocks;  // per group
  std::vector<uint64_t> first;        // number of its first block, counted from token 0
};

struct SequenceState {
  SequenceState(Plane* p, LiveRecord r) : plane(p), record(std::move(r)) {}
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;

  Plane* plane;
  LiveRecord record;
  std::optional<SlotHandle> slot;
  std::vector<std::vector<BlockHandle>> blocks;  // per group, LIVE
  std::vector<uint64_t> first;                   // per group: what its window has left behind
};

// A sealed bundle. Frees its units when nobody holds it.
struct Offered {
  Offered(Plane* p, LiveRecord r) : plane(p), record(std::move(r)) {}
  ~Offered();

  Plane* plane;
  LiveRecord record;
  Seal seal;
  std::vector<std::vector<Digest128>> block_digests;
  std::optional<SlotHandle> slot;
  std::vector<std::vector<BlockHandle>> blocks;
  std::vector<uint64_t> first;

  Mutex mu;
  CondVar changed;
  uint64_t released BATON_GUARDED_BY(mu) = 0;  // by peers that pulled it
};

class Plane final : public BundleProvider {
 public:
  static absl::StatusOr<std::unique_ptr<Plane>> Create(const Options& options);
  static absl::StatusOr<uint64_t> MemoryBytes(const Options& options);
  ~Plane() override;

  std::vector<std::string> endpoints() const { return server_->endpoints(); }
  absl::StatusOr<std::unique_ptr<SequenceState>> Begin(std::string_view tenant);
  absl::Status Extend(SequenceState* sequence, uint64_t tokens);
  absl::StatusOr<std::unique_ptr<LeaseState>> Pin(const SequenceState& sequence);
  absl::Status Advance(SequenceState* sequence, std::span<const TokenId> tokens);
  absl::StatusOr<std::shared_ptr<Offered>> Seal(std::unique_ptr<SequenceState> sequence);
  void Withdraw(const Offered& offered) BATON_EXCLUDES(mu_);
  absl::Status Verify(const Offered& offered);
  absl::StatusOr<std::unique_ptr<SequenceState>> Pull(const PullOptions& options,
                                                      std::span<const TokenId> tokens);
  void Stop();

  absl::StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                        Instant deadline,
                                                        const CancelToken& cancel) override;

  void Free(const std::optional<SlotHandle>& slot,
            const std::vector<std::vector<BlockHandle>>& blocks);

 private:
  Plane() = default;
  IdentityBase BaseOf(const Sha256& scope) const;
  absl::Status MakeMemory(const Options& options);
  absl::Status Reserve(uint64_t tokens, FillMode fill, SequenceState* sequence);
  void LeaveBehind(SequenceState* sequence);
  absl::Status SealUnits(Offered* offered);
  std::shared_ptr<Offered> Find(const ContentIdentity& identity) BATON_EXCLUDES(mu_);

  MonotonicClock clock_;
  HostDevice device_;
  Layout layout_;
  LocalIdentity self_;
  HandoffStats stats_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<SlotPool> slots_;                 // null without state parts
  std::vector<std::unique_ptr<BlockPool>> blocks_;  // per group
  std::unique_ptr<ConnectorSet> connectors_;
  std::unique_ptr<HandoffClient> client_;
  std::unique_ptr<HandoffServer> server_;
  std::atomic<uint64_t> next_owner_{1};
  std::atomic<uint64_t> next_attempt_{1};
  std::function<void(std::string_view, std::span<const uint32_t>)> on_ask_;
  absl::flat_hash_map<Sha256, std::string> tenants_;  // by scope
  Mutex mu_;
  // By content key. The Offers hold them, two of the same tokens side by side; the shelf only
  // finds.
  absl::flat_hash_map<Sha256, std::vector<std::weak_ptr<Offered>>> shelf_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton::plane::internal

#endif  // BATON_API_PLANE_H_
