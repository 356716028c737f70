#include "model/generate.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/rng.h"
#include "kernel/functions.h"
#include "kernel/packed_matrix.h"
#include "model/architecture.h"
#include "model/config.h"
#include "model/weight_binder.h"
#include "model/weights.h"

namespace baton::model {
namespace {

// Elements made by one task; its random numbers are a function of (seed, tensor, piece).
constexpr int64_t kPieceElements = int64_t{1} << 20;
// Values come from a table indexed by 12 random bits: a lookup is all a value costs.
constexpr int kTableBits = 12;
constexpr int kTableSize = 1 << kTableBits;

// The value of quantile u in (0, 1) for a tensor of this role.
float Quantile(const TensorRequest& tensor, double u) {
  const auto uniform = [u](double std) {
    return static_cast<float>((2 * u - 1) * std * std::sqrt(3.0));
  };
  const double fan_in = static_cast<double>(tensor.shape.back());
  switch (tensor.role) {
    case TensorRole::kLinear:
    case TensorRole::kEmbedding:
      return uniform(1.0 / std::sqrt(fan_in));
    case TensorRole::kConv:
      return uniform(1.0 / std::sqrt(fan_in));
    case TensorRole::kNorm:
      return 1.0f + uniform(0.1);
    case TensorRole::kBias:
      return uniform(0.1);
    case TensorRole::kSkip:
      return 1.0f + uniform(0.2);
    case TensorRole::kALog:  // decay rates from 1 to 16
      return kernel::Log(static_cast<float>(1 + 15 * u));
    case TensorRole::kRgLru: {  // decay of 0.9 to 0.999 per token at a gate of 1 / 8
      const float decay = static_cast<float>(0.9 + 0.099 * u);
      return kernel::Log(1.0f / decay - 1.0f);
    }
    case TensorRole::kDtBias: {
      // Steps from 0.001 to 0.1, evenly in the logarithm; softplus(bias) is the step.
      const float low = kernel::Log(0.001f), high = kernel::Log(0.1f);
      const float dt = kernel::Exp(low + static_cast<float>(u) * (high - low));
      return dt + kernel::Log(1.0f - kernel::Exp(-dt));
    }
  }
  return 0;
}

template <class T>
std::vector<T> ValueTable(const TensorRequest& tensor) {
  std::vector<T> table(kTableSize);
  for (int i = 0; i < kTableSize; ++i) {
    const float v = Quantile(tensor, (i + 0.5) / kTableSize);
    if constexpr (sizeof(T) == 2) {
      table[i] = kernel::ToBF16(v);
    } else {
      table[i] = v;
    }
  }
  return table;
}

template <class T>
void FillPiece(const std::vector<T>& table, uint64_t seed, int64_t n, T* to) {
  SplitMix64 rng(seed);
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const uint64_t bits = rng.Next();
    for (int j = 0; j < 4; ++j) to[i + j] = table[(bits >> (16 * j)) & (kTableSize - 1)];
  }
  const uint64_t bits = rng.Next();
  for (int j = 0; i + j < n; ++j) to[i + j] = table[(bits >> (16 * j)) & (kTableSize - 1)];
}

class Generator {
 public:
  Generator(const GenerateOptions& options, ThreadPool* pool) : options_(options), pool_(pool) {}

  // Streams one tensor into `writer`.
  Status Write(const TensorRequest& tensor, uint64_t index, SafetensorsWriter* writer) {
    return options_.dtype == TensorDType::kBF16 ? WriteAs<uint16_t>(tensor, index, writer)
                                                : WriteAs<float>(tensor, index, writer);
  }

