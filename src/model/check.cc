#include "model/check.h"

#include <map>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/file.h"
#include "model/architecture.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "model/model_layout.h"
#include "model/quantisation.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {
namespace {

void CheckWeights(const ModelConfig& config, const Checkpoint& checkpoint, CheckReport* report) {
  DecoderWeights unused;
  unused.layers.resize(config.layers.size());
  WeightBinder binder;
  binder.LookInto(&checkpoint);
  binder.AllowBlockScales(config.block_scales);
  FindArchitecture(config.model_type)->bind(config, &binder, &unused);
  for (std::string& problem : binder.Compare(checkpoint))
    report->problems.push_back(std::move(problem));
  for (const auto& [prefix, n] : binder.IgnoredByPrefix(checkpoint)) {
    report->notes.push_back(
        absl::StrCat(n, " tensors \"", prefix, "*\" are not used: no part of the text model"));
  }
  if (config.block_scales.has_value())
    report->notes.push_back("FP8 matrices with block scales are loaded as BF16");
  std::map<std::string, uint64_t> by_dtype;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    report->parameters += static_cast<uint64_t>(tensor->elements());
    report->weight_bytes += tensor->bytes.size();
    by_dtype[TensorDTypeName(tensor->dtype)] += tensor->bytes.size();
  }
  std::string dtypes;
  for (const auto& [dtype, bytes] : by_dtype)
    absl::StrAppend(&dtypes, dtypes.empty() ? "" : ", ", dtype, " ", bytes >> 20, " MiB");
  report->notes.push_back(absl::StrCat(checkpoint.tensors().size(), " tensors in ",
                                       checkpoint.files(), " files: ", dtypes));
}

}  // namespace

CheckReport CheckModel(const std::string& dir) {
  CheckReport report;
  report.path = dir;
  const auto problem = [&](const Status& status) {
    report.problems.emplace_back(status.message());
  };
  const StatusOr<ModelConfig> config = ReadConfig(dir);
  if (!config.ok()) problem(config.status());
  if (const Status plain = RefuseQuantisedDir(dir); !plain.ok()) problem(plain);
  const StatusOr<std::unique_ptr<Checkpoint>> checkpoint = Checkpoint::Open(dir);
  if (!checkpoint.ok()) problem(checkpoint.status());
  if (config.ok()) {
    report.model_type = config->model_type;
    const StatusOr<Layout> layout = BuildLayout(*config, Sha256());
    if (!layout.ok()) problem(layout.status());
    if (checkpoint.ok()) CheckWeights(*config, **checkpoint, &report);
  }
  if (!FileExists(dir + "/tokenizer.json") && !FileExists(dir + "/tokenizer.model"))
    report.notes.push_back("tokenizer.json and tokenizer.model are absent");
  if (!FileExists(dir + "/generation_config.json"))
    report.notes.push_back("generation_config.json is absent");
  return report;
}

std::string FormatCheck(const CheckReport& report) {
  std::string out = absl::StrFormat("%s: %s", report.path,
                                    report.model_type.empty() ? "unknown type" : report.model_type);
  if (report.parameters > 0)
    absl::StrAppendFormat(&out, ", %.1f M parameters",
                          static_cast<double>(report.parameters) / 1e6);
  absl::StrAppend(&out, report.servable() ? ", can be served\n" : ", CANNOT be served\n");
  for (const std::string& problem : report.problems)
    absl::StrAppend(&out, "  problem: ", problem, "\n");
  for (const std::string& note : report.notes) absl::StrAppend(&out, "  note: ", note, "\n");
  return out;
}

}  // namespace baton::model
