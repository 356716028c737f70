#include "connector/shm/arena_map.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"

namespace baton {

bool MappedBytes::Take(uint64_t bytes) {
  if (bytes > max_) return false;
  if (bytes_.fetch_add(bytes) <= max_ - bytes) return true;
  bytes_ -= bytes;
  return false;
}

StatusOr<std::shared_ptr<ArenaMap>> ArenaMap::Open(const std::string& peer,
                                                   const Fd& fd,
                                                   uint64_t announced,
                                                   std::shared_ptr<MappedBytes> mapped) {
  struct stat st {};
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (fstat(fd.get(), &st) != 0 || seals < 0 || (seals & F_SEAL_SHRINK) == 0)
    return Reject(Reason::kMalformed,
                  peer +
                      ": its arena is no memfd sealed against shrinking; it could make a copy "
                      "fault at any time");
  if (announced == 0 || static_cast<uint64_t>(st.st_size) != announced)
    return Reject(Reason::kMalformed, absl::StrCat(peer, ": announces an arena of ", announced,
                                                   " bytes, its descriptor has ", st.st_size));
  if (!mapped->Take(announced))
    return Reject(Reason::kPeerUnavailable,
                  absl::StrCat(peer, ": an arena of ", announced,
                               " bytes; the arenas of all peers are mapped up to ", mapped->max()));
  void* p = mmap(nullptr, announced, PROT_READ, MAP_SHARED, fd.get(), 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    mapped->Give(announced);
    return Reject(Reason::kPeerUnavailable, absl::StrCat(peer, ": cannot map an arena of ",
                                                         announced, " bytes: ", ErrnoText(error)));
  }
  return std::shared_ptr<ArenaMap>(
      new ArenaMap(ByteSpan(static_cast<const std::byte*>(p), announced), std::move(mapped)));
}

ArenaMap::~ArenaMap() {
  munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  mapped_->Give(bytes_.size());
}

StatusOr<std::shared_ptr<ArenaMap>> ArenaMapCache::Map(const std::string& endpoint,
                                                       size_t region,
                                                       Fd fd,
                                                       uint64_t announced) {
  struct stat st {};
  if (fstat(fd.get(), &st) != 0)
    return Reject(Reason::kMalformed, endpoint + ": its arena is no file");
  MutexLock lock(&mu_);
  const auto it = entries_.find({endpoint, region});
  if (it != entries_.end()) {
    const Entry& entry = it->second;
    if (entry.device == st.st_dev && entry.inode == st.st_ino &&
        static_cast<uint64_t>(st.st_size) == announced && entry.map->bytes().size() == announced)
      return entry.map;
    entries_.erase(it);
  }
  while (!entries_.empty() && announced <= mapped_->max() && !mapped_->Fits(announced))
    entries_.erase(entries_.begin());
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<ArenaMap> map,
                         ArenaMap::Open(endpoint, fd, announced, mapped_));
  if (entries_.size() >= kEntriesMax) entries_.erase(entries_.begin());
  entries_.emplace(std::pair(endpoint, region), Entry{std::move(fd), st.st_dev, st.st_ino, map});
  return map;
}

void ArenaMapCache::Forget(const std::string& endpoint) {
  MutexLock lock(&mu_);
  for (auto it = entries_.begin(); it != entries_.end();) {
    const auto here = it++;
    if (here->first.first == endpoint) entries_.erase(here);
  }
}

}  // namespace baton
