#include "model/golden.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/file.h"
#include "model/model_layout.h"
#include "model/safetensors.h"
#include "model/sequence_memory.h"

namespace baton::model {
namespace {

double Difference(float own, double reference) {
  if (!std::isfinite(own) || !std::isfinite(reference))
    return std::numeric_limits<double>::infinity();
  return std::fabs(static_cast<double>(own) - reference);
}

// Of an F32 or F64 tensor.
double ElementOf(const StoredTensor& t, int64_t i) {
  if (t.dtype == TensorDType::kF64) {
    double v;
    std::memcpy(&v, t.bytes.data() + i * 8, 8);
    return v;
  }
  float v;
  std::memcpy(&v, t.bytes.data() + i * 4, 4);
  return v;
}

double UnitOf(const StoredTensor& t) {
  double unit = 1;
  for (int64_t i = 0; i < t.elements(); ++i) unit = std::max(unit, std::fabs(ElementOf(t, i)));
  return unit;
}

// A state of a reference, its key taken apart.
struct RecordedState {
  GoldenDistance* distance = nullptr;  // where its difference goes
  int64_t boundary = 0;
  uint32_t layer = 0;
  std::string component;  // conv, rec, k, v
  const StoredTensor* tensor = nullptr;
};

Status Bad(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("reference \"", name, "\": ", what));
}

// "state20.l3.conv"
StatusOr<RecordedState> ParseKey(const StoredTensor& tensor,
                                 TensorDType dtype,
                                 GoldenDistance* distance) {
  const std::vector<std::string> parts = absl::StrSplit(tensor.name, '.');
  RecordedState state;
  state.distance = distance;
  state.tensor = &tensor;
  const bool good = parts.size() == 3 && parts[0].rfind("state", 0) == 0 &&
                    absl::SimpleAtoi(parts[0].substr(5), &state.boundary) &&
                    parts[1].rfind("l", 0) == 0 &&
                    absl::SimpleAtoi(parts[1].substr(1), &state.layer) && state.boundary > 0;
  if (!good || tensor.dtype != dtype)
    return Bad(tensor.name, absl::StrCat("expected state<N>.l<I>.<conv|rec|k|v> with dtype ",
                                         TensorDTypeName(dtype)));
  state.component = parts[2];
  return state;
}

class Comparison {
 public:
  Comparison(const Model& model, const SequenceMemory& memory) : model_(model), memory_(memory) {}

  StatusOr<double> Compare(const RecordedState& state) const {
    const ModelConfig& c = model_.config();
    if (state.layer >= c.layers.size()) return Bad(state.tensor->name, "no such layer");
    const LayerConfig& layer = c.layers[state.layer];
    if (state.component == "k" || state.component == "v") {
      if (!layer.attends()) return Bad(state.tensor->name, "not an attention layer");
      return CompareKv(state);
    }
    if (layer.mixer == Mixer::kAttention || layer.mixer == Mixer::kNone)
      return Bad(state.tensor->name, "not a recurrent layer");
    if (state.component == "conv") return CompareConv(state);
    if (state.component == "rec") return CompareRec(state);
    return Bad(state.tensor->name, "unknown component");
  }

 private:
  static Status CheckShape(const RecordedState& state, const std::vector<int64_t>& shape) {
    if (state.tensor->shape == shape) return absl::OkStatus();
    return Bad(state.tensor->name, absl::StrCat("shape ", ShapeText(state.tensor->shape),
                                                ", expected ", ShapeText(shape)));
  }

  StatusOr<double> CompareKv(const RecordedState& state) const {
    const KvGroup& group = model_.layout().groups()[0];
    const int64_t heads = group.kv_heads, dim = group.head_dim;
    BATON_RETURN_IF_ERROR(CheckShape(state, {1, heads, state.boundary, dim}));
    size_t ordinal = 0;
    while (group.layers[ordinal] != state.layer) ++ordinal;
    double worst = 0;
    int64_t i = 0;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t t = 0; t < state.boundary; ++t)
        for (int64_t d = 0; d < dim; ++d, ++i) {
          const float own = state.component == "k" ? memory_.KeyValue(0, ordinal, h, t, d)
                                                   : memory_.ValueValue(0, ordinal, h, t, d);
          worst = std::max(worst, Difference(own, ElementOf(*state.tensor, i)));
        }
    return worst;
  }

