// Moves the parts of one bundle over one or several links into their destinations, and keeps what
// has landed by name: a part is found by (state-id, key), never by position, so order and
// repetition of offers do not matter. When a link dies, its share moves to fresh memory and another
// link. It judges no content. Internal to the client. Thread rule: one thread; CloseAll from any.
#ifndef BATON_HANDOFF_TRANSFER_H_
#define BATON_HANDOFF_TRANSFER_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/mutex.h"
#include "base/status.h"
#include "connector/connector.h"
#include "handoff/checks.h"
#include "handoff/destination.h"
#include "handoff/parts.h"
#include "handoff/stats.h"
#include "handoff/verify.h"

namespace baton {

// How far one expected part has come.
struct PartProgress {
  BundlePart part;
  bool posted = false;  // asked of a connector, under the present state-id
  uint64_t landed = 0;  // bytes, as the connector said
  ExtentAddress address;
  size_t link = 0;                   // that was asked for it
  uint32_t given = 0;                // links that were ever given the unit it has now, as bits
  std::optional<PartDigest> digest;  // where it landed, if computed already
  bool have() const { return posted; }
};

class Transfer {
 public:
  // A part and where the source says it lies.
  struct Wanted {
    size_t index;  // into progress()
    ExtentAddress address;
  };

  Transfer(std::vector<BundlePart> parts,
           Destination* destination,
           const Clock* clock,
           HandoffStats* stats,
           const Checks& checks);

  // Link 0 is the conversation's; it carries what no other one does. Those added later carry bytes
  // only.
  void AddLink(Connector* connector, std::unique_ptr<Link> link) BATON_EXCLUDES(mu_);
  // Prefers this link for KV blocks, or for state parts. Link 0 unless said otherwise.
  void RouteKv(size_t link) { kv_link_ = link; }
  void RouteState(size_t link) { state_link_ = link; }
  // A connector that could not even be connected: a failover from the start.
  void CountFailover(std::string_view connector);
  Link* first_link() const;
  void CloseAll() BATON_EXCLUDES(mu_);

  // Forgets what has landed if it landed under another name.
  void Under(const StateId& state_id);
  // Pulls the parts, and again what a link that died meanwhile had brought. On ok every one of them
  // was posted and its connector reported success; how much landed is progress(). Errors: the last
  // link's, kNoCapacity if there is no fresh memory for a share that moves.
  Status Fetch(const std::vector<Wanted>& wanted, Instant deadline);

  std::vector<PartProgress>& progress() { return progress_; }
  // Null for a key that is no part of this bundle.
  const size_t* Find(PartKey key) const;
  // "shm", "shm+tcp": every connector that has carried bytes.
  std::string ConnectorNames() const;
  double seconds() const { return seconds_; }

 private:
  struct Way {
    Connector* connector = nullptr;
    std::unique_ptr<Link> link;
    bool dead = false;
  };
  // Nothing if every link is dead.
  std::optional<size_t> LinkFor(const BundlePart& part) const;
  Status FetchOver(size_t way,
                   const std::vector<size_t>& share,
                   Instant deadline,
                   std::set<size_t>* again);
  Status MoveShare(size_t way,
                   const std::vector<size_t>& share,
                   const PullOutcome& outcome,
                   std::set<size_t>* again);

  Destination* const destination_;
  const Clock* const clock_;
  HandoffStats* const stats_;  // may be null
  const Checks checks_;
  std::vector<PartProgress> progress_;
  absl::flat_hash_map<PartKey, size_t> index_;
  StateId state_id_;
  size_t kv_link_ = 0;
  size_t state_link_ = 0;
  double seconds_ = 0;
  mutable Mutex mu_;  // of ways_' growth, for CloseAll
  std::vector<Way> ways_;
};

}  // namespace baton

#endif  // BATON_HANDOFF_TRANSFER_H_
