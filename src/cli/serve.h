// What `serve` does, for `demo` too, which runs a worker with a hostile connector.
#ifndef BATON_CLI_SERVE_H_
#define BATON_CLI_SERVE_H_

#include <functional>
#include <string>

#include "cli/serve_flags.h"

namespace baton::cli {

struct ServeFlags {
  std::string model;
  std::string role = "all";
  HttpFlags http;
  EngineFlags engine;
  HandoffFlags handoff;
};

void AddServeFlags(CLI::App* app, ServeFlags* flags);

// Changes the worker before it starts. `serve` passes none.
using WorkerHook = std::function<void(engine::WorkerOptions*)>;
int RunServe(const ServeFlags& flags, const WorkerHook& hook);

}  // namespace baton::cli

#endif  // BATON_CLI_SERVE_H_
