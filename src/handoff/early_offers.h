// The source's side of a hand-off while its bundle is still computed: a thread that notices when
// the peer leaves, and offers blocks as they become final. It speaks only when it is the source's
// turn: after each BLOCKS it serves reads until the peer's NEXT. Internal to the server.
//
// Thread rule: Add and Withdraw as BlockStream; the rest on the conversation's thread. The engine
// may hold the stream longer than the conversation lives: after End it touches nothing.
#ifndef BATON_HANDOFF_EARLY_OFFERS_H_
#define BATON_HANDOFF_EARLY_OFFERS_H_

#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/cancel.h"
#include "base/mutex.h"
#include "base/status.h"
#include "connector/connector.h"
#include "handoff/link_group.h"
#include "handoff/provider.h"
#include "handoff/server.h"

namespace baton {

class EarlyOffers final : public BlockStream {
 public:
  struct Context {
    const HandoffServerOptions* options = nullptr;
    SourceLink* link = nullptr;
    LinkGroup* group = nullptr;
    Attempt attempt;
    bool welcome = false;  // the peer takes blocks early
    Instant deadline{};    // of the peer's patience
    CancelSource cancel;   // stopped when the peer has left, or broken the rules
  };
  explicit EarlyOffers(Context context);
  ~EarlyOffers() override;

  void Add(StateId state_id, std::vector<EarlyBlock> blocks) override BATON_EXCLUDES(mu_);
  void Withdraw(std::function<void()> released) override BATON_EXCLUDES(mu_);

  // No more blocks. Waits until it is the source's turn, at most one batch; then the caller may
  // send on the link. Not ok if the peer has left, its lease ran out, or it answered with an error.
  Status Over() BATON_EXCLUDES(mu_);
  // Joins the thread: it no longer waits on the link. After Over.
  void Join();
  // Drops what is still leased; what is added later is dropped at once. Repeatable. The caller has
  // revoked the grants.
  void End() BATON_EXCLUDES(mu_);

  // After Over: what is granted under state_id().
  const StateId& state_id() const { return state_id_; }
  const absl::flat_hash_map<PartKey, ExtentAddress>& granted() const { return granted_; }
  void ForgetGranted() { granted_.clear(); }

 private:
  void Main();
  // What the peer is to be told or rid of; false once there is nothing more to say.
  bool SpeakAll() BATON_EXCLUDES(mu_);
  Status Offer(StateId state_id, std::vector<EarlyBlock> blocks);
  void Drop();
  void Fail(Status status) BATON_EXCLUDES(mu_);

  const Context c_;
  // Of the thread; of the conversation after Over.
  StateId state_id_;
  absl::flat_hash_map<PartKey, ExtentAddress> granted_;
  std::vector<EarlyBlock> held_;

  Mutex mu_;
  CondVar turn_;
  bool over_ BATON_GUARDED_BY(mu_) = false;
  bool ended_ BATON_GUARDED_BY(mu_) = false;
  bool peers_turn_ BATON_GUARDED_BY(mu_) = false;
  Status status_ BATON_GUARDED_BY(mu_);
  StateId queued_id_ BATON_GUARDED_BY(mu_);
  std::vector<EarlyBlock> queued_ BATON_GUARDED_BY(mu_);
  std::vector<std::function<void()>> withdrawals_ BATON_GUARDED_BY(mu_);
  std::thread thread_;  // last: it uses the others
};

}  // namespace baton

#endif  // BATON_HANDOFF_EARLY_OFFERS_H_
