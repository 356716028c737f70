// Read-only mappings of other processes' arenas, kept between links, because mapping and first
// touching a large arena costs as much as copying from it. A mapping is accepted only if its size
// is sealed, so that no peer can make a copy fault by shrinking the file.
// Thread rule: thread-safe.
#ifndef BATON_CONNECTOR_SHM_ARENA_MAP_H_
#define BATON_CONNECTOR_SHM_ARENA_MAP_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "connector/socket_stream.h"

namespace baton {

// Bytes of address space under the mappings of one cache. A file may be sparse and cost its owner
// nothing: without a bound a few of them leave this process no address to map its own memory at.
class MappedBytes {
 public:
  explicit MappedBytes(uint64_t max) : max_(max) {}
  uint64_t max() const { return max_; }
  bool Fits(uint64_t bytes) const { return bytes <= max_ && bytes_ <= max_ - bytes; }
  // False, and nothing taken, unless it fits.
  bool Take(uint64_t bytes);
  void Give(uint64_t bytes) { bytes_ -= bytes; }

 private:
  const uint64_t max_;
  std::atomic<uint64_t> bytes_{0};
};

class ArenaMap {
 public:
  // Counts in `mapped` as long as it lives. Errors: kMalformed if the size is not `announced` or
  // the file is not sealed against shrinking, kPeerUnavailable if it cannot be mapped.
  static StatusOr<std::shared_ptr<ArenaMap>> Open(const std::string& peer,
                                                  const Fd& fd,
                                                  uint64_t announced,
                                                  std::shared_ptr<MappedBytes> mapped);
  ~ArenaMap();
  ArenaMap(const ArenaMap&) = delete;
  ArenaMap& operator=(const ArenaMap&) = delete;
  ByteSpan bytes() const { return bytes_; }

 private:
  ArenaMap(ByteSpan bytes, std::shared_ptr<MappedBytes> mapped)
      : bytes_(bytes), mapped_(std::move(mapped)) {}
  const ByteSpan bytes_;
  const std::shared_ptr<MappedBytes> mapped_;
};

// The last arena seen at each (endpoint, region). A restarted peer's new arena replaces the old
// one, a peer that is gone is forgotten at the next failed connect, at most kEntriesMax are kept,
// and none that another needs the room of, so a dead process's memory is not held for ever.
class ArenaMapCache {
 public:
  static constexpr size_t kEntriesMax = 64;
  // Half of what a process has; no arena is larger (Arena::Create).
  static constexpr uint64_t kMappedMax = uint64_t{1} << 46;

  explicit ArenaMapCache(uint64_t mapped_max = kMappedMax)
      : mapped_(std::make_shared<MappedBytes>(mapped_max)) {}
  // Errors as ArenaMap::Open.
  StatusOr<std::shared_ptr<ArenaMap>> Map(const std::string& endpoint,
                                          size_t region,
                                          Fd fd,
                                          uint64_t announced) BATON_EXCLUDES(mu_);
  void Forget(const std::string& endpoint) BATON_EXCLUDES(mu_);

 private:
  struct Entry {
    // Kept open: while it is, no other file can have the same inode number.
    Fd fd;
    dev_t device;
    ino_t inode;
    std::shared_ptr<ArenaMap> map;
  };
  const std::shared_ptr<MappedBytes> mapped_;
  Mutex mu_;
  absl::flat_hash_map<std::pair<std::string, size_t>, Entry> entries_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_CONNECTOR_SHM_ARENA_MAP_H_
