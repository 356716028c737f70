// `baton golden`: compares checkpoints with reference logits and states.
#include "model/golden.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "cli/command.h"
#include "cli/serve_flags.h"

namespace baton::cli {
namespace {

struct Flags {
  std::vector<std::string> dirs;
  model::GoldenTolerance tolerance;
};

int RunGoldens(const Flags& f) {
  ThreadPool pool(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  int failed = 0;
  for (const std::string& dir : f.dirs) {
    auto report = model::RunGolden(dir, model::LoadOptions{}, &pool);
    if (!report.ok()) {
      failed |= Fail(report.status());
      continue;
    }
    std::puts(model::FormatGolden(*report, f.tolerance).c_str());
    if (!report->Passed(f.tolerance)) failed = 1;
  }
  return failed;
}

}  // namespace

Run AddGolden(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_option("dirs", f->dirs,
                  "directories with config.json, model.safetensors and golden.safetensors")
      ->required();
  app->add_option("--tol", f->tolerance.logits, "largest accepted |logit difference|")
      ->capture_default_str();
  app->add_option("--state-tol", f->tolerance.states, "largest accepted |state difference|")
      ->capture_default_str();
  return [f] { return RunGoldens(*f); };
}

}  // namespace baton::cli
