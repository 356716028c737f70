// The demo's decode worker: `serve` with a connector that lies once.
#ifndef BATON_CLI_DEMO_WORKER_H_
#define BATON_CLI_DEMO_WORKER_H_

#include "cli/serve.h"

namespace baton::cli {

// Serves; on the `swap_handoff`-th hand-off (counted from 1; 0: never) the state parts delivered
// are those of an earlier one.
int RunDemoWorker(const ServeFlags& flags, int swap_handoff);

}  // namespace baton::cli

#endif  // BATON_CLI_DEMO_WORKER_H_
