#include "cli/model_path.h"

#include <filesystem>

#include "cli/process.h"

namespace baton::cli {

namespace fs = std::filesystem;

StatusOr<std::string> ResolveModel(const std::string& model) {
  std::error_code error;
  if (!model.empty()) {
    if (fs::is_directory(model, error)) return model;
    if (fs::exists(model, error))
      return absl::InvalidArgumentError(model +
                                        " is a file; name the directory that holds config.json, "
                                        "*.safetensors and tokenizer.json");
    return absl::NotFoundError("no model directory " + model +
                               "; name a directory with config.json, *.safetensors and "
                               "tokenizer.json (nothing is downloaded)");
  }
  const fs::path bin = fs::path(SelfPath()).parent_path();
  const fs::path places[] = {bin / "../../models/demo", bin / "../share/baton/models/demo"};
  for (const fs::path& p : places)
    if (fs::exists(p / "config.json", error)) return fs::weakly_canonical(p).string();
  return absl::NotFoundError("the embedded model is in neither " + places[0].string() + " nor " +
                             places[1].string() + "; name a model directory");
}

}  // namespace baton::cli
