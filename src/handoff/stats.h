// Counters of the hand-off, for the server to export. Written with relaxed atomics where things
// happen; a reader sees each counter exactly, not all at one instant.
// Thread rule: thread-safe.
#ifndef BATON_HANDOFF_STATS_H_
#define BATON_HANDOFF_STATS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace baton {

inline constexpr size_t kReasonCount = static_cast<size_t>(Reason::kCancelled) + 1;

// What each connector did for this receiver. Thread rule: thread-safe.
class ConnectorCounters {
 public:
  struct Counts {
    uint64_t pulls = 0;         // of shares, by a connector's Pull
    uint64_t bytes = 0;         // landed, verified or not
    uint64_t failovers = 0;     // times it died, or was not there, and another one took over
    uint64_t shares_moved = 0;  // parts that another one brought in its place
  };
  void Add(std::string_view connector, const Counts& more) BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    Counts& c = by_name_[std::string(connector)];
    c.pulls += more.pulls;
    c.bytes += more.bytes;
    c.failovers += more.failovers;
    c.shares_moved += more.shares_moved;
  }
  std::map<std::string, Counts> Snapshot() const BATON_EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return by_name_;
  }

 private:
  mutable Mutex mu_;
  std::map<std::string, Counts> by_name_ BATON_GUARDED_BY(mu_);
};

struct HandoffStats {
  using Counter = std::atomic<uint64_t>;

  // Receiver.
  Counter pulls{0};     // begun
  Counter verified{0};  // ended with a VERIFIED bundle
  Counter kv_bytes{0};  // landed and verified
  Counter state_bytes{0};
  Counter quarantined_units{0};
  Counter early_blocks{0};  // landed while the source still computed
  ConnectorCounters connectors;
  Counter wait_nanoseconds{0};  // ask to offer, of verified ones
  Counter pull_nanoseconds{0};  // moving bytes
  Counter verify_nanoseconds{0};
  std::array<Counter, kReasonCount> rejects{};  // by Reason; pulls that failed

  // Source.
  Counter conversations{0};  // accepted
  Counter conversations_now{0};
  Counter conversations_refused{0};  // above the bound
  Counter offers{0};
  Counter block_offers{0};  // BLOCKS frames sent
  Counter blocks_offered{0};
  Counter links_joined{0};
  Counter released{0};
  Counter leases_expired{0};
  Counter protocol_errors{0};                    // bytes on the port that are no conversation
  std::array<Counter, kReasonCount> refusals{};  // by Reason; asks answered with an error

  void CountReject(const Status& status) { Count(&rejects, status); }
  void CountRefusal(const Status& status) { Count(&refusals, status); }

 private:
  // A status without a reason counts as peer_error.
  static void Count(std::array<Counter, kReasonCount>* by, const Status& status) {
    const Reason reason = ReasonOf(status).value_or(Reason::kPeerError);
    (*by)[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }
};

}  // namespace baton

#endif  // BATON_HANDOFF_STATS_H_
