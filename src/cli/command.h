// One subcommand of `baton`. Each lives in a file of its own, adds its flags to a CLI11 app and
// returns what to run. Nothing here is used by other modules.
#ifndef BATON_CLI_COMMAND_H_
#define BATON_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

namespace baton::cli {

// Exit codes: 0 done, 1 failed, 2 wrong use.
using Run = std::function<int()>;

// Each adds `baton NAME` to `app`; the returned function runs it after parsing.
Run AddServe(CLI::App* app);
Run AddRoute(CLI::App* app);
Run AddUp(CLI::App* app);
Run AddGenerate(CLI::App* app);
Run AddInspect(CLI::App* app);
Run AddCheck(CLI::App* app);
Run AddGolden(CLI::App* app);
Run AddDemo(CLI::App* app);
Run AddDrill(CLI::App* app);

}  // namespace baton::cli

#endif  // BATON_CLI_COMMAND_H_
