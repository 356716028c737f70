// Reading and writing safetensors files: an 8-byte little-endian header length, a JSON header that
// names each tensor's dtype, shape and byte range, then the bytes. The reader maps the file and
// hands out views; it copies and converts nothing. Every promise of the header is checked when the
// file is opened, so a view can never reach outside the file or into another tensor.
//
// Refused by name: header longer than the file or than kHeaderBytesMax, bad JSON or UTF-8,
// duplicate names, unknown dtypes, shape * dtype != bytes, ranges past the end or overlapping.
// Bytes that belong to no tensor are allowed.
//
// Thread rule: a SafetensorsFile is immutable; views live as long as it does.
#ifndef BATON_MODEL_SAFETENSORS_H_
#define BATON_MODEL_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"

namespace baton::model {

inline constexpr size_t kHeaderBytesMax = size_t{100} << 20;

// Element types a file may hold. Weights are used as kF32, kBF16 or kF16 only.
enum class TensorDType : uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kI16,
  kU16,
  kF16,
  kBF16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};
const char* TensorDTypeName(TensorDType dtype);  // "F32", as in the file
size_t TensorDTypeBytes(TensorDType dtype);

struct StoredTensor {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<int64_t> shape;
  ByteSpan bytes;

  int64_t elements() const;
};

// "[4, 48, 32]".
std::string ShapeText(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // sorted by name
  std::map<std::string, std::string> metadata;
};

// Parses and checks a whole file given as bytes; views point into `file`.
StatusOr<SafetensorsHeader> ParseSafetensors(ByteSpan file);

class SafetensorsFile {
 public:
  // Errors name the path.
  static StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null if there is none of that name.
  const StoredTensor* Find(std::string_view name) const;
  // Gives the view's whole pages back to the system; they are read again if touched again.
  void ReleasePages(ByteSpan bytes) const;

 private:
  SafetensorsFile() = default;
  std::string path_;
  void* map_ = nullptr;
  size_t size_ = 0;
  SafetensorsHeader header_;
};

struct TensorSpec {
  std::string name;
  TensorDType dtype = TensorDType::kF32;
  std::vector<int64_t> shape;
};

// Streams one file to disk: the header is fixed at Create, then the tensors' bytes are appended in
// the order of `specs`. Nothing is held in memory but one stream buffer.
class SafetensorsWriter {
 public:
  static StatusOr<SafetensorsWriter> Create(const std::string& path,
                                            const std::vector<TensorSpec>& specs,
                                            const std::map<std::string, std::string>& metadata);
  // Any number of bytes; tensors follow each other without gaps.
  Status Append(ByteSpan bytes);
  // Fails unless exactly the promised bytes were appended.
  Status Close();

 private:
  std::string path_;
  std::unique_ptr<std::ofstream> out_;
  uint64_t expected_bytes_ = 0;
  uint64_t appended_bytes_ = 0;
};

// Bytes of a tensor of this shape; nullopt where the product does not fit 62 bits or a dimension
// is negative.
std::optional<uint64_t> TensorBytes(TensorDType dtype, const std::vector<int64_t>& shape);

}  // namespace baton::model

#endif  // BATON_MODEL_SAFETENSORS_H_