  StatusOr<double> CompareConv(const RecordedState& state) const {
    const size_t part = *model_.layout().FindPart(state.layer, kConvComponent);
    const std::vector<int64_t>& shape = model_.layout().parts()[part].shape;  // [K-1][C]
    const int64_t taps = shape[0], channels = shape[1];
    BATON_RETURN_IF_ERROR(CheckShape(state, {1, channels, taps + 1}));
    double worst = 0;
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t k = 0; k < taps; ++k) {
        worst = std::max(worst, Difference(memory_.StateValue(part, k * channels + c),
                                           ElementOf(*state.tensor, c * (taps + 1) + k + 1)));
      }
    return worst;
  }

  StatusOr<double> CompareRec(const RecordedState& state) const {
    const size_t part = *model_.layout().FindPart(state.layer, kSsmComponent);
    // Own order ends in [N][P] (per head) or is [N][I], the record has the last two swapped; keys
    // by values are recorded as they are kept.
    std::vector<int64_t> shape = model_.layout().parts()[part].shape;
    const bool swapped = model_.layout().parts()[part].axes != "H,K,V";
    const int64_t rows = shape[shape.size() - 2], cols = shape[shape.size() - 1];
    if (swapped) std::swap(shape[shape.size() - 2], shape[shape.size() - 1]);
    shape.insert(shape.begin(), 1);
    // A record with heads of channels runs through the same channels in the same order.
    const std::vector<int64_t>& found = state.tensor->shape;
    const bool heads = shape.size() == 3 && found.size() == 4 && found[0] == 1 &&
                       found[1] * found[2] == shape[1] && found[3] == shape[2];
    if (!heads) BATON_RETURN_IF_ERROR(CheckShape(state, shape));
    const double unit = UnitOf(*state.tensor);
    double worst = 0;
    const int64_t planes = state.tensor->elements() / (rows * cols);
    for (int64_t p = 0; p < planes; ++p)
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t c = 0; c < cols; ++c) {
          const int64_t base = p * rows * cols;
          const int64_t own = base + r * cols + c;
          const int64_t recorded = swapped ? base + c * rows + r : own;
          worst = std::max(
              worst, Difference(memory_.StateValue(part, own), ElementOf(*state.tensor, recorded)));
        }
    return worst / unit;
  }

  const Model& model_;
  const SequenceMemory& memory_;
};

StatusOr<std::vector<TokenId>> ReadTokens(const SafetensorsFile& file, int64_t vocab_size) {
  const StoredTensor* ids = file.Find("input_ids");
  if (ids == nullptr || ids->dtype != TensorDType::kI64 || ids->shape.size() != 2 ||
      ids->shape[0] != 1 || ids->shape[1] < 1)
    return Bad("input_ids", "missing, or not I64 of shape [1, T]");
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < ids->shape[1]; ++i) {
    int64_t id;
    std::memcpy(&id, ids->bytes.data() + i * 8, 8);
    if (id < 0 || id >= vocab_size)
      return Bad("input_ids", absl::StrCat("token ", id, " is outside the vocabulary"));
    tokens.push_back(static_cast<TokenId>(id));
  }
  return tokens;
}

double LogitsDistance(const StoredTensor& reference, const std::vector<float>& own) {
  double worst = 0;
  for (size_t i = 0; i < own.size(); ++i)
    worst = std::max(worst, Difference(own[i], ElementOf(reference, static_cast<int64_t>(i))));
  return worst;
}

using StatesByBoundary = std::map<int64_t, std::vector<RecordedState>>;

// Both of one shape. The first of `skip` columns (0: none) does not count.
double TensorDistance(const StoredTensor& a, const StoredTensor& b, int64_t skip) {
  double worst = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    if (skip > 0 && i % skip == 0) continue;
    worst = std::max(worst, std::fabs(ElementOf(a, i) - ElementOf(b, i)));
  }
  return worst;
}

// How far a record is from the exact values of the same names.
StatusOr<GoldenDistance> RecordError(const SafetensorsFile& record,
                                     const StatesByBoundary& states,
                                     const GoldenDistance* exact) {
  GoldenDistance out;
  for (const auto& [boundary, all] : states)
    for (const RecordedState& state : all) {
      if (state.distance != exact) continue;
      const StoredTensor* own = record.Find(state.tensor->name);
      if (own == nullptr || own->shape != state.tensor->shape)
        return Bad(state.tensor->name, "exact, but not recorded in this shape");
      const bool conv = state.component == "conv";
      const double unit = state.component == "rec" ? UnitOf(*state.tensor) : 1;
      double& worst = out.states[state.component];
      worst =
          std::max(worst, TensorDistance(*own, *state.tensor, conv ? own->shape.back() : 0) / unit);
    }
  return out;
}

double StandardDeviation(const StoredTensor& t) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double v = ElementOf(t, i);
    sum += v;
    squares += v * v;
  }
  const double n = static_cast<double>(t.elements()), mean = sum / n;
  return std::sqrt(std::max(0.0, squares / n - mean * mean));
}

// The logits of a reference; its states go into `states`.
StatusOr<const StoredTensor*> ReadReference(const SafetensorsFile& file,
                                            TensorDType dtype,
                                            const std::vector<int64_t>& logits_shape,
                                            GoldenDistance* distance,
                                            StatesByBoundary* states) {
  const StoredTensor* logits = file.Find("logits");
  if (logits == nullptr || logits->dtype != dtype || logits->shape != logits_shape)
    return Bad("logits", absl::StrCat("missing, or not ", TensorDTypeName(dtype), " of shape ",
                                      ShapeText(logits_shape)));
  for (const StoredTensor& tensor : file.tensors()) {
    if (tensor.name == "input_ids" || tensor.name == "logits") continue;
    BATON_ASSIGN_OR_RETURN(RecordedState state, ParseKey(tensor, dtype, distance));
    if (state.boundary > logits_shape[1]) return Bad(tensor.name, "boundary beyond the tokens");
    (*states)[state.boundary].push_back(std::move(state));
  }
  return logits;
}

}  // namespace

