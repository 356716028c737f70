// `baton check`: what is wrong or unsupported in a model, before serving it.
#include "model/check.h"

#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/serve_flags.h"
#include "server/model_text.h"

namespace baton::cli {
namespace {

int RunCheck(const std::string& model) {
  auto dir = ResolveModel(model);
  // A file is looked at too: check names what it is (GGUF, say) and what to do.
  const std::string path = dir.ok() ? *dir : model;
  if (!dir.ok() && dir.status().code() == absl::StatusCode::kNotFound) return Fail(dir.status());
  model::CheckReport report = model::CheckModel(path);
  if (dir.ok()) {
    if (auto text = server::ModelText::Load(path, {}); !text.ok())
      report.problems.push_back(std::string(text.status().message()));
  }
  std::fputs(model::FormatCheck(report).c_str(), stdout);
  return report.servable() ? 0 : 1;
}

}  // namespace

Run AddCheck(CLI::App* app) {
  auto model = std::make_shared<std::string>();
  app->add_option("model", *model, "model directory; default: the embedded demo model");
  return [model] { return RunCheck(*model); };
}

}  // namespace baton::cli
