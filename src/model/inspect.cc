#include "model/inspect.h"

#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "kernel/kernels.h"
#include "model/architecture.h"
#include "model/model_layout.h"
#include "model/safetensors.h"
#include "model/state_form.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {
namespace {

uint64_t CountParameters(const ModelConfig& config) {
  DecoderWeights unused;
  unused.layers.resize(config.layers.size());
  WeightBinder binder;
  FindArchitecture(config.model_type)->bind(config, &binder, &unused);
  uint64_t n = 0;
  for (const TensorRequest& request : binder.requests())
    n += TensorBytes(TensorDType::kU8, request.shape).value_or(0);
  return n;
}

// A bare config may say nothing of the vocabulary, which no state depends on.
StatusOr<ModelConfig> ReadForInspect(const std::string& path, bool* vocabulary_known) {
  StatusOr<ModelConfig> config = ReadConfig(path);
  std::error_code error;
  if (config.ok() || std::filesystem::is_directory(path, error)) return config;
  StatusOr<Json> json = ReadJsonFile(path);
  if (!json.ok() || !json->is_object()) return config;
  Json* text = &*json;
  if (json->contains("text_config") && (*json)["text_config"].is_object())
    text = &(*json)["text_config"];
  if (json->contains("vocab_size") || text->contains("vocab_size")) return config;
  (*text)["vocab_size"] = 1;
  StatusOr<ModelConfig> patched = ParseConfig(*json);
  if (patched.ok()) {
    *vocabulary_known = false;
    return patched;
  }
  return Status(patched.status().code(),
                absl::StrCat("\"", path, "\": ", patched.status().message()));
}

// What one sequence's state takes in memory, a checkpoint's too.
uint64_t LiveStateBytes(const InspectReport& report) {
  return report.layout.slot_bytes() + report.tail_bytes;
}

CapacityRow Capacity(const InspectReport& report, int64_t tokens) {
  const Layout& layout = report.layout;
  CapacityRow row;
  row.tokens = tokens;
  row.bytes = LiveStateBytes(report);
  for (size_t g = 0; g < layout.groups().size(); ++g) {
    row.bytes +=
        layout.BlockCount(g, static_cast<uint64_t>(tokens)) * layout.groups()[g].block_bytes;
  }
  row.attention_bytes =
      static_cast<uint64_t>(BlocksFor(tokens)) * kBlockTokens * report.attention_kv_bytes_per_token;
  if (row.bytes > 0) row.sequences = report.memory_bytes / row.bytes;
  const uint64_t with_checkpoint = row.bytes + LiveStateBytes(report);
  if (with_checkpoint > 0) row.with_checkpoint = report.memory_bytes / with_checkpoint;
  if (row.attention_bytes > 0) row.attention_sequences = report.memory_bytes / row.attention_bytes;
  return row;
}

// Layers that keep something of a sequence: all but those that are a feed-forward block alone.
uint64_t LayersWithMemory(const Layout& layout) {
  std::set<uint32_t> layers;
  for (const StatePart& part : layout.parts()) layers.insert(part.layer);
  for (const KvGroup& group : layout.groups())
    layers.insert(group.layers.begin(), group.layers.end());
  return layers.size();
}

// Both sides grow in whole blocks: the first length in blocks at which the hybrid is no larger.
int64_t BreakEven(const InspectReport& report) {
  const uint64_t attention = report.attention_kv_bytes_per_token;
  const uint64_t own = report.layout.kv_bytes_per_token();
  if (report.layout.slot_bytes() == 0 || attention <= own) return 0;
  const uint64_t per_block = (attention - own) * kBlockTokens;
  return static_cast<int64_t>((LiveStateBytes(report) + per_block - 1) / per_block) * kBlockTokens;
}

// "0-4, 6-14": the layers of equal parts are printed once.
std::string LayerRanges(const std::vector<uint32_t>& layers) {
  std::string out;
  for (size_t i = 0; i < layers.size();) {
    size_t j = i;
    while (j + 1 < layers.size() && layers[j + 1] == layers[j] + 1) ++j;
    absl::StrAppend(&out, out.empty() ? "" : ", ", layers[i]);
    if (j > i) absl::StrAppend(&out, "-", layers[j]);
    i = j + 1;
  }
  return out;
}

// Exact up to a megabyte, then rounded.
std::string Bytes(uint64_t n) {
  if (n < (uint64_t{1} << 20)) return absl::StrCat(n, " B");
  if (n < (uint64_t{1} << 30))
    return absl::StrFormat("%.2f MiB", static_cast<double>(n) / (1 << 20));
  return absl::StrFormat("%.2f GiB", static_cast<double>(n) / (1 << 30));
}

void AppendPublished(const PublishedShape& shape, std::string* out) {
  absl::StrAppendFormat(
      out,
      "as published (conv and KV bf16, recurrent state f32): %d recurrent and %d attention layers\n"
      "  state per sequence %d bytes = conv %d + recurrent %d; KV per token %d bytes\n",
      shape.recurrent_layers, shape.attention_layers, shape.state_bytes(), shape.conv_bytes,
      shape.recurrent_bytes, shape.kv_bytes_per_token);
}

void AppendLayout(const Layout& layout, std::string* out) {
  absl::StrAppend(out, "layout ", layout.fingerprint().Hex().substr(0, 16), "\n");
  std::vector<std::pair<const StatePart*, std::vector<uint32_t>>> kinds;
  for (const StatePart& part : layout.parts()) {
    bool found = false;
    for (auto& [kind, layers] : kinds) {
      found = kind->component == part.component && kind->shape == part.shape;
      if (found) {
        layers.push_back(part.layer);
        break;
      }
    }
    if (!found) kinds.push_back({&part, {part.layer}});
  }
  for (const auto& [part, layers] : kinds) {
    absl::StrAppendFormat(out, "  %-5s %-22s %-28s %12s  x %d layers: %s\n", part->component,
                          ShapeText(part->shape), part->axes, Bytes(part->bytes), layers.size(),
                          LayerRanges(layers));
  }
  for (const KvGroup& group : layout.groups()) {
    absl::StrAppendFormat(out,
                          "  kv    %d heads x %d, group \"%s\"%-9s %12s per block of %d"
                          "  x %d layers: %s\n",
                          group.kv_heads, group.head_dim, group.name, "", Bytes(group.block_bytes),
                          kBlockTokens, group.layers.size(), LayerRanges(group.layers));
  }
}

}  // namespace

