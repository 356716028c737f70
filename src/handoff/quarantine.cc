#include "handoff/quarantine.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"

namespace baton {

void Quarantine::Add(QuarantinedRange range,
                     std::shared_ptr<WritersLeft> writers,
                     std::function<Status()> release) {
  MutexLock lock(&mu_);
  entries_.push_back({std::move(range), std::move(writers), std::move(release)});
}

size_t Quarantine::Sweep() {
  std::vector<Entry> quiet;
  {
    MutexLock lock(&mu_);
    for (size_t i = 0; i < entries_.size();) {
      if (entries_[i].writers == nullptr || !entries_[i].writers->Quiet()) {
        ++i;
        continue;
      }
      quiet.push_back(std::move(entries_[i]));
      entries_[i] = std::move(entries_.back());
      entries_.pop_back();
    }
  }
  for (Entry& entry : quiet)
    if (const Status status = entry.release(); !status.ok())
      LogError(absl::StrCat("quarantined range not given back: ", status.message()));
  return quiet.size();
}

Status Quarantine::Admit() {
  Sweep();
  MutexLock lock(&mu_);
  uint64_t bytes = 0;
  std::set<std::string> connectors;
  for (const Entry& entry : entries_) {
    bytes += entry.range.bytes;
    connectors.insert(entry.range.connector);
  }
  if (bytes < bytes_max_) return absl::OkStatus();
  return Reject(Reason::kNoCapacity,
                absl::StrCat("quarantine: ", bytes, " bytes may still be written to by ",
                             absl::StrJoin(connectors, ", "), ", the cap is ", bytes_max_,
                             "; no hand-off begins until some are proven quiet"));
}

uint64_t Quarantine::bytes() const {
  MutexLock lock(&mu_);
  uint64_t bytes = 0;
  for (const Entry& entry : entries_) bytes += entry.range.bytes;
  return bytes;
}

bool Quarantine::MayShrink() const {
  MutexLock lock(&mu_);
  return std::any_of(entries_.begin(), entries_.end(),
                     [](const Entry& entry) { return entry.writers != nullptr; });
}

std::vector<QuarantinedRange> Quarantine::ranges() const {
  MutexLock lock(&mu_);
  std::vector<QuarantinedRange> out;
  out.reserve(entries_.size());
  for (const Entry& entry : entries_) out.push_back(entry.range);
  return out;
}

}  // namespace baton
