// The serving side of a hand-off: listens, compares identities, hands asks to the engine's
// BundleProvider, grants exactly the offered parts to exactly that peer, and lets go when the peer
// releases, leaves, or the source lease runs out on this process's monotonic clock. One thread per
// conversation, bounded, and one per listener that waits; no thread wakes while nothing happens.
// Garbage on the port is a counter, a log line and a closed connection. It moves no bytes itself
// (connectors do) and judges no content. Thread rule: thread-safe; Start once, Stop from any thread
// but a conversation's.
#ifndef BATON_HANDOFF_SERVER_H_
#define BATON_HANDOFF_SERVER_H_

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "connector/connectors.h"
#include "handoff/ask.h"
#include "handoff/checks.h"
#include "handoff/provider.h"
#include "handoff/stats.h"

namespace baton {

struct HandoffServerOptions {
  LocalIdentity self;
  const Clock* clock = nullptr;
  std::vector<SourceRegion> regions;          // the arenas bundles lie in; outlive the server
  InprocHub* hub = nullptr;                   // for inproc listeners
  ListenFn listen = Listen;                   // another transport, as the simulator's
  HandoffStats* stats = nullptr;              // may be null
  size_t conversations_max = 256;             // more are closed at once, counted
  Duration lease = std::chrono::seconds(30);  // offer to release
  Duration hello_timeout = std::chrono::seconds(5);         // accept to ask
  Duration provide_timeout_max = std::chrono::minutes(10);  // bound on a peer's deadline_ms
  // Blocks are offered while the rest is computed, to peers that take them.
  bool early_blocks = true;
  Checks checks;
};

class HandoffServer {
 public:
  // `provider` outlives the server.
  HandoffServer(HandoffServerOptions options, BundleProvider* provider);
  ~HandoffServer();  // Stop()
  HandoffServer(const HandoffServer&) = delete;
  HandoffServer& operator=(const HandoffServer&) = delete;

  // Before Start. Binds at once; errors as Listen (connectors.h).
  Status AddListener(const std::string& endpoint);
  // Endpoints as bound (port 0 replaced), in the order added; the same after Stop.
  std::vector<std::string> endpoints() const;
  void Start();
  // Refuses new peers, cancels every Provide, closes every link, joins every thread. Every
  // ServedBundle has been destroyed when it returns. Repeatable.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace baton

#endif  // BATON_HANDOFF_SERVER_H_