PublishedShape PublishedShapeOf(const Layout& layout) {
  PublishedShape shape;
  std::set<uint32_t> recurrent;
  for (const StatePart& part : layout.parts()) {
    recurrent.insert(part.layer);
    if (part.component == kScaleComponent) continue;  // of a narrow state: Baton's own
    const uint64_t elements = part.bytes / ElementBytes(part.dtype);
    if (part.component == kConvComponent) {
      shape.conv_bytes += 2 * elements;
    } else {
      shape.recurrent_bytes += 4 * elements;
    }
  }
  shape.recurrent_layers = static_cast<int64_t>(recurrent.size());
  for (const KvGroup& group : layout.groups()) {
    shape.attention_layers += static_cast<int64_t>(group.layers.size());
    shape.kv_bytes_per_token +=
        uint64_t{2} * 2 * group.kv_heads * group.head_dim * group.layers.size();
  }
  return shape;
}

StatusOr<InspectReport> InspectModel(const std::string& path, const InspectOptions& options) {
  InspectReport report;
  BATON_ASSIGN_OR_RETURN(report.config, ReadForInspect(path, &report.vocabulary_known));
  const kernel::StateDType state = options.state_dtype;
  const Sha256 tag = kernel::NumericsTag(kernel::SimdKernels(), state, RoundingOf(state));
  BATON_ASSIGN_OR_RETURN(report.layout, BuildLayout(report.config, tag, state));
  BATON_ASSIGN_OR_RETURN(const Layout f32, BuildLayout(report.config, tag));
  report.published = PublishedShapeOf(report.layout);
  report.state_dtype = state;
  report.tail_bytes = SlotTailBytes(report.config, state);
  report.f32_slot_bytes = f32.slot_bytes();
  report.memory_bytes = options.memory_bytes;
  report.parameters = CountParameters(report.config);
  if (const auto& a = report.config.attention; a.has_value()) {
    report.attention_kv_bytes_per_token = LayersWithMemory(report.layout) * 2 *
                                          static_cast<uint64_t>(a->kv_heads * a->head_dim) *
                                          sizeof(float);
  }
  for (const int64_t tokens : options.lengths) {
    if (tokens < 1)
      return absl::InvalidArgumentError(absl::StrCat("a sequence of ", tokens, " tokens"));
    report.capacity.push_back(Capacity(report, tokens));
  }
  report.break_even_tokens = BreakEven(report);
  return report;
}