bool GoldenReport::Passed(const GoldenTolerance& tolerance) const {
  const GoldenDistance& distance = exact.has_value() ? *exact : recorded;
  if (!(distance.logits <= std::max(tolerance.logits, record_error.logits))) return false;
  for (const auto& [component, diff] : distance.states) {
    const auto error = record_error.states.find(component);
    const double unavoidable = error == record_error.states.end() ? 0 : error->second;
    if (!(diff <= std::max(tolerance.states, unavoidable))) return false;
  }
  return true;
}

StatusOr<GoldenReport> RunGolden(const std::string& dir,
                                 const LoadOptions& options,
                                 ThreadPool* pool) {
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ReadConfig(dir));
  LoadOptions recorded = options;
  // What was recorded of this type rotates all of a head; its published weights want the first
  // half, as serving does.
  if (config.model_type == "recurrent_gemma") recorded.rotate_all_dims = true;
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, Model::Load(dir, recorded));
  return RunGolden(dir, *model, pool);
}

StatusOr<GoldenReport> RunGolden(const std::string& dir, const Model& model, ThreadPool* pool) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<SafetensorsFile> file,
                         SafetensorsFile::Open(dir + "/golden.safetensors"));
  BATON_ASSIGN_OR_RETURN(const std::vector<TokenId> tokens, ReadTokens(*file, model.vocab_size()));
  const int64_t n = static_cast<int64_t>(tokens.size());
  GoldenReport report;
  report.dir = dir;
  report.model_type = model.config().model_type;
  report.tokens = n;
  StatesByBoundary states;
  states[n];  // the run always ends at the last token
  const std::vector<int64_t> shape = {1, n, model.vocab_size()};
  BATON_ASSIGN_OR_RETURN(const StoredTensor* logits,
                         ReadReference(*file, TensorDType::kF32, shape, &report.recorded, &states));
  std::unique_ptr<SafetensorsFile> exact;
  const StoredTensor* exact_logits = nullptr;
  if (FileExists(dir + "/exact.safetensors")) {
    BATON_ASSIGN_OR_RETURN(exact, SafetensorsFile::Open(dir + "/exact.safetensors"));
    BATON_ASSIGN_OR_RETURN(exact_logits, ReadReference(*exact, TensorDType::kF64, shape,
                                                       &report.exact.emplace(), &states));
  }

  SequenceMemory memory(model.layout(), n);
  Workspace workspace;
  std::vector<float> own(static_cast<size_t>(n * model.vocab_size()));
  const Comparison comparison(model, memory);
  for (const auto& [boundary, recorded] : states) {
    const int64_t from = memory.position();
    const BatchItem item = memory.Extend(std::span(tokens).subspan(from, boundary - from),
                                         LogitsMode::kAll, own.data() + from * model.vocab_size());
    BATON_RETURN_IF_ERROR(model.Forward(std::span(&item, 1), &workspace, pool));
    for (const RecordedState& state : recorded) {
      BATON_ASSIGN_OR_RETURN(const double diff, comparison.Compare(state));
      double& worst = state.distance->states[state.component];
      worst = std::max(worst, diff);
      if (state.distance == &report.recorded) ++report.states_compared;
    }
  }
  report.logits_std = StandardDeviation(*logits);
  report.recorded.logits = LogitsDistance(*logits, own);
  if (exact != nullptr) {
    report.exact->logits = LogitsDistance(*exact_logits, own);
    BATON_ASSIGN_OR_RETURN(report.record_error, RecordError(*file, states, &*report.exact));
    report.record_error.logits = TensorDistance(*logits, *exact_logits, 0);
  }
  return report;
}

std::string FormatGolden(const GoldenReport& report, const GoldenTolerance& tolerance) {
  std::string out = absl::StrFormat(
      "%s  %s  %s, %d tokens: logits %.2e (std %.2f)", report.Passed(tolerance) ? "ok  " : "FAIL",
      report.dir, report.model_type, report.tokens, report.recorded.logits, report.logits_std);
  for (const auto& [component, diff] : report.recorded.states)
    absl::StrAppendFormat(&out, ", %s %.2e", component, diff);
  absl::StrAppendFormat(&out, " (%d states)", report.states_compared);
  if (!report.exact.has_value()) return out;
  absl::StrAppendFormat(&out, "; from double (the record's own distance): logits %.2e (%.2e)",
                        report.exact->logits, report.record_error.logits);
  for (const auto& [component, diff] : report.exact->states)
    absl::StrAppendFormat(&out, ", %s %.2e (%.2e)", component, diff,
                          report.record_error.states.at(component));
  return out;
}

}  // namespace baton::model
