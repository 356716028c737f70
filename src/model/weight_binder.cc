#include "model/weight_binder.h"

#include <cstring>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernel/functions.h"

namespace baton::model {
namespace {

using kernel::DType;

// Spellings tried of one name.
constexpr size_t kNamesMax = 64;

bool IsWeightDType(TensorDType dtype) {
  return dtype == TensorDType::kF32 || dtype == TensorDType::kBF16 || dtype == TensorDType::kF16;
}

DType KernelDType(TensorDType dtype) {
  switch (dtype) {
    case TensorDType::kF32:
      return DType::kF32;
    case TensorDType::kBF16:
      return DType::kBF16;
    default:
      return DType::kF16;
  }
}

Status PackRows(const StoredTensor& tensor,
                const std::byte* source,
                int64_t rows,
                int64_t cols,
                kernel::PackedMatrix* to) {
  StatusOr<kernel::PackedMatrix> packed =
      kernel::PackedMatrix::Pack(source, KernelDType(tensor.dtype), rows, cols, cols, nullptr);
  if (!packed.ok()) {
    return Status(packed.status().code(),
                  absl::StrCat("tensor \"", tensor.name, "\": ", packed.status().message()));
  }
  *to = std::move(packed).value();
  return absl::OkStatus();
}

// -exp(A_log), the decay rate per unit of step.
float DecayOf(float a_log) { return -kernel::Exp(a_log); }

}  // namespace

std::vector<float> Widen(const StoredTensor& tensor) {
  std::vector<float> out(static_cast<size_t>(tensor.elements()));
  const DType dtype = KernelDType(tensor.dtype);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = kernel::LoadElement(tensor.bytes.data(), dtype, static_cast<int64_t>(i));
  return out;
}

TensorRequest* WeightBinder::Request(const std::string& name,
                                     const std::vector<int64_t>& shape,
                                     TensorRole role) {
  const auto [it, added] = index_.emplace(name, requests_.size());
  if (added) {
    TensorRequest request;
    request.name = name;
    request.shape = shape;
    request.role = role;
    requests_.push_back(std::move(request));
  }
  TensorRequest* request = &requests_[it->second];
  BATON_CHECK(request->shape == shape);
  return request;
}

void WeightBinder::Matrix(const std::string& name,
                          int64_t rows,
                          int64_t cols,
                          kernel::PackedMatrix* to,
                          TensorRole role) {
  Request(name, {rows, cols}, role);
  MatrixRows(name, {rows, cols}, 0, rows, to);
}

void WeightBinder::MatrixRows(const std::string& name,
                              const std::vector<int64_t>& shape,
                              int64_t begin,
                              int64_t rows,
                              kernel::PackedMatrix* to) {
  const int64_t cols = shape.back();
  Request(name, shape, TensorRole::kLinear)->consumers.push_back([=](const StoredTensor& tensor) {
    const int64_t row_bytes =
        cols * static_cast<int64_t>(kernel::DTypeSize(KernelDType(tensor.dtype)));
    return PackRows(tensor, tensor.bytes.data() + begin * row_bytes, rows, cols, to);
  });
}

void WeightBinder::MatrixReordered(const std::string& name,
                                   int64_t rows,
                                   int64_t cols,
                                   std::function<int64_t(int64_t)> source,
                                   kernel::PackedMatrix* to) {
  Request(name, {rows, cols}, TensorRole::kLinear)
      ->consumers.push_back([=](const StoredTensor& tensor) {
        const size_t row_bytes =
            static_cast<size_t>(cols) * kernel::DTypeSize(KernelDType(tensor.dtype));
        std::vector<std::byte> ordered(static_cast<size_t>(rows) * row_bytes);
        for (int64_t r = 0; r < rows; ++r) {
          std::memcpy(ordered.data() + static_cast<size_t>(r) * row_bytes,
                      tensor.bytes.data() + static_cast<size_t>(source(r)) * row_bytes, row_bytes);
        }
        return PackRows(tensor, ordered.data(), rows, cols, to);
      });
}

void WeightBinder::MatrixRuns(const std::string& name,
                              const std::vector<int64_t>& shape,
                              std::vector<Run> runs,
                              kernel::PackedMatrix* to) {
  const int64_t cols = shape.back();
  Request(name, shape, TensorRole::kLinear)
      ->consumers.push_back([=, runs = std::move(runs)](const StoredTensor& tensor) -> Status {
        const DType dtype = KernelDType(tensor.dtype);
        const int64_t row_bytes = cols * static_cast<int64_t>(kernel::DTypeSize(dtype));
        std::vector<std::byte> gathered;
        int64_t rows = 0;
        for (const Run& run : runs) {
          const std::byte* from = tensor.bytes.data() + run.begin * row_bytes;
          gathered.insert(gathered.end(), from, from + run.rows * row_bytes);
          rows += run.rows;
        }
        return PackRows(tensor, gathered.data(), rows, cols, to);
      });
}

void WeightBinder::LinearLayer(
    const std::string& name, int64_t rows, int64_t cols, bool bias, Linear* to) {
  Matrix(name + ".weight", rows, cols, &to->w);
  if (bias) Vector(name + ".bias", rows, TensorRole::kBias, &to->bias);
}

void WeightBinder::Vector(const std::string& name,
                          int64_t n,
                          TensorRole role,
                          std::vector<float>* to) {
  FlatVector(name, {n}, role, to);
}

void WeightBinder::FlatVector(const std::string& name,
                              const std::vector<int64_t>& shape,
                              TensorRole role,
                              std::vector<float>* to) {
  Request(name, shape, role)->consumers.push_back([to](const StoredTensor& tensor) {
    *to = Widen(tensor);
    return absl::OkStatus();
  });
}

void WeightBinder::NormPlusOne(const std::string& name, int64_t n, std::vector<float>* to) {
  // Around 0 in the file, so a bias to the generator.
  Request(name, {n}, TensorRole::kBias)->consumers.push_back([to](const StoredTensor& tensor) {
    *to = Widen(tensor);
    for (float& v : *to) v = 1.0f + v;
    return absl::OkStatus();
  });
}

void WeightBinder::Vector(const std::string& name,
                          int64_t n,
                          TensorRole role,
                          std::vector<float>* to,
                          float (*map)(float)) {
  Request(name, {n}, role)->consumers.push_back([to, map](const StoredTensor& tensor) {
    *to = Widen(tensor);
    for (float& v : *to) v = map(v);
    return absl::OkStatus();
  });
}

void WeightBinder::TransposedBlocks(const std::string& name,
                                    int64_t blocks,
                                    int64_t width,
                                    std::vector<Linear>* to) {
  Request(name, {blocks, width, width}, TensorRole::kLinear)
      ->consumers.push_back([=](const StoredTensor& tensor) -> Status {
        const DType dtype = KernelDType(tensor.dtype);
        const int64_t size = static_cast<int64_t>(kernel::DTypeSize(dtype));
        std::vector<std::byte> turned(static_cast<size_t>(width * width * size));
        for (int64_t b = 0; b < blocks; ++b) {
          const std::byte* block = tensor.bytes.data() + b * width * width * size;
          for (int64_t in = 0; in < width; ++in) {
            for (int64_t out = 0; out < width; ++out) {
              std::memcpy(turned.data() + (out * width + in) * size,
                          block + (in * width + out) * size, static_cast<size_t>(size));
            }
          }
          BATON_RETURN_IF_ERROR(PackRows(tensor, turned.data(), width, width, &(*to)[b].w));
        }
        return absl::OkStatus();
      });
}

void WeightBinder::BlockBiases(const std::string& name,
                               int64_t blocks,
                               int64_t width,
                               std::vector<Linear>* to) {
  Request(name, {blocks, width}, TensorRole::kBias)
      ->consumers.push_back([=](const StoredTensor& tensor) {
        const std::vector<float> in = Widen(tensor);
        for (int64_t b = 0; b < blocks; ++b)
          (*to)[b].bias.assign(in.begin() + b * width, in.begin() + (b + 1) * width);
        return absl::OkStatus();
      });
}

void WeightBinder::Conv(const std::string& name,
                        int64_t channels,
                        int64_t width,
                        std::vector<float>* to) {
  ConvRange(name, channels, width, ChannelRange{0, channels}, to);
}

void WeightBinder::ConvRange(const std::string& name,
                             int64_t channels,
                             int64_t width,
                             ChannelRange range,
                             std::vector<float>* to) {
  // Ranges may be filled side by side: whichever comes first makes room.
  std::shared_ptr<std::once_flag>& made = made_room_[to];
  if (made == nullptr) made = std::make_shared<std::once_flag>();
  Request(name, {channels, 1, width}, TensorRole::kConv)
      ->consumers.push_back([=, made = made](const StoredTensor& tensor) {
        std::call_once(*made, [&] { to->resize(static_cast<size_t>(range.all * width)); });
        const std::vector<float> in = Widen(tensor);
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t k = 0; k < width; ++k)
            (*to)[k * range.all + range.begin + c] = in[c * width + k];
        return absl::OkStatus();
      });
}