std::string FormatInspect(const InspectReport& report) {
  const ModelConfig& c = report.config;
  const Layout& layout = report.layout;
  std::string out = absl::StrFormat(
      "%s: %d layers (%d attention, %d recurrent), hidden %d, vocabulary %d, %.1f M parameters, "
      "%d positions\n",
      c.model_type, c.layers.size(), report.published.attention_layers,
      report.published.recurrent_layers, c.hidden_size, c.vocab_size,
      static_cast<double>(report.parameters) / 1e6, c.max_position);
  if (!report.vocabulary_known)
    absl::StrAppend(&out, "(the config has no vocab_size: parameters without embeddings)\n");
  AppendPublished(report.published, &out);
  absl::StrAppend(&out, "\nhere, ");
  AppendLayout(layout, &out);
  absl::StrAppendFormat(&out, "state per sequence  %d bytes in %d parts (slot %d)\n",
                        layout.state_payload_bytes(), layout.StatePartCount(), layout.slot_bytes());
  if (report.tail_bytes > 0) {
    const uint64_t live = LiveStateBytes(report);
    absl::StrAppendFormat(
        &out,
        "state in %s         %d bytes handed over or kept; %d live with a tail of %d behind it "
        "(inputs of %d tokens), %.3f of the %d in f32\n",
        kernel::StateDTypeName(report.state_dtype), layout.state_payload_bytes(), live,
        report.tail_bytes, kTailTokens,
        static_cast<double>(live) / static_cast<double>(report.f32_slot_bytes),
        report.f32_slot_bytes);
  }
  absl::StrAppendFormat(&out, "KV per token        %d bytes (%d with attention in every layer)\n",
                        layout.kv_bytes_per_token(), report.attention_kv_bytes_per_token);
  if (layout.has_state() && layout.kv_bytes_per_token() > 0) {
    absl::StrAppendFormat(&out, "one state costs as much as the KV of %d tokens\n",
                          layout.state_payload_bytes() / layout.kv_bytes_per_token());
  }
  absl::StrAppendFormat(&out,
                        "\nsequences that fit %s (weights not counted)\n%10s %14s %10s %16s   %s\n",
                        Bytes(report.memory_bytes), "tokens", "bytes each", "sequences",
                        "each + checkpoint", "with attention in every layer");
  for (const CapacityRow& row : report.capacity) {
    absl::StrAppendFormat(&out, "%10d %14s %10d %17d   %14s %10d\n", row.tokens, Bytes(row.bytes),
                          row.sequences, row.with_checkpoint, Bytes(row.attention_bytes),
                          row.attention_sequences);
  }
  if (report.break_even_tokens > 0)
    absl::StrAppendFormat(
        &out,
        "below %d tokens per sequence the same model with attention in every layer "
        "would hold more; above, this one\n",
        report.break_even_tokens);
  return out;
}

}  // namespace baton::model
