#include "model/step.h"

#include "absl/strings/str_cat.h"

namespace baton::model {

Workspace::Workspace() : impl_(std::make_unique<Impl>()) {}
Workspace::~Workspace() = default;

Status Arena::Reserve(int64_t floats) {
  used_ = 0;
  if (floats <= capacity_) return absl::OkStatus();
  // A little more than asked, so that a batch that grows row by row does not allocate each time.
  const int64_t capacity = Rounded(floats + floats / 8);
  data_.reset();
  capacity_ = 0;
  data_.reset(
      static_cast<float*>(std::aligned_alloc(64, static_cast<size_t>(capacity) * sizeof(float))));
  if (data_ == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory for ", capacity * sizeof(float), " bytes of activations"));
  }
  capacity_ = capacity;
  return absl::OkStatus();
}

}  // namespace baton::model
