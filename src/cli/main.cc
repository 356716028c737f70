// `baton`: one binary, one file per subcommand.
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"

namespace baton::cli {
namespace {

int Main(int argc, char** argv) {
  CLI::App app{"Baton serves hybrid language models with a verified recurrent state."};
  app.name("baton");
  app.set_version_flag("--version", BATON_VERSION);
  app.require_subcommand(1);
  struct Command {
    const char* name;
    const char* help;
    Run (*add)(CLI::App*);
  };
  static constexpr Command kCommands[] = {
      {"up", "router, prefill and decode worker as three processes; stays up", AddUp},
      {"serve", "one worker: all-in-one, prefill or decode", AddServe},
      {"route", "the router in front of prefill and decode workers", AddRoute},
      {"generate", "complete a prompt in this process and print it", AddGenerate},
      {"inspect", "layout, state bytes, capacity of a model", AddInspect},
      {"check", "what is wrong or unsupported in a model, before serving it", AddCheck},
      {"golden", "compare a checkpoint with reference logits and states", AddGolden},
      {"drill", "inject every fault, show that each is caught and what it would have done",
       AddDrill},
      {"demo", "a hand-off, a resumed turn and a caught swap, shown", AddDemo},
  };
  std::vector<std::pair<CLI::App*, Run>> runs;
  for (const Command& c : kCommands) {
    CLI::App* sub = app.add_subcommand(c.name, c.help);
    runs.emplace_back(sub, c.add(sub));
  }
  std::vector<std::string> arguments(argv + 1, argv + argc);
  if (const std::string problem = ExpandArguments(&arguments); !problem.empty()) {
    std::fprintf(stderr, "baton: %s\n", problem.c_str());
    return 2;
  }
  std::reverse(arguments.begin(), arguments.end());  // the order CLI11 takes a vector in
  try {
    app.parse(arguments);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : 2;
  }
  for (const auto& [sub, run] : runs)
    if (sub->parsed()) return run();
  return 2;
}

}  // namespace
}  // namespace baton::cli

int main(int argc, char** argv) { return baton::cli::Main(argc, argv); }
