// Bundles at rest, opened for tampering: a checkpoint in pool memory, an object of the host or disk
// tier, a parked sequence. What is changed is changed where it lies; whoever reuses it later finds
// it so. On disk the files themselves are rewritten, truncated and renamed.
// Thread rule: one thread, while nothing reads the bundle.
#ifndef BATON_DRILL_AT_REST_H_
#define BATON_DRILL_AT_REST_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "connector/connector.h"
#include "drill/bundle.h"
#include "engine/parked.h"
#include "identity/seal.h"
#include "tier/object_store.h"

namespace baton::drill {

// Where a state waits for its next use.
enum class Rest { kNowhere, kMemory, kHost, kDisk, kParked };
// "", "memory", "host", "disk", "parking".
const char* RestName(Rest rest);

class Resting {
 public:
  virtual ~Resting() = default;
  // Empty if the bundle has no such part.
  virtual MutableByteSpan Part(PartKey key) = 0;
  // The part is not there any more. kUnimplemented in pool memory.
  virtual Status Drop(PartKey key) = 0;
  virtual Seal* seal() = 0;
};

class RestingParked final : public Resting {
 public:
  explicit RestingParked(engine::ParkedBundle* bundle) : bundle_(bundle) {}
  MutableByteSpan Part(PartKey key) override { return bundle_->BytesForTesting(key); }
  Status Drop(PartKey key) override {
    bundle_->DropPartForTesting(key);
    return absl::OkStatus();
  }
  Seal* seal() override { return const_cast<Seal*>(&bundle_->seal()); }

 private:
  engine::ParkedBundle* bundle_;
};

// Writes into bytes of the arena that a checkpoint owns; `pin` keeps them in place.
class RestingCheckpoint final : public Resting {
 public:
  using Find = std::function<MutableByteSpan(PartKey)>;
  RestingCheckpoint(Seal* seal, Find find) : seal_(seal), find_(std::move(find)) {}
  MutableByteSpan Part(PartKey key) override { return find_(key); }
  Status Drop(PartKey) override { return absl::UnimplementedError("a unit has all its parts"); }
  Seal* seal() override { return seal_; }

 private:
  Seal* seal_;
  Find find_;
};

// The objects of one tier.
class ObjectsAtRest {
 public:
  // `directory`: of the disk tier, else "".
  ObjectsAtRest(ObjectStore* store, std::string directory)
      : store_(store), directory_(std::move(directory)) {}
  StatusOr<std::vector<uint8_t>> Read(const ObjectName& name) const;
  // In place of an object of that name.
  Status Write(const ObjectName& name, std::span<const uint8_t> object) const;
  Status Remove(const ObjectName& name) const;

 private:
  ObjectStore* store_;
  std::string directory_;
};

// A bundle's object; Save writes it back.
class RestingObject final : public Resting {
 public:
  static StatusOr<std::unique_ptr<RestingObject>> Open(const ObjectsAtRest& objects,
                                                       const ObjectName& name);
  MutableByteSpan Part(PartKey key) override;
  Status Drop(PartKey key) override;
  Seal* seal() override { return &header.seal; }
  // `raw` sees the object's bytes as they will lie; may be null.
  Status Save(const std::function<void(std::vector<uint8_t>*)>& raw);

  ObjectHeader header;

 private:
  RestingObject(const ObjectsAtRest& objects, const ObjectName& name)
      : objects_(objects), name_(name) {}
  const ObjectsAtRest objects_;
  const ObjectName name_;
  std::vector<uint8_t> payload_;
};

// Keeps a way to the store behind a tier.
std::unique_ptr<ObjectStore> KeepStore(std::unique_ptr<ObjectStore> inner, ObjectStore** kept);

}  // namespace baton::drill

#endif  // BATON_DRILL_AT_REST_H_