 private:
  template <class T>
  Status WriteAs(const TensorRequest& tensor, uint64_t index, SafetensorsWriter* writer) {
    int64_t elements = 1;
    for (const int64_t d : tensor.shape) elements *= d;
    const std::vector<T> table = ValueTable<T>(tensor);
    const int64_t pieces = (elements + kPieceElements - 1) / kPieceElements;
    const int64_t at_once = pool_ == nullptr ? 1 : 2 * pool_->threads();
    for (int64_t first = 0; first < pieces; first += at_once) {
      const int64_t last = std::min(pieces, first + at_once);
      const int64_t begin = first * kPieceElements;
      const int64_t end = std::min(elements, last * kPieceElements);
      buffer_.resize(static_cast<size_t>(end - begin) * sizeof(T));
      T* to = reinterpret_cast<T*>(buffer_.data());
      const auto fill = [&](int64_t i) {
        const int64_t from = i * kPieceElements;
        const int64_t n = std::min(kPieceElements, end - begin - from);
        FillPiece(table, CounterBits(options_.seed, index, static_cast<uint64_t>(first + i)), n,
                  to + from);
      };
      if (pool_ != nullptr) {
        pool_->ParallelFor(last - first, fill);
      } else {
        for (int64_t i = 0; i < last - first; ++i) fill(i);
      }
      BATON_RETURN_IF_ERROR(writer->Append(buffer_));
    }
    return absl::OkStatus();
  }

  const GenerateOptions& options_;
  ThreadPool* pool_;
  std::vector<std::byte> buffer_;
};

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  return out ? absl::OkStatus() : absl::InternalError(absl::StrCat("cannot write \"", path, "\""));
}

// Consecutive requests per file.
std::vector<std::pair<size_t, size_t>> PlanShards(const std::vector<TensorRequest>& requests,
                                                  const GenerateOptions& options) {
  std::vector<std::pair<size_t, size_t>> shards;
  size_t begin = 0;
  uint64_t bytes = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const uint64_t size = TensorBytes(options.dtype, requests[i].shape).value_or(0);
    if (options.shard_bytes_max > 0 && i > begin && bytes + size > options.shard_bytes_max) {
      shards.emplace_back(begin, i);
      begin = i;
      bytes = 0;
    }
    bytes += size;
  }
  shards.emplace_back(begin, requests.size());
  return shards;
}

}  // namespace

StatusOr<GenerateReport> GenerateCheckpoint(const Json& config_json,
                                            const GenerateOptions& options,
                                            const std::string& dir,
                                            ThreadPool* pool) {
  if (options.dtype != TensorDType::kF32 && options.dtype != TensorDType::kBF16)
    return absl::InvalidArgumentError("checkpoints are generated as F32 or BF16");
  BATON_ASSIGN_OR_RETURN(const ModelConfig config, ParseConfig(config_json));
  DecoderWeights unused;
  unused.layers.resize(config.layers.size());
  WeightBinder binder;
  FindArchitecture(config.model_type)->bind(config, &binder, &unused);
  const std::vector<TensorRequest>& requests = binder.requests();
  const auto shards = PlanShards(requests, options);

  GenerateReport report;
  Generator generator(options, pool);
  Json map = Json::object();
  for (size_t s = 0; s < shards.size(); ++s) {
    const std::string name =
        options.shard_bytes_max == 0
            ? std::string("model.safetensors")
            : absl::StrFormat("model-%05d-of-%05d.safetensors", s + 1, shards.size());
    std::vector<TensorSpec> specs;
    for (size_t i = shards[s].first; i < shards[s].second; ++i) {
      specs.push_back(TensorSpec{requests[i].name, options.dtype, requests[i].shape});
      map[requests[i].name] = name;
      const uint64_t bytes = TensorBytes(options.dtype, requests[i].shape).value_or(0);
      report.bytes += bytes;
      report.parameters += bytes / TensorDTypeBytes(options.dtype);
    }
    BATON_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                           SafetensorsWriter::Create(dir + "/" + name, specs, {{"format", "pt"}}));
    for (size_t i = shards[s].first; i < shards[s].second; ++i)
      BATON_RETURN_IF_ERROR(generator.Write(requests[i], i, &writer));
    BATON_RETURN_IF_ERROR(writer.Close());
    ++report.files;
  }
  if (options.shard_bytes_max > 0) {
    const Json index = {{"metadata", {{"total_size", report.bytes}}}, {"weight_map", map}};
    BATON_RETURN_IF_ERROR(WriteText(dir + "/model.safetensors.index.json", DumpJson(index) + "\n"));
  }
  Json written = config_json;
  written["dtype"] = options.dtype == TensorDType::kBF16 ? "bfloat16" : "float32";
  BATON_RETURN_IF_ERROR(WriteText(dir + "/config.json", DumpJson(written) + "\n"));
  return report;
}

}  // namespace baton::model