void WeightBinder::Decay(const std::string& name, int64_t n, std::vector<float>* to) {
  Request(name, {n}, TensorRole::kALog)->consumers.push_back([to](const StoredTensor& tensor) {
    *to = Widen(tensor);
    for (float& v : *to) v = DecayOf(v);
    return absl::OkStatus();
  });
}

void WeightBinder::Decay2d(const std::string& name,
                           const std::vector<int64_t>& shape,
                           std::vector<float>* to) {
  const int64_t state = shape.back();
  Request(name, shape, TensorRole::kALog)->consumers.push_back([=](const StoredTensor& tensor) {
    const std::vector<float> in = Widen(tensor);
    const int64_t channels = static_cast<int64_t>(in.size()) / state;
    to->resize(in.size());
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t n = 0; n < state; ++n) (*to)[n * channels + c] = DecayOf(in[c * state + n]);
    return absl::OkStatus();
  });
}

bool WeightBinder::IsIgnored(const std::string& name) const {
  // Saved by old versions of the library; computed from the config here.
  if (absl::EndsWith(name, ".rotary_emb.inv_freq")) return true;
  for (const std::string& prefix : ignored_prefixes_)
    if (absl::StartsWith(name, prefix)) return true;
  for (const std::string& ignored : ignored_)
    if (name == ignored) return true;
  return false;
}

