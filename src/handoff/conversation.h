// One peer, from hello to release, on the source's side. Internal to the server.
// Thread rule: Run on one thread; whoever cancels does it through the CancelSource and by closing
// the link.
#ifndef BATON_HANDOFF_CONVERSATION_H_
#define BATON_HANDOFF_CONVERSATION_H_

#include <memory>

#include "base/cancel.h"
#include "base/status.h"
#include "connector/connector.h"
#include "handoff/early_offers.h"
#include "handoff/link_group.h"
#include "handoff/provider.h"
#include "handoff/server.h"
#include "handoff/wire.h"

namespace baton {

class Conversation {
 public:
  // All outlive this. options.stats is set.
  Conversation(const HandoffServerOptions& options,
               BundleProvider* provider,
               SourceLink* link,
               CancelSource cancel,
               JoinRegistry* joins);
  ~Conversation();
  // Returns when the link is of no more use; closes it. Whatever was served has been let go.
  void Run();

 private:
  Status Greet(Instant deadline);
  // The peer asks for a bundle, or joins a hand-off.
  Status Talk(Instant deadline);
  Status JoinOther(const Frame& frame, Instant deadline);
  StatusOr<Ask> ReadAsk(const Frame& frame);
  Status Answer(const Ask& ask);
  Status CheckAsk(const Ask& ask) const;
  StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask);
  StatusOr<Offer> MakeOffer(const Ask& ask, const ServedBundle& bundle);
  Status Serve(const Ask& ask, ServedBundle* bundle);
  ServeEnd EndOf(const Status& served, Instant lease_end) const;
  // Tells the peer, and waits a little until it has hung up, so that the text is not lost.
  void SendError(const Status& status);
  void CountProtocolError(const Status& status);

  const HandoffServerOptions& o_;
  BundleProvider* provider_;
  SourceLink* link_;
  CancelSource cancel_;
  JoinRegistry* joins_;
  const std::shared_ptr<LinkGroup> group_;
  std::shared_ptr<EarlyOffers> early_;  // from the ask on
};

}  // namespace baton

#endif  // BATON_HANDOFF_CONVERSATION_H_
