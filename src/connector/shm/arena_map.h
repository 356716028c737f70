// Read-only mappings of other processes' arenas, kept between links, because mapping and first
// touching a large arena costs as much as copying from it. A mapping is accepted only if its size
// is sealed, so that no peer can make a copy fault by shrinking the file.
// Thread rule: thread-safe.
#ifndef BATON_CONNECTOR_SHM_ARENA_MAP_H_
#define BATON_CONNECTOR_SHM_ARENA_MAP_H_

#include <sys/types.h>

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

class ArenaMap {
 public:
  // Errors: kMalformed if the size is not `announced` or the file is not sealed against shrinking,
  // kPeerUnavailable if it cannot be mapped.
  static StatusOr<std::shared_ptr<ArenaMap>> Open(const std::string& peer,
                                                  const Fd& fd,
                                                  uint64_t announced);
  ~ArenaMap();
  ArenaMap(const ArenaMap&) = delete;
  ArenaMap& operator=(const ArenaMap&) = delete;
  ByteSpan bytes() const { return bytes_; }

 private:
  explicit ArenaMap(ByteSpan bytes) : bytes_(bytes) {}
  const ByteSpan bytes_;
};

// The last arena seen at each (endpoint, region). A restarted peer's new arena replaces the old
// one, a peer that is gone is forgotten at the next failed connect, and at most kEntriesMax are
// kept, so a dead process's memory is not held for ever.
class ArenaMapCache {
 public:
  static constexpr size_t kEntriesMax = 64;
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
  Mutex mu_;
  absl::flat_hash_map<std::pair<std::string, size_t>, Entry> entries_ BATON_GUARDED_BY(mu_);
};

}  // namespace baton

#endif  // BATON_CONNECTOR_SHM_ARENA_MAP_H_
