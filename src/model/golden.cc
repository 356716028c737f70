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
#include "model/model_layout.h"
#include "model/safetensors.h"
#include "model/sequence_memory.h"

namespace baton::model {
namespace {

double Difference(float a, float b) {
  if (!std::isfinite(a) || !std::isfinite(b)) return std::numeric_limits<double>::infinity();
  return std::fabs(static_cast<double>(a) - static_cast<double>(b));
}

float ElementOf(const StoredTensor& t, int64_t i) {
  float v;
  std::memcpy(&v, t.bytes.data() + i * 4, 4);
  return v;
}

// A recorded state, its key taken apart.
struct RecordedState {
  int64_t boundary = 0;
  uint32_t layer = 0;
  std::string component;  // conv, rec, k, v
  const StoredTensor* tensor = nullptr;
};

Status Bad(const std::string& name, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("golden.safetensors, \"", name, "\": ", what));
}

// "state20.l3.conv"
StatusOr<RecordedState> ParseKey(const StoredTensor& tensor) {
  const std::vector<std::string> parts = absl::StrSplit(tensor.name, '.');
  RecordedState state;
  state.tensor = &tensor;
  const bool good = parts.size() == 3 && parts[0].rfind("state", 0) == 0 &&
                    absl::SimpleAtoi(parts[0].substr(5), &state.boundary) &&
                    parts[1].rfind("l", 0) == 0 &&
                    absl::SimpleAtoi(parts[1].substr(1), &state.layer) && state.boundary > 0;
  if (!good || tensor.dtype != TensorDType::kF32)
    return Bad(tensor.name, "expected state<N>.l<I>.<conv|rec|k|v> with dtype F32");
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
    // A state that hardly fades is a sum over all tokens: its largest value is the unit then.
    double unit = 1;
    for (int64_t i = 0; i < state.tensor->elements(); ++i)
      unit = std::max(unit, std::fabs(static_cast<double>(ElementOf(*state.tensor, i))));
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

void CompareLogits(const StoredTensor& recorded,
                   const std::vector<float>& own,
                   GoldenReport* report) {
  double sum = 0, squares = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const float v = ElementOf(recorded, static_cast<int64_t>(i));
    sum += v;
    squares += static_cast<double>(v) * v;
    report->logits_diff = std::max(report->logits_diff, Difference(own[i], v));
  }
  const double n = static_cast<double>(own.size()), mean = sum / n;
  report->logits_std = std::sqrt(std::max(0.0, squares / n - mean * mean));
}

}  // namespace

bool GoldenReport::Passed(const GoldenTolerance& tolerance) const {
  if (!(logits_diff <= tolerance.logits)) return false;
  for (const auto& [component, diff] : state_diff)
    if (!(diff <= tolerance.states)) return false;
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
  const StoredTensor* logits = file->Find("logits");
  if (logits == nullptr || logits->dtype != TensorDType::kF32 ||
      logits->shape != std::vector<int64_t>{1, n, model.vocab_size()})
    return Bad("logits", absl::StrCat("missing, or not F32 of shape ",
                                      ShapeText({1, n, model.vocab_size()})));
  std::map<int64_t, std::vector<RecordedState>> states;  // by boundary
  for (const StoredTensor& tensor : file->tensors()) {
    if (tensor.name == "input_ids" || tensor.name == "logits") continue;
    BATON_ASSIGN_OR_RETURN(RecordedState state, ParseKey(tensor));
    if (state.boundary > n) return Bad(tensor.name, "boundary beyond the tokens");
    states[state.boundary].push_back(std::move(state));
  }
  states[n];  // the run always ends at the last token

  GoldenReport report;
  report.dir = dir;
  report.model_type = model.config().model_type;
  report.tokens = n;
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
      double& worst = report.state_diff[state.component];
      worst = std::max(worst, diff);
      ++report.states_compared;
    }
  }
  CompareLogits(*logits, own, &report);
  return report;
}

std::string FormatGolden(const GoldenReport& report, const GoldenTolerance& tolerance) {
  std::string out = absl::StrFormat(
      "%s  %s  %s, %d tokens: logits %.2e (std %.2f)", report.Passed(tolerance) ? "ok  " : "FAIL",
      report.dir, report.model_type, report.tokens, report.logits_diff, report.logits_std);
  for (const auto& [component, diff] : report.state_diff)
    absl::StrAppendFormat(&out, ", %s %.2e", component, diff);
  absl::StrAppendFormat(&out, " (%d states)", report.states_compared);
  return out;
}

}  // namespace baton::model
