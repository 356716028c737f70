#include <utility>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "model/safetensors.h"

namespace baton::model {

StatusOr<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path,
    const std::vector<TensorSpec>& specs,
    const std::map<std::string, std::string>& metadata) {
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorSpec& spec : specs) {
    const std::optional<uint64_t> bytes = TensorBytes(spec.dtype, spec.shape);
    if (!bytes.has_value() || header.contains(spec.name)) {
      return absl::InvalidArgumentError(absl::StrCat("cannot write tensor \"", spec.name,
                                                     "\": shape ", ShapeText(spec.shape),
                                                     " is too large or the name repeats"));
    }
    header[spec.name] = {{"dtype", TensorDTypeName(spec.dtype)},
                         {"shape", spec.shape},
                         {"data_offsets", {offset, offset + *bytes}}};
    offset += *bytes;
  }
  std::string text = DumpJson(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data starts aligned to 8 bytes

  SafetensorsWriter writer;
  writer.path_ = path;
  writer.expected_bytes_ = offset;
  writer.out_ = std::make_unique<std::ofstream>(path, std::ios::binary | std::ios::trunc);
  const uint64_t length = text.size();
  writer.out_->write(reinterpret_cast<const char*>(&length), 8);
  writer.out_->write(text.data(), static_cast<std::streamsize>(text.size()));
  if (!*writer.out_) return absl::InternalError(absl::StrCat("cannot write \"", path, "\""));
  return writer;
}

Status SafetensorsWriter::Append(ByteSpan bytes) {
  appended_bytes_ += bytes.size();
  if (appended_bytes_ > expected_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat("\"", path_, "\": more than the promised ",
                                                      expected_bytes_, " bytes appended"));
  }
  out_->write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
  if (!*out_)
    return absl::InternalError(absl::StrCat("writing \"", path_, "\" failed: disk full?"));
  return absl::OkStatus();
}

Status SafetensorsWriter::Close() {
  out_->close();
  if (appended_bytes_ != expected_bytes_) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", path_, "\": ", appended_bytes_, " of the promised ", expected_bytes_, " bytes"));
  }
  if (!*out_)
    return absl::InternalError(absl::StrCat("closing \"", path_, "\" failed: disk full?"));
  return absl::OkStatus();
}

}  // namespace baton::model
