#include "model/weight_binder.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernel/functions.h"

namespace baton::model {
namespace {

using kernel::DType;

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
  Request(name, shape, TensorRole::kLinear)
      ->consumers.push_back([=](const StoredTensor& tensor) -> Status {
        const DType dtype = KernelDType(tensor.dtype);
        const std::byte* source =
            tensor.bytes.data() + begin * cols * static_cast<int64_t>(kernel::DTypeSize(dtype));
        StatusOr<kernel::PackedMatrix> packed =
            kernel::PackedMatrix::Pack(source, dtype, rows, cols, cols, nullptr);
        if (!packed.ok()) {
          return Status(packed.status().code(),
                        absl::StrCat("tensor \"", tensor.name, "\": ", packed.status().message()));
        }
        *to = std::move(packed).value();
        return absl::OkStatus();
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
  Request(name, {n}, role)->consumers.push_back([to](const StoredTensor& tensor) {
    *to = Widen(tensor);
    return absl::OkStatus();
  });
}

void WeightBinder::Conv(const std::string& name,
                        int64_t channels,
                        int64_t width,
                        std::vector<float>* to) {
  Request(name, {channels, 1, width}, TensorRole::kConv)
      ->consumers.push_back([=](const StoredTensor& tensor) {
        const std::vector<float> in = Widen(tensor);
        to->resize(in.size());
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t k = 0; k < width; ++k) (*to)[k * channels + c] = in[c * width + k];
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
                           int64_t channels,
                           int64_t state,
                           std::vector<float>* to) {
  Request(name, {channels, state}, TensorRole::kALog)
      ->consumers.push_back([=](const StoredTensor& tensor) {
        const std::vector<float> in = Widen(tensor);
        to->resize(in.size());
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t n = 0; n < state; ++n) (*to)[n * channels + c] = DecayOf(in[c * state + n]);
        return absl::OkStatus();
      });
}

bool WeightBinder::IsIgnored(const std::string& name) const {
  // Saved by old versions of the library; computed from the config here.
  if (absl::EndsWith(name, ".rotary_emb.inv_freq")) return true;
  for (const std::string& ignored : ignored_)
    if (name == ignored) return true;
  return false;
}

std::vector<std::string> WeightBinder::Compare(const Checkpoint& checkpoint) const {
  std::vector<std::string> problems;
  for (const TensorRequest& request : requests_) {
    const StoredTensor* tensor = checkpoint.Find(request.name);
    if (tensor == nullptr) {
      problems.push_back(absl::StrCat("tensor \"", request.name, "\" of shape ",
                                      ShapeText(request.shape),
                                      " is missing; config.json and weights do not belong "
                                      "together, or a shard is missing"));
    } else if (tensor->shape != request.shape) {
      problems.push_back(absl::StrCat("tensor \"", request.name, "\" has shape ",
                                      ShapeText(tensor->shape), ", config.json asks for ",
                                      ShapeText(request.shape)));
    } else if (!IsWeightDType(tensor->dtype)) {
      problems.push_back(absl::StrCat("tensor \"", request.name, "\" has dtype ",
                                      TensorDTypeName(tensor->dtype),
                                      "; F32, BF16 and F16 are supported: use the BF16 release"));
    }
  }
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (index_.count(name) > 0 || IsIgnored(name)) continue;
    // Skipping it would compute something else than the checkpoint's author meant.
    problems.push_back(absl::StrCat(
        "tensor \"", name, "\" of shape ", ShapeText(tensor->shape),
        " is not part of this model type: it is quantised, adapted or an unknown variant"));
  }
  return problems;
}

}  // namespace baton::model
