// The end of every serving subcommand: start the HTTP server, say so in one line, wait for a
// signal, drain. Thread rule: main thread, with SIGINT and SIGTERM blocked since BlockSignals.
#ifndef BATON_CLI_SERVICE_H_
#define BATON_CLI_SERVICE_H_

#include <string>

#include "cli/serve_flags.h"
#include "engine/worker.h"
#include "server/metrics.h"
#include "server/server.h"
#include "server/text_frontend.h"

namespace baton::cli {

// Before the first thread starts, so that only WaitForSignal sees SIGINT and SIGTERM.
void BlockSignals();
// Blocks until SIGINT or SIGTERM; afterwards another one kills the process.
void WaitForSignal();

server::ServerOptions MakeServerOptions(const HttpFlags& flags, const std::string& model_name);
// The name clients see: --served-model-name, else the last component of the directory.
std::string ServedName(const HttpFlags& flags, const std::string& model_dir);

// The text side of a model directory; token ids only, with a warning, if it has no tokenizer.json.
StatusOr<std::unique_ptr<server::TextFrontend>> LoadText(const std::string& dir,
                                                         const HttpFlags& flags);

// Gauges and counters of engine, memory and hand-off, for /metrics.
void AddWorkerMetrics(const engine::Worker* worker, server::Metrics* metrics);

// Starts `server`, prints `line`, waits for a signal, drains. Returns the exit code.
int ServeUntilSignal(server::Server* server, const HttpFlags& flags, const std::string& line);

}  // namespace baton::cli

#endif  // BATON_CLI_SERVICE_H_
