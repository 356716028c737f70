#include "model/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/safetensors_header.h"

namespace baton::model {
namespace {

Status CheckExtents(std::vector<StoredTensor>* tensors) {
  // Sorted by address, each tensor must start where the ones before it have ended.
  std::vector<const StoredTensor*> order;
  for (const StoredTensor& t : *tensors)
    if (!t.bytes.empty()) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return a->bytes.data() < b->bytes.data();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    const ByteSpan before = order[i - 1]->bytes;
    if (before.data() + before.size() > order[i]->bytes.data()) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensors \"", order[i - 1]->name, "\" and \"", order[i]->name,
                       "\" overlap in the file; the file is damaged, fetch it again"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

int64_t StoredTensor::elements() const {
  return static_cast<int64_t>(bytes.size() / TensorDTypeBytes(dtype));
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

std::optional<uint64_t> TensorBytes(TensorDType dtype, const std::vector<int64_t>& shape) {
  uint64_t n = TensorDTypeBytes(dtype);
  for (const int64_t d : shape) {
    if (d < 0) return std::nullopt;
    if (__builtin_mul_overflow(n, static_cast<uint64_t>(d), &n) || n >> 62 != 0)
      return std::nullopt;
  }
  return n;
}

StatusOr<SafetensorsHeader> ParseSafetensors(ByteSpan file) {
  if (file.size() < 8) {
    return absl::InvalidArgumentError(absl::StrCat(
        "file has ", file.size(), " bytes, a safetensors file has at least 8: truncated?"));
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kHeaderBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("header length ", header_bytes,
                                                   " is above the limit of ", kHeaderBytesMax,
                                                   " bytes: not a safetensors file?"));
  }
  if (header_bytes > file.size() - 8) {
    return absl::InvalidArgumentError(absl::StrCat("header length ", header_bytes,
                                                   " is longer than the file (", file.size(),
                                                   " bytes): truncated, fetch it again"));
  }
  const ByteSpan data = file.subspan(8 + header_bytes);
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  BATON_ASSIGN_OR_RETURN(RawHeader raw, ParseRawHeader(text));

  SafetensorsHeader header;
  header.metadata = std::move(raw.metadata);
  header.tensors.reserve(raw.tensors.size());
  for (RawTensor& t : raw.tensors) {
    const std::optional<uint64_t> bytes = TensorBytes(t.dtype, t.shape);
    if (t.begin > t.end || t.end > data.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor \"", t.name, "\" claims bytes ", t.begin, " to ", t.end, ", but the file has ",
          data.size(), " after its header: truncated, fetch it again"));
    }
    if (!bytes.has_value() || *bytes != t.end - t.begin) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", t.name, "\" of shape ", ShapeText(t.shape), " and dtype ",
                       TensorDTypeName(t.dtype), " needs ",
                       bytes.has_value() ? absl::StrCat(*bytes) : std::string("more than 2^62"),
                       " bytes, its range holds ", t.end - t.begin));
    }
    header.tensors.push_back(StoredTensor{std::move(t.name), t.dtype, std::move(t.shape),
                                          data.subspan(t.begin, t.end - t.begin)});
  }
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    if (header.tensors[i].name == header.tensors[i - 1].name) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", header.tensors[i].name, "\" is named twice in the header"));
    }
  }
  BATON_RETURN_IF_ERROR(CheckExtents(&header.tensors));
  return header;
}

StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    const std::string text = absl::StrCat("cannot open \"", path, "\": ", strerror(errno));
    return errno == ENOENT ? absl::NotFoundError(text) : absl::InternalError(text);
  }
  struct stat info;
  const bool regular = fstat(fd, &info) == 0 && S_ISREG(info.st_mode);
  const size_t size = regular ? static_cast<size_t>(info.st_size) : 0;
  void* map = MAP_FAILED;
  if (regular && size > 0) map = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  close(fd);
  if (!regular)
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is not a regular file"));
  if (size > 0 && map == MAP_FAILED)
    return absl::InternalError(absl::StrCat("cannot map \"", path, "\": ", strerror(errno)));

  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile);
  file->path_ = path;
  file->map_ = size > 0 ? map : nullptr;
  file->size_ = size;
  StatusOr<SafetensorsHeader> header =
      ParseSafetensors(ByteSpan(static_cast<const std::byte*>(file->map_), size));
  if (!header.ok())
    return Status(header.status().code(),
                  absl::StrCat("\"", path, "\": ", header.status().message()));
  file->header_ = std::move(header).value();
  return file;
}

SafetensorsFile::~SafetensorsFile() {
  if (map_ != nullptr) munmap(map_, size_);
}

const StoredTensor* SafetensorsFile::Find(std::string_view name) const {
  const auto it = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const StoredTensor& t, std::string_view n) { return std::string_view(t.name) < n; });
  return it != header_.tensors.end() && it->name == name ? &*it : nullptr;
}

void SafetensorsFile::ReleasePages(ByteSpan bytes) const {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + bytes.size()) / page * page;
  if (first < last) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
}

}  // namespace baton::model
