#include "model/safetensors_header.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace baton::model {
namespace {

constexpr size_t kDimensionsMax = 8;

struct DTypeEntry {
  TensorDType dtype;
  const char* name;
  size_t bytes;
};
constexpr DTypeEntry kDTypes[] = {
    {TensorDType::kBool, "BOOL", 1},      {TensorDType::kU8, "U8", 1},
    {TensorDType::kI8, "I8", 1},          {TensorDType::kF8E4M3, "F8_E4M3", 1},
    {TensorDType::kF8E5M2, "F8_E5M2", 1}, {TensorDType::kI16, "I16", 2},
    {TensorDType::kU16, "U16", 2},        {TensorDType::kF16, "F16", 2},
    {TensorDType::kBF16, "BF16", 2},      {TensorDType::kI32, "I32", 4},
    {TensorDType::kU32, "U32", 4},        {TensorDType::kF32, "F32", 4},
    {TensorDType::kI64, "I64", 8},        {TensorDType::kU64, "U64", 8},
    {TensorDType::kF64, "F64", 8},
};

const DTypeEntry& EntryOf(TensorDType dtype) {
  for (const DTypeEntry& e : kDTypes)
    if (e.dtype == dtype) return e;
  BATON_CHECK(false);
}

// Accepts {"__metadata__": {string: string}, name: {"dtype", "shape", "data_offsets"}}.
class HeaderHandler final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t) override { return Unexpected("a negative number"); }
  bool number_float(number_float_t, const string_t&) override {
    return Unexpected("a number that is not a whole number");
  }
  bool binary(binary_t&) override { return Unexpected("binary"); }

  bool number_unsigned(number_unsigned_t v) override {
    if (where_ == Where::kShape) {
      if (v > static_cast<uint64_t>(INT64_MAX)) return Fail("a dimension does not fit 63 bits");
      if (tensor_.shape.size() == kDimensionsMax) return Fail("more than 8 dimensions");
      tensor_.shape.push_back(static_cast<int64_t>(v));
      return true;
    }
    if (where_ == Where::kOffsets) {
      if (offsets_ == 2) return Fail("data_offsets has more than two numbers");
      (offsets_++ == 0 ? tensor_.begin : tensor_.end) = v;
      return true;
    }
    return Unexpected("a number");
  }

  bool string(string_t& v) override {
    if (where_ == Where::kMetadata && !field_.empty()) {
      out_.metadata[field_] = v;
      return true;
    }
    if (where_ != Where::kTensor || field_ != "dtype") return Unexpected("a string");
    for (const DTypeEntry& e : kDTypes) {
      if (e.name == v) {
        tensor_.dtype = e.dtype;
        have_dtype_ = true;
        return true;
      }
    }
    return Fail(absl::StrCat("dtype \"", v, "\" is not supported (F32, BF16 and F16 are); ",
                             "convert the checkpoint to BF16"));
  }

  bool start_object(std::size_t) override {
    switch (where_) {
      case Where::kStart:
        where_ = Where::kTop;
        return true;
      case Where::kName:
        tensor_ = RawTensor{};
        tensor_.name = name_;
        have_dtype_ = have_shape_ = false;
        offsets_ = 0;
        field_.clear();
        where_ = name_ == "__metadata__" ? Where::kMetadata : Where::kTensor;
        return true;
      default:
        return Unexpected("an object");
    }
  }

  bool key(string_t& v) override {
    if (where_ == Where::kTop) {
      name_ = v;
      where_ = Where::kName;
      return true;
    }
    field_ = v;
    if (where_ == Where::kMetadata) return !v.empty() || Fail("metadata with an empty key");
    if (v == "dtype" && !have_dtype_) return true;
    if (v == "shape" && !have_shape_) return true;
    if (v == "data_offsets" && offsets_ == 0) return true;
    return Fail(absl::StrCat("unknown or repeated field \"", v, "\""));
  }

  bool end_object() override {
    if (where_ == Where::kTensor) {
      if (!have_dtype_ || !have_shape_ || offsets_ != 2)
        return Fail("dtype, shape or data_offsets is missing");
      out_.tensors.push_back(std::move(tensor_));
      where_ = Where::kTop;
    } else if (where_ == Where::kMetadata) {
      where_ = Where::kTop;
    } else {
      where_ = Where::kEnd;
    }
    return true;
  }

  bool start_array(std::size_t) override {
    if (where_ != Where::kTensor) return Unexpected("an array");
    if (field_ == "shape") {
      where_ = Where::kShape;
    } else if (field_ == "data_offsets") {
      where_ = Where::kOffsets;
    } else {
      return Unexpected("an array");
    }
    return true;
  }

  bool end_array() override {
    if (where_ == Where::kShape) have_shape_ = true;
    where_ = Where::kTensor;
    return true;
  }

  bool parse_error(std::size_t position,
                   const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(absl::StrCat("not valid JSON in UTF-8 at byte ", position));
  }

  StatusOr<RawHeader> Take(bool parsed) {
    if (!error_.ok()) return error_;
    if (!parsed || where_ != Where::kEnd)
      return absl::InvalidArgumentError("safetensors header is not a JSON object");
    return std::move(out_);
  }

 private:
  enum class Where { kStart, kTop, kName, kTensor, kShape, kOffsets, kMetadata, kEnd };

  bool Unexpected(const char* what) { return Fail(absl::StrCat("unexpected ", what)); }
  bool Fail(const std::string& what) {
    if (error_.ok()) {
      error_ = absl::InvalidArgumentError(
          name_.empty() ? absl::StrCat("safetensors header: ", what)
                        : absl::StrCat("safetensors header, entry \"", name_, "\": ", what));
    }
    return false;
  }

  Where where_ = Where::kStart;
  std::string name_;
  std::string field_;
  RawTensor tensor_;
  bool have_dtype_ = false;
  bool have_shape_ = false;
  int offsets_ = 0;
  RawHeader out_;
  Status error_;
};

}  // namespace

const char* TensorDTypeName(TensorDType dtype) { return EntryOf(dtype).name; }
size_t TensorDTypeBytes(TensorDType dtype) { return EntryOf(dtype).bytes; }

StatusOr<RawHeader> ParseRawHeader(std::string_view json) {
  HeaderHandler handler;
  const bool parsed = nlohmann::json::sax_parse(json.begin(), json.end(), &handler);
  return handler.Take(parsed);
}

}  // namespace baton::model
