#include "model/quantisation.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "kernel/packed_matrix.h"

namespace baton::model {
namespace {

constexpr int64_t kBlockMax = 1 << 16;

// What to do about a scheme; the first whose name begins so.
struct Remedy {
  const char* scheme;
  const char* text;
};
constexpr Remedy kRemedies[] = {
    {"fp8",
     "only block scales load (\"weight_block_size\": [128, 128], \"fmt\": \"e4m3\"); use "
     "the block-scaled FP8 or the BF16 release"},
    {"gguf", "use the safetensors release in BF16"},
    {"mxfp4", "use the BF16 release, or dequantise with the transformers library and save again"},
};

std::string RemedyFor(const std::string& scheme) {
  for (const Remedy& r : kRemedies)
    if (scheme == r.scheme) return r.text;
  return "use the BF16 release or the one with FP8 block scales";
}

// "modelopt NVFP4" of {"quant_method": "modelopt", "quant_algo": "NVFP4"}; printable and short.
std::string SchemeName(const Json& q) {
  std::string name;
  for (const char* key : {"quant_method", "quant_algo", "format"}) {
    const auto it = q.is_object() ? q.find(key) : q.end();
    if (!q.is_object() || it == q.end() || !it->is_string()) continue;
    absl::StrAppend(&name, name.empty() ? "" : " ", it->get<std::string>().substr(0, 40));
  }
  for (char& c : name)
    if (!absl::ascii_isprint(static_cast<unsigned char>(c))) c = '?';
  return name.empty() ? "of an unnamed scheme" : name;
}

Status Refused(const std::string& where, const std::string& scheme) {
  return absl::UnimplementedError(absl::StrCat(where, ": weights quantised by \"", scheme,
                                               "\" are not supported; ", RemedyFor(scheme)));
}

std::array<float, 256> MakeE4M3Table() {
  std::array<float, 256> table{};
  for (int i = 0; i < 256; ++i) {
    const int exponent = i >> 3 & 15, mantissa = i & 7;
    float v = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                            : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
    if ((i & 0x7F) == 0x7F) v = std::numeric_limits<float>::quiet_NaN();
    table[static_cast<size_t>(i)] = (i & 0x80) != 0 ? -v : v;
  }
  return table;
}

float ScaleAt(const StoredTensor& scales, int64_t i) {
  const auto dtype = scales.dtype == TensorDType::kF32 ? kernel::DType::kF32 : kernel::DType::kBF16;
  return kernel::LoadElement(scales.bytes.data(), dtype, i);
}

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

}  // namespace

StatusOr<std::optional<ScaleBlock>> ReadQuantisation(const Json& config) {
  const Json* q = nullptr;
  const char* key = "";
  const auto look = [&](const Json& json) {
    for (const char* name : {"quantization_config", "compression_config"}) {
      const auto it = json.find(name);
      if (q == nullptr && it != json.end() && !it->is_null()) {
        q = &*it;
        key = name;
      }
    }
  };
  look(config);
  const auto text = config.find("text_config");
  if (text != config.end() && text->is_object()) look(*text);
  if (q == nullptr) return std::optional<ScaleBlock>();
  const std::string where = absl::StrCat("config.json: \"", key, "\"");
  if (!q->is_object()) return Refused(where, "of an unnamed scheme");
  const auto method = q->find("quant_method");
  const auto blocks = q->find("weight_block_size");
  const bool fp8 = method != q->end() && *method == "fp8";
  if (!fp8 || blocks == q->end() || blocks->is_null() || q->value("fmt", Json("e4m3")) != "e4m3")
    return Refused(where, SchemeName(*q));
  const auto good = [](const Json& v) {
    return v.is_number_unsigned() && v.get<uint64_t>() >= 1 &&
           v.get<uint64_t>() <= static_cast<uint64_t>(kBlockMax);
  };
  if (!blocks->is_array() || blocks->size() != 2 || !good((*blocks)[0]) || !good((*blocks)[1])) {
    return absl::InvalidArgumentError(absl::StrCat(
        where, ": \"weight_block_size\" must be two whole numbers from 1 to ", kBlockMax));
  }
  return std::optional<ScaleBlock>(
      ScaleBlock{(*blocks)[0].get<int64_t>(), (*blocks)[1].get<int64_t>()});
}

Status RefuseQuantisedDir(const std::string& dir) {
  for (const char* name : {"hf_quant_config.json", "quantize_config.json", "quant_config.json"}) {
    const std::string path = absl::StrCat(dir, "/", name);
    if (!FileExists(path)) continue;
    std::string scheme = "of an unnamed scheme";
    if (const auto json = ReadJsonFile(path); json.ok() && json->is_object()) {
      const auto inner = json->find("quantization");
      scheme = SchemeName(inner != json->end() ? *inner : *json);
    }
    return Refused(name, scheme);
  }
  return absl::OkStatus();
}

std::string ScaleName(const std::string& weight) { return weight + "_scale_inv"; }

std::vector<int64_t> ScaleShape(const std::vector<int64_t>& weight, const ScaleBlock& block) {
  std::vector<int64_t> shape = weight;
  const size_t n = shape.size();
  shape[n - 2] = DivideUp(shape[n - 2], block.rows);
  shape[n - 1] = DivideUp(shape[n - 1], block.cols);
  return shape;
}

StatusOr<std::vector<std::byte>> DequantiseBlocks(const StoredTensor& weight,
                                                  const StoredTensor& scales,
                                                  const ScaleBlock& block) {
  static const std::array<float, 256> kTable = MakeE4M3Table();
  const size_t rank = weight.shape.size();
  BATON_CHECK(rank >= 2 && scales.shape == ScaleShape(weight.shape, block));
  const int64_t rows = weight.shape[rank - 2], cols = weight.shape[rank - 1];
  const int64_t scale_rows = scales.shape[rank - 2], scale_cols = scales.shape[rank - 1];
  const int64_t matrices = rows * cols == 0 ? 0 : weight.elements() / (rows * cols);
  std::vector<std::byte> out(static_cast<size_t>(weight.elements()) * sizeof(uint16_t));
  const auto* in = reinterpret_cast<const uint8_t*>(weight.bytes.data());
  bool finite = true;
  for (int64_t r = 0; r < matrices * rows; ++r) {
    const int64_t scale_row = r / rows * scale_rows + r % rows / block.rows;
    for (int64_t c0 = 0; c0 < cols; c0 += block.cols) {
      const float scale = ScaleAt(scales, scale_row * scale_cols + c0 / block.cols);
      for (int64_t c = c0; c < std::min(cols, c0 + block.cols); ++c) {
        const float v = kTable[in[r * cols + c]] * scale;
        finite = finite && std::isfinite(v);
        const uint16_t bits = kernel::ToBF16(v);
        std::memcpy(&out[static_cast<size_t>(r * cols + c) * sizeof(bits)], &bits, sizeof(bits));
      }
    }
  }
  if (!finite) {
    return absl::InvalidArgumentError(absl::StrCat("tensor \"", weight.name,
                                                   "\" has elements or scales that are not finite; "
                                                   "the file is damaged"));
  }
  return out;
}

}  // namespace baton::model
