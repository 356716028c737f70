#include "drill/at_rest.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::drill {
namespace {

class KeptStore final : public ObjectStore {
 public:
  explicit KeptStore(std::unique_ptr<ObjectStore> inner) : inner_(std::move(inner)) {}
  std::string_view name() const override { return inner_->name(); }
  StatusOr<std::unique_ptr<ObjectWriter>> Create(const ObjectName& name,
                                                 const ObjectSize& size) override {
    return inner_->Create(name, size);
  }
  StatusOr<std::unique_ptr<ObjectReader>> Open(const ObjectName& name, ReadAhead ahead) override {
    return inner_->Open(name, ahead);
  }
  Status Remove(const ObjectName& name) override { return inner_->Remove(name); }
  std::vector<StoredObject> Found(uint64_t* foreign) override { return inner_->Found(foreign); }

 private:
  std::unique_ptr<ObjectStore> inner_;
};

}  // namespace

const char* RestName(Rest rest) {
  constexpr const char* kNames[] = {"", "memory", "host", "disk", "parking"};
  return kNames[static_cast<size_t>(rest)];
}

std::unique_ptr<ObjectStore> KeepStore(std::unique_ptr<ObjectStore> inner, ObjectStore** kept) {
  auto store = std::make_unique<KeptStore>(std::move(inner));
  *kept = store.get();
  return store;
}

StatusOr<std::vector<uint8_t>> ObjectsAtRest::Read(const ObjectName& name) const {
  std::vector<uint8_t> object;
  BATON_ASSIGN_OR_RETURN(auto reader, store_->Open(name, ReadAhead::kWhole));
  while (object.size() < reader->size()) {
    BATON_ASSIGN_OR_RETURN(const ByteSpan piece, reader->Read(object.size(), uint64_t{1} << 20));
    if (piece.empty()) break;
    const auto* bytes = reinterpret_cast<const uint8_t*>(piece.data());
    object.insert(object.end(), bytes, bytes + piece.size());
  }
  return object;
}

Status ObjectsAtRest::Write(const ObjectName& name, std::span<const uint8_t> object) const {
  if (!directory_.empty()) {  // as anything else on the machine could write it
    const std::string path = absl::StrCat(directory_, "/", name.FileName());
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out.write(reinterpret_cast<const char*>(object.data()),
              static_cast<std::streamsize>(object.size()));
    if (!out.flush()) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
    return absl::OkStatus();
  }
  BATON_ASSIGN_OR_RETURN(auto writer, store_->Create(name, {object.size(), object.size()}));
  BATON_ASSIGN_OR_RETURN(const MutableByteSpan to, writer->Next(object.size()));
  std::memcpy(to.data(), object.data(), object.size());
  return writer->Commit();
}

Status ObjectsAtRest::Remove(const ObjectName& name) const { return store_->Remove(name); }

StatusOr<std::unique_ptr<RestingObject>> RestingObject::Open(const ObjectsAtRest& objects,
                                                             const ObjectName& name) {
  auto resting = std::unique_ptr<RestingObject>(new RestingObject(objects, name));
  BATON_ASSIGN_OR_RETURN(const std::vector<uint8_t> object, objects.Read(name));
  BATON_ASSIGN_OR_RETURN(resting->header, DecodeObjectHeader(std::as_bytes(std::span(object))));
  resting->payload_.assign(object.begin() + static_cast<ptrdiff_t>(resting->header.PayloadOffset()),
                           object.end());
  return resting;
}

MutableByteSpan RestingObject::Part(PartKey key) {
  const ObjectPart* part = header.FindPart(key);
  if (part == nullptr) return {};
  return std::as_writable_bytes(std::span(payload_)).subspan(part->offset, part->bytes);
}

Status RestingObject::Drop(PartKey key) {
  std::erase_if(header.parts, [&](const ObjectPart& part) { return part.key == key; });
  return absl::OkStatus();
}

Status RestingObject::Save(const std::function<void(std::vector<uint8_t>*)>& raw) {
  std::vector<uint8_t> object = EncodeObjectHeader(header);
  object.insert(object.end(), payload_.begin(), payload_.end());
  if (raw != nullptr) raw(&object);
  return objects_.Write(name_, object);
}

}  // namespace baton::drill
