// The links of one hand-off on the source's side: the first, over which it was asked, and those
// that joined it to carry bytes. What is granted on the first is granted on all; a joined link that
// fails is dropped and harms nothing. Internal to the server. Thread rule: Grant, Revoke and End on
// the conversation's thread (or the one that speaks for it); Serve on the joined link's own; the
// registry is thread-safe.
#ifndef BATON_HANDOFF_LINK_GROUP_H_
#define BATON_HANDOFF_LINK_GROUP_H_

#include <memory>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/cancel.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "connector/connector.h"
#include "handoff/ask.h"

namespace baton {

class LinkGroup {
 public:
  static constexpr size_t kJoinedMax = 8;

  // `first` outlives it.
  explicit LinkGroup(SourceLink* first) : first_(first) {}

  // On the first link, and on every joined one now and later. Address of each part, as Grant.
  StatusOr<std::vector<ExtentAddress>> Grant(std::span<const GrantedPart> parts)
      BATON_EXCLUDES(mu_);
  // From its return on nothing granted so far is read for the peer on any link. Joined links stay,
  // for what is granted later; only one that is still being read from after a while, which a peer
  // does that speaks out of turn, is closed for it and its thread waited for.
  void Revoke() BATON_EXCLUDES(mu_) { RevokeJoined(false); }
  // Revoke, and nobody joins any more; every joined link is closed.
  void End() BATON_EXCLUDES(mu_);

  // Grants everything granted so far on `link`, answers kJoined and serves reads until the link
  // ends or the group closes it. kLeaseExpired if the group has ended.
  Status Serve(SourceLink* link, Instant deadline) BATON_EXCLUDES(mu_);
  size_t joined() const BATON_EXCLUDES(mu_);

 private:
  void RevokeJoined(bool close_all) BATON_EXCLUDES(mu_);
  // Revokes on the joined links; those on which that could not be done, or all of them.
  std::vector<SourceLink*> StillReading(bool all) BATON_REQUIRES(mu_);
  Status Join(SourceLink* link, Instant deadline) BATON_EXCLUDES(mu_);
  void Leave(SourceLink* link) BATON_EXCLUDES(mu_);

  SourceLink* const first_;
  mutable Mutex mu_;
  CondVar left_;
  bool ended_ BATON_GUARDED_BY(mu_) = false;
  int revoking_ BATON_GUARDED_BY(mu_) = 0;
  std::vector<GrantedPart> granted_ BATON_GUARDED_BY(mu_);
  std::vector<ExtentAddress> addresses_ BATON_GUARDED_BY(mu_);  // of granted_
  std::vector<SourceLink*> joined_ BATON_GUARDED_BY(mu_);
};

// Groups by the key of their ask.
class JoinRegistry {
 public:
  // Ignores the zero key. False if the key is in use: two asks with one key are an attack or a bug.
  bool Add(const JoinKey& key, std::shared_ptr<LinkGroup> group) BATON_EXCLUDES(mu_);
  void Remove(const JoinKey& key) BATON_EXCLUDES(mu_);
  // Waits until somebody asks under this key; null at the deadline or once `cancel` fires.
  std::shared_ptr<LinkGroup> Find(const JoinKey& key,
                                  Instant deadline,
                                  const Clock& clock,
                                  const CancelToken& cancel) BATON_EXCLUDES(mu_);

 private:
  Mutex mu_;
  CondVar added_;
  absl::flat_hash_map<JoinKey, std::shared_ptr<LinkGroup>> groups_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_HANDOFF_LINK_GROUP_H_
