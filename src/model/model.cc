#include "model/model.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/checkpoint.h"
#include "model/decoder.h"
#include "model/load.h"
#include "model/model_layout.h"
#include "model/state_form.h"
#include "model/weight_binder.h"

namespace baton::model {
namespace {

// The first few problems; `baton check` lists all.
Status DoNotFit(const std::string& dir, const std::vector<std::string>& problems) {
  constexpr size_t kShown = 3;
  std::string text = absl::StrCat("\"", dir, "\": ");
  for (size_t i = 0; i < std::min(kShown, problems.size()); ++i)
    absl::StrAppend(&text, i == 0 ? "" : "; ", problems[i]);
  if (problems.size() > kShown) {
    absl::StrAppend(&text, "; and ", problems.size() - kShown,
                    " more (`baton check` lists them all)");
  }
  return absl::InvalidArgumentError(text);
}

}  // namespace

StatusOr<std::unique_ptr<Model>> Model::Load(const std::string& dir, const LoadOptions& options) {
  Decoder::Parts parts;
  parts.kernels = options.kernels == nullptr ? &kernel::SimdKernels() : options.kernels;
  BATON_ASSIGN_OR_RETURN(parts.config, ReadConfig(dir));
  if (options.rotate_all_dims && parts.config.attention.has_value() &&
      parts.config.attention->rope.has_value()) {
    parts.config.attention->rope->dims = parts.config.attention->head_dim;
  }
  BATON_RETURN_IF_ERROR(RefuseQuantisedDir(dir));
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(dir));
  parts.state_dtype = options.state_dtype;
  const Sha256 tag =
      kernel::NumericsTag(*parts.kernels, options.state_dtype, RoundingOf(options.state_dtype));
  BATON_ASSIGN_OR_RETURN(parts.layout, BuildLayout(parts.config, tag, options.state_dtype));
  parts.max_model_len = parts.config.max_position;
  if (options.max_model_len > 0) {
    if (options.max_model_len > parts.config.max_position) {
      return absl::InvalidArgumentError(absl::StrCat("max_model_len ", options.max_model_len,
                                                     " is above the model's ",
                                                     parts.config.max_position, " positions"));
    }
    parts.max_model_len = options.max_model_len;
  }
  WeightBinder binder;
  binder.LookInto(checkpoint.get());
  binder.AllowBlockScales(parts.config.block_scales);
  parts.weights.layers.resize(parts.config.layers.size());
  FindArchitecture(parts.config.model_type)->bind(parts.config, &binder, &parts.weights);
  const std::vector<std::string> problems = binder.Compare(*checkpoint);
  if (!problems.empty()) return DoNotFit(dir, problems);
  BATON_ASSIGN_OR_RETURN(
      parts.fingerprint,
      LoadWeights(binder, *checkpoint, CanonicalText(parts.config), options.adapter, options.pool));
  return std::make_unique<Decoder>(std::move(parts));
}

}  // namespace baton::model
