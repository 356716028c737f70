// Reading whole small files (configs, templates, vocabularies) with a size limit, so that a wrong
// path or a hostile file cannot fill memory. Not for weights or tier objects, which are mapped or
// read in pieces. Thread rule: free functions.
#ifndef BATON_BASE_FILE_H_
#define BATON_BASE_FILE_H_

#include <cstddef>
#include <string>

#include "base/status.h"

namespace baton {

// The bytes of the regular file at `path`. NotFound if it does not exist, InvalidArgument if it is
// not a regular file or holds more than `bytes_max` bytes, Internal if reading fails.
StatusOr<std::string> ReadFileBytes(const std::string& path, size_t bytes_max);

// True if `path` names an existing regular file.
bool FileExists(const std::string& path);

}  // namespace baton

#endif  // BATON_BASE_FILE_H_
