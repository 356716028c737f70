// What the source's engine gives the hand-off server: a sealed bundle for an ask, pinned in place.
// The server decides nothing about content: it compares identities, grants exactly the bundle's
// parts to one peer, and lets go. Thread rule: Provide is called from many threads at once.
#ifndef BATON_HANDOFF_PROVIDER_H_
#define BATON_HANDOFF_PROVIDER_H_

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/cancel.h"
#include "base/clock.h"
#include "base/status.h"
#include "handoff/ask.h"
#include "identity/seal.h"
#include "memory/pool.h"

namespace baton {

// Why a served bundle is let go.
enum class ServeEnd { kReleased, kLinkClosed, kLeaseExpired, kRefused, kStopped };
// "released", ...
std::string_view ServeEndName(ServeEnd end);

// A bundle on offer to one peer. Its leases pin every unit, so the addresses in the offer hold
// until it is destroyed. The server calls OnEnd once and destroys it when the peer has released it,
// the link is closed, or the source lease has run out; nothing reads through it afterwards. An
// engine derives from it to drop its own references in the destructor.
class ServedBundle {
 public:
  ServedBundle() = default;
  virtual ~ServedBundle() = default;
  ServedBundle(const ServedBundle&) = delete;
  ServedBundle& operator=(const ServedBundle&) = delete;
  // On kLeaseExpired the owner frees the units (bumping their generation) if it keeps them for
  // this peer only. Called on the conversation's thread, before the destructor.
  virtual void OnEnd(ServeEnd end) { (void)end; }

  Seal seal;
  // Per group, one digest per block of the bundle, ascending.
  std::vector<std::vector<Digest128>> block_digests;
  // Per group, one lease (LeaseFor::kSend) per block, ascending.
  std::vector<std::vector<BlockLease>> blocks;
  // Not held iff the layout has no state.
  StateLease slot;
  // Tokens that were not computed for this ask: a checkpoint's, or a bundle pulled back.
  uint64_t reused_tokens = 0;
};

// A KV block that is final and sealed while later tokens of its bundle are still computed. The
// lease (LeaseFor::kSend) pins it for the peer.
struct EarlyBlock {
  size_t group = 0;
  uint64_t block = 0;  // counted from token 0; one that the bundle will have
  Digest128 digest;
  BlockLease lease;
};

// Takes blocks of one ask's bundle as they become final. Calls never wait for the peer. Once the
// conversation is over, what is added is let go at once.
// Thread rule: called by one thread at a time, any.
class BlockStream {
 public:
  virtual ~BlockStream() = default;
  // `state_id` is the name under which the bundle will be sealed; the same in every call until
  // Withdraw.
  virtual void Add(StateId state_id, std::vector<EarlyBlock> blocks) = 0;
  // The blocks added so far will be in no bundle, and their memory is wanted back: they are revoked
  // as soon as the peer is not reading them. `released` is called once, from any thread, when the
  // last lease has been dropped.
  virtual void Withdraw(std::function<void()> released) = 0;
};

class BundleProvider {
 public:
  virtual ~BundleProvider() = default;
  // Blocks until the bundle the ask names exists here, computing it if need be. `cancel` fires
  // when the peer has gone or the server stops. The ask has been checked: identity of this model
  // and layout, tokens that hash to its prefix. Errors travel to the peer with their reason.
  virtual StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                          Instant deadline,
                                                          const CancelToken& cancel) = 0;
  // The same, with blocks handed to `stream` while the rest is computed. A provider that has
  // nothing to hand over early need not care.
  virtual StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
      const Ask& ask,
      Instant deadline,
      const CancelToken& cancel,
      const std::shared_ptr<BlockStream>& stream) {
    (void)stream;
    return Provide(ask, deadline, cancel);
  }
};

}  // namespace baton

#endif  // BATON_HANDOFF_PROVIDER_H_
