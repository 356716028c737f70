#include "model/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/json.h"

namespace baton::model {
namespace {

namespace fs = std::filesystem;

// What to say of a directory without safetensors files.
Status NoWeights(const std::string& dir) {
  std::error_code error;
  fs::directory_iterator it(dir, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("model directory \"", dir, "\" cannot be read: ", error.message()));
  }
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (absl::EndsWith(name, ".gguf")) {
      return absl::UnimplementedError(
          absl::StrCat("\"", dir, "\" holds GGUF weights (", name,
                       "), which are not supported; use the safetensors release of the model"));
    }
    if (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".pt") ||
        absl::EndsWith(name, ".pth")) {
      return absl::UnimplementedError(absl::StrCat("\"", dir, "\" holds pickled weights (", name,
                                                   "), which are not supported; convert them with "
                                                   "save_pretrained(safe_serialization=True)"));
    }
  }
  return absl::NotFoundError(
      absl::StrCat("\"", dir, "\" has neither model.safetensors nor model.safetensors.index.json; ",
                   "fetch the model's weights"));
}

// A shard is a file beside the index, never somewhere else.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

StatusOr<std::unique_ptr<Checkpoint>> Checkpoint::Open(const std::string& dir) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  const std::string single = dir + "/model.safetensors";
  const std::string index = dir + "/model.safetensors.index.json";
  if (FileExists(single)) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(single));
    BATON_RETURN_IF_ERROR(checkpoint->Add(std::move(file)));
  } else if (FileExists(index)) {
    BATON_RETURN_IF_ERROR(checkpoint->OpenShards(dir, index));
  } else {
    return NoWeights(dir);
  }
  return checkpoint;
}

Status Checkpoint::OpenShards(const std::string& dir, const std::string& index_path) {
  BATON_ASSIGN_OR_RETURN(const Json index, ReadJsonFile(index_path));
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", index_path, "\" has no object \"weight_map\""));
  }
  std::set<std::string> names;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !IsPlainFileName(file.get_ref<const std::string&>())) {
      return absl::InvalidArgumentError(absl::StrCat("\"", index_path, "\": tensor \"", tensor,
                                                     "\" is mapped to something that is no file ",
                                                     "name in the model directory"));
    }
    names.insert(file.get_ref<const std::string&>());
  }
  if (names.empty() || names.size() > kShardsMax) {
    return absl::InvalidArgumentError(absl::StrCat("\"", index_path, "\" lists ", names.size(),
                                                   " shards; 1 to ", kShardsMax, " expected"));
  }
  for (const std::string& name : names) {
    BATON_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file,
                           SafetensorsFile::Open(absl::StrCat(dir, "/", name)));
    BATON_RETURN_IF_ERROR(Add(std::move(file)));
  }
  for (const auto& [tensor, file] : map->items()) {
    const std::string found = FileOf(tensor);
    const std::string expected = absl::StrCat(dir, "/", file.get_ref<const std::string&>());
    if (found != expected) {
      return absl::InvalidArgumentError(absl::StrCat(
          "\"", index_path, "\": tensor \"", tensor, "\" should be in \"", expected, "\", but ",
          found.empty() ? std::string("no shard has it") : absl::StrCat("\"", found, "\" has it"),
          "; the shards belong to different downloads"));
    }
  }
  return absl::OkStatus();
}

Status Checkpoint::Add(std::unique_ptr<SafetensorsFile> file) {
  for (const StoredTensor& tensor : file->tensors()) {
    if (!tensors_.emplace(tensor.name, &tensor).second) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.name, "\" is in \"",
                                                     FileOf(tensor.name), "\" and in \"",
                                                     file->path(), "\"; remove the stale shard"));
    }
  }
  files_.push_back(std::move(file));
  return absl::OkStatus();
}

const StoredTensor* Checkpoint::Find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : it->second;
}

const SafetensorsFile* Checkpoint::Owner(const StoredTensor& tensor) const {
  for (const auto& file : files_)
    if (file->Find(tensor.name) == &tensor) return file.get();
  return nullptr;
}

std::string Checkpoint::FileOf(std::string_view name) const {
  const StoredTensor* tensor = Find(name);
  const SafetensorsFile* owner = tensor == nullptr ? nullptr : Owner(*tensor);
  return owner == nullptr ? std::string() : owner->path();
}

void Checkpoint::Release(const StoredTensor& tensor) const {
  if (const SafetensorsFile* owner = Owner(tensor)) owner->ReleasePages(tensor.bytes);
}

}  // namespace baton::model
