#include "handoff/link_group.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "connector/revocable.h"
#include "handoff/wire.h"

namespace baton {
namespace {

// Bounds how late a simulated clock, or a cancel, is noticed.
constexpr Duration kWaitSlice = std::chrono::milliseconds(20);
// How long a link that is being read from may take to end that before it is closed.
constexpr Duration kRevokePause = std::chrono::milliseconds(1);
constexpr int kRevokeTries = 100;

bool SameAddress(const ExtentAddress& a, const ExtentAddress& b) {
  return a.region == b.region && a.offset == b.offset && a.bytes == b.bytes;
}

// An offer travels on the first link only, so its addresses must hold on every other.
Status GrantAt(SourceLink* link,
               std::span<const GrantedPart> parts,
               std::span<const ExtentAddress> addresses) {
  BATON_ASSIGN_OR_RETURN(const auto granted, link->Grant(parts));
  if (!std::equal(granted.begin(), granted.end(), addresses.begin(), addresses.end(), SameAddress))
    return absl::InternalError(link->peer() + ": gives other addresses than the first link");
  return absl::OkStatus();
}

}  // namespace

StatusOr<std::vector<ExtentAddress>> LinkGroup::Grant(std::span<const GrantedPart> parts) {
  BATON_ASSIGN_OR_RETURN(std::vector<ExtentAddress> addresses, first_->Grant(parts));
  MutexLock lock(&mu_);
  for (SourceLink* link : joined_)
    if (!GrantAt(link, parts, addresses).ok()) link->Close();
  granted_.insert(granted_.end(), parts.begin(), parts.end());
  addresses_.insert(addresses_.end(), addresses.begin(), addresses.end());
  return addresses;
}

void LinkGroup::RevokeJoined(bool close_all) {
  {
    MutexLock lock(&mu_);
    granted_.clear();
    addresses_.clear();
    ++revoking_;  // who comes meanwhile waits: nobody would close it
    // What a peer has just finished reading, a link's thread may not have noticed yet.
    std::vector<SourceLink*> closing = StillReading(close_all);
    for (int i = 0; i < kRevokeTries && !close_all && !closing.empty(); ++i) {
      left_.WaitFor(&mu_, kRevokePause);
      closing = StillReading(close_all);
    }
    for (SourceLink* link : closing) link->Close();
    const auto here = [&](SourceLink* link) BATON_REQUIRES(mu_) {
      return std::find(joined_.begin(), joined_.end(), link) != joined_.end();
    };
    while (std::any_of(closing.begin(), closing.end(), here)) left_.Wait(&mu_);
    --revoking_;
    left_.NotifyAll();
  }
  first_->RevokeAll();
}

std::vector<SourceLink*> LinkGroup::StillReading(bool all) {
  std::vector<SourceLink*> reading;
  for (SourceLink* link : joined_) {
    auto* const revocable = all ? nullptr : dynamic_cast<Revocable*>(link);
    if (revocable == nullptr || !revocable->RevokeWhileServing()) reading.push_back(link);
  }
  return reading;
}

void LinkGroup::End() {
  {
    MutexLock lock(&mu_);
    ended_ = true;
  }
  RevokeJoined(true);
}

Status LinkGroup::Serve(SourceLink* link, Instant deadline) {
  BATON_RETURN_IF_ERROR(Join(link, deadline));
  StatusOr<Frame> frame = link->ServeUntilFrame(deadline);
  Leave(link);
  BATON_RETURN_IF_ERROR(frame.status());
  if (frame->type == FrameType::kRelease) return absl::OkStatus();
  return Reject(Reason::kMalformed,
                absl::StrCat("frame of type ", static_cast<int>(frame->type), " on a joined link"));
}

Status LinkGroup::Join(SourceLink* link, Instant deadline) {
  Status status;
  {
    MutexLock lock(&mu_);
    while (revoking_ > 0 && !ended_) left_.Wait(&mu_);
    if (ended_) return Reject(Reason::kLeaseExpired, "the hand-off to join has ended");
    if (joined_.size() >= kJoinedMax)
      return Reject(Reason::kNoCapacity,
                    absl::StrCat("already ", joined_.size(), " links of one hand-off"));
    if (!granted_.empty()) BATON_RETURN_IF_ERROR(GrantAt(link, granted_, addresses_));
    joined_.push_back(link);
  }
  status = link->Send(JoinedFrame(), deadline);
  if (!status.ok()) Leave(link);
  return status;
}

void LinkGroup::Leave(SourceLink* link) {
  link->RevokeAll();
  MutexLock lock(&mu_);
  std::erase(joined_, link);
  left_.NotifyAll();
}

size_t LinkGroup::joined() const {
  MutexLock lock(&mu_);
  return joined_.size();
}

bool JoinRegistry::Add(const JoinKey& key, std::shared_ptr<LinkGroup> group) {
  if (key.is_zero()) return true;
  MutexLock lock(&mu_);
  if (!groups_.emplace(key, std::move(group)).second) return false;
  added_.NotifyAll();
  return true;
}

void JoinRegistry::Remove(const JoinKey& key) {
  MutexLock lock(&mu_);
  groups_.erase(key);
}

std::shared_ptr<LinkGroup> JoinRegistry::Find(const JoinKey& key,
                                              Instant deadline,
                                              const Clock& clock,
                                              const CancelToken& cancel) {
  MutexLock lock(&mu_);
  for (;;) {
    const auto it = groups_.find(key);
    if (it != groups_.end()) return it->second;
    const Duration left = deadline - clock.Now();
    if (left <= Duration::zero() || cancel.stop_requested()) return nullptr;
    added_.WaitFor(&mu_, std::min<Duration>(left, kWaitSlice));
  }
}

}  // namespace baton
