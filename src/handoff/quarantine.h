// Byte ranges that a writer may still touch after its pull has ended: each with the connector that
// could not prove quiet and the proof to ask it for later. The units stay QUARANTINED in their
// pools, so nobody is given their memory; here is what ends that. At the cap no hand-off is begun.
// It does no I/O and keeps no clock. Thread rule: thread-safe.
#ifndef BATON_HANDOFF_QUARANTINE_H_
#define BATON_HANDOFF_QUARANTINE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"
#include "connector/connector.h"

namespace baton {

struct QuarantinedRange {
  uint32_t pool = 0;
  uint64_t offset = 0;  // from the start of the arena
  uint64_t bytes = 0;
  std::string connector;
  friend bool operator==(const QuarantinedRange&, const QuarantinedRange&) = default;
};

class Quarantine {
 public:
  explicit Quarantine(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // `release` gives the unit back to its pool; called once, when `writers` has fallen silent. Null
  // `writers`: never. Accepts beyond the cap: memory that may be written to cannot be refused.
  void Add(QuarantinedRange range,
           std::shared_ptr<WritersLeft> writers,
           std::function<Status()> release) BATON_EXCLUDES(mu_);
  // Asks every proof; gives back what is proven quiet. How many ranges that were.
  size_t Sweep() BATON_EXCLUDES(mu_);
  // Sweeps; kNoCapacity naming the connectors if the ranges reach the cap.
  Status Admit() BATON_EXCLUDES(mu_);
  uint64_t bytes() const BATON_EXCLUDES(mu_);
  // Some range has a proof that may come yet.
  bool MayShrink() const BATON_EXCLUDES(mu_);
  std::vector<QuarantinedRange> ranges() const BATON_EXCLUDES(mu_);

 private:
  struct Entry {
    QuarantinedRange range;
    std::shared_ptr<WritersLeft> writers;
    std::function<Status()> release;
  };
  const uint64_t bytes_max_;
  mutable Mutex mu_;
  std::vector<Entry> entries_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_HANDOFF_QUARANTINE_H_
