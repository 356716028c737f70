// Where a tier's objects lie: memory, a directory. A store moves bytes under names and knows
// nothing of what they mean; budget, eviction, sharing and every check are the Tier's, so that they
// are the same for all stores.
// Thread rule: a store is thread-safe, as long as nobody creates or removes the same name at once;
// a reader or writer belongs to one thread, which holds at most one of them at a time (a store may
// bound how many there are by waiting), and ends before its store.
#ifndef BATON_TIER_OBJECT_STORE_H_
#define BATON_TIER_OBJECT_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "tier/state_object.h"

namespace baton {

// An object being written, front to back. Nothing of it can be seen before Commit; destroyed
// without, it never was.
class ObjectWriter {
 public:
  virtual ~ObjectWriter() = default;
  // The next `bytes` of the object: contiguous, writable until the next call, to be filled
  // entirely. `bytes` is at most ObjectSize::largest.
  virtual StatusOr<MutableByteSpan> Next(uint64_t bytes) = 0;
  // All bytes have been written. Replaces an object of that name.
  virtual Status Commit() = 0;
};

class ObjectReader {
 public:
  virtual ~ObjectReader() = default;
  virtual uint64_t size() const = 0;
  // 1..bytes_max bytes from `offset`, good until the next call; none at the object's end. Fewer
  // than asked for is no error. Cheapest in ascending order.
  virtual StatusOr<ByteSpan> Read(uint64_t offset, uint64_t bytes_max) = 0;
};

// Whether more than the header will be read.
enum class ReadAhead { kNone, kWhole };

struct ObjectSize {
  uint64_t bytes = 0;    // of the whole object
  uint64_t largest = 0;  // of one Next
};

// One object found at start.
struct StoredObject {
  ObjectName name;
  uint64_t bytes = 0;
  int64_t age_rank = 0;  // ascending: older first
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  // "host", "disk"; for messages and metrics.
  virtual std::string_view name() const = 0;
  // kNoCapacity if the medium is full, kPeerUnavailable if it fails.
  virtual StatusOr<std::unique_ptr<ObjectWriter>> Create(const ObjectName& name,
                                                         const ObjectSize& size) = 0;
  // NotFound if there is no such object, kPeerUnavailable if the medium fails.
  virtual StatusOr<std::unique_ptr<ObjectReader>> Open(const ObjectName& name, ReadAhead ahead) = 0;
  // Not an error if there is none.
  virtual Status Remove(const ObjectName& name) = 0;
  // What lay there when the store was opened; `foreign` counts what has no name of ours.
  virtual std::vector<StoredObject> Found(uint64_t* foreign) = 0;
};

}  // namespace baton

#endif  // BATON_TIER_OBJECT_STORE_H_
