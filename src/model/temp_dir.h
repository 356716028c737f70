// A directory that is removed with its object. For tests only. Thread rule: plain object.
#ifndef BATON_MODEL_TEMP_DIR_H_
#define BATON_MODEL_TEMP_DIR_H_

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/status.h"

namespace baton::model {

class TempDir {
 public:
  TempDir() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-XXXXXX").string();
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDir() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(file(name), std::ios::binary | std::ios::trunc) << bytes;
  }

 private:
  std::string path_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_TEMP_DIR_H_
