#include "base/file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace baton {

StatusOr<std::string> ReadFileBytes(const std::string& path, size_t bytes_max) {
  std::error_code error;
  const std::filesystem::file_status status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status))
    return absl::NotFoundError(absl::StrCat("file \"", path, "\" does not exist"));
  if (!std::filesystem::is_regular_file(status))
    return absl::InvalidArgumentError(absl::StrCat("\"", path, "\" is not a regular file"));
  std::ifstream in(path, std::ios::binary);
  if (!in) return absl::InternalError(absl::StrCat("cannot open \"", path, "\" for reading"));
  std::string bytes;
  // The size is not trusted: the file may grow between a stat and the read.
  constexpr size_t kChunk = size_t{1} << 20;
  while (in) {
    const size_t have = bytes.size();
    bytes.resize(have + kChunk);
    in.read(bytes.data() + have, kChunk);
    bytes.resize(have + static_cast<size_t>(in.gcount()));
    if (bytes.size() > bytes_max) {
      return absl::InvalidArgumentError(
          absl::StrCat("file \"", path, "\" is larger than the limit of ", bytes_max, " bytes"));
    }
  }
  if (!in.eof()) return absl::InternalError(absl::StrCat("reading \"", path, "\" failed"));
  return bytes;
}

bool FileExists(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

}  // namespace baton
