// `baton inspect`: what a model costs per sequence.
#include "model/inspect.h"

#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/serve_flags.h"

namespace baton::cli {
namespace {

struct Flags {
  std::string model;
  double memory_gib = 8;
  bool plan = false;
  std::vector<int64_t> lengths;
  std::string state_dtype = "f32";
};

int RunInspect(const Flags& f) {
  std::string path = f.model;
  if (path.empty() || path.find(".json") == std::string::npos) {
    auto dir = ResolveModel(path);
    if (!dir.ok()) return Fail(dir.status());
    path = *dir;
  }
  model::InspectOptions options;
  options.memory_bytes = static_cast<uint64_t>(f.memory_gib * 1024 * 1024 * 1024);
  if (const auto state = kernel::ParseStateDType(f.state_dtype)) options.state_dtype = *state;
  if (!f.lengths.empty()) options.lengths = f.lengths;
  auto report = model::InspectModel(path, options);
  if (!report.ok()) return Fail(report.status());
  std::fputs(model::FormatInspect(*report).c_str(), stdout);
  return 0;
}

}  // namespace

Run AddInspect(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_option("model", f->model,
                  "model directory or a bare config.json; default: the embedded demo model");
  app->add_option("--memory-gib", f->memory_gib, "memory for sequences, without weights")
      ->check(CLI::Range(0.001, 1e6))
      ->capture_default_str();
  app->add_flag("--plan", f->plan, "the capacity table (printed in any case)");
  app->add_option("--length", f->lengths, "context lengths of the capacity table")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  AddStateDTypeFlag(app, &f->state_dtype);
  return [f] { return RunInspect(*f); };
}

}  // namespace baton::cli