const StoredTensor* WeightBinder::Resolve(const Checkpoint& checkpoint,
                                          const TensorRequest& request) const {
  if (const StoredTensor* tensor = checkpoint.Find(request.name)) return tensor;
  // Every set of second spellings, in the order they were given: few, and few names need them.
  std::vector<std::string> names = {request.name};
  for (const auto& [part, other] : also_named_) {
    const size_t known = names.size();
    for (size_t i = 0; i < known && names.size() < kNamesMax; ++i) {
      const size_t at = names[i].find(part);
      if (at == std::string::npos) continue;
      std::string name = names[i];
      name.replace(at, part.size(), other);
      if (const StoredTensor* tensor = checkpoint.Find(name)) return tensor;
      names.push_back(std::move(name));
    }
  }
  return nullptr;
}

bool WeightBinder::Has(const std::string& name) const {
  if (checkpoint_ == nullptr) return false;
  TensorRequest request;
  request.name = name;
  return Resolve(*checkpoint_, request) != nullptr;
}

const StoredTensor* WeightBinder::ScalesOf(const Checkpoint& checkpoint,
                                           const StoredTensor& tensor) const {
  if (!block_scales_.has_value() || tensor.dtype != TensorDType::kF8E4M3) return nullptr;
  return checkpoint.Find(ScaleName(tensor.name));
}

std::string WeightBinder::Problem(const Checkpoint& checkpoint,
                                  const TensorRequest& request,
                                  const StoredTensor& tensor) const {
  if (tensor.shape != request.shape) {
    return absl::StrCat("tensor \"", tensor.name, "\" has shape ", ShapeText(tensor.shape),
                        ", config.json asks for ", ShapeText(request.shape));
  }
  if (IsWeightDType(tensor.dtype)) return "";
  const bool blocks =
      block_scales_.has_value() && tensor.dtype == TensorDType::kF8E4M3 && tensor.shape.size() >= 2;
  if (!blocks) {
    return absl::StrCat("tensor \"", tensor.name, "\" has dtype ", TensorDTypeName(tensor.dtype),
                        "; F32, BF16 and F16 are supported: use the BF16 release");
  }
  const std::string name = ScaleName(tensor.name);
  const StoredTensor* scales = checkpoint.Find(name);
  const std::vector<int64_t> shape = ScaleShape(tensor.shape, *block_scales_);
  if (scales == nullptr) {
    return absl::StrCat("tensor \"", name, "\" of shape ", ShapeText(shape), " is missing: \"",
                        tensor.name, "\" is F8_E4M3 and needs its block scales");
  }
  if (scales->dtype != TensorDType::kF32 && scales->dtype != TensorDType::kBF16) {
    return absl::StrCat("tensor \"", name, "\" has dtype ", TensorDTypeName(scales->dtype),
                        "; scales are F32 or BF16");
  }
  if (scales->shape != shape) {
    return absl::StrCat("tensor \"", name, "\" has shape ", ShapeText(scales->shape),
                        ", blocks of ", block_scales_->rows, " x ", block_scales_->cols,
                        " ask for ", ShapeText(shape));
  }
  return "";
}

std::vector<std::string> WeightBinder::Compare(const Checkpoint& checkpoint) const {
  std::vector<std::string> problems;
  std::set<const StoredTensor*> read;
  for (const TensorRequest& request : requests_) {
    const StoredTensor* tensor = Resolve(checkpoint, request);
    if (tensor == nullptr) {
      problems.push_back(absl::StrCat("tensor \"", request.name, "\" of shape ",
                                      ShapeText(request.shape),
                                      " is missing; config.json and weights do not belong "
                                      "together, or a shard is missing"));
      continue;
    }
    read.insert(tensor);
    if (const StoredTensor* scales = ScalesOf(checkpoint, *tensor)) read.insert(scales);
    std::string problem = Problem(checkpoint, request, *tensor);
    if (!problem.empty()) problems.push_back(std::move(problem));
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (read.count(tensor) > 0 || IsIgnored(name)) continue;
    // Skipping it would compute something else than the checkpoint's author meant.
    problems.push_back(absl::StrCat(
        "tensor \"", name, "\" of shape ", ShapeText(tensor->shape),
        " is not part of this model type: it is quantised, adapted or an unknown variant"));
  }
  return problems;
}

std::vector<std::pair<std::string, int64_t>> WeightBinder::IgnoredByPrefix(
    const Checkpoint& checkpoint) const {
  std::vector<std::pair<std::string, int64_t>> counts;
  for (const std::string& prefix : ignored_prefixes_) {
    int64_t n = 0;
    for (const auto& [name, tensor] : checkpoint.tensors()) n += absl::StartsWith(name, prefix);
    if (n > 0) counts.emplace_back(prefix, n);
  }
  return counts;
}

}  // namespace baton::model
