// The store of the disk tier: one file per object in a directory that this process alone uses.
// Files appear whole or not at all (temporary name, then rename) and are read past the page cache
// where the file system can. docs/format/state_object.md, "Names and durability on disk".
// Thread rule: as ObjectStore.
#ifndef BATON_TIER_DISK_DISK_STORE_H_
#define BATON_TIER_DISK_DISK_STORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "tier/object_store.h"

namespace baton {

// What a power cut may take. A killed process takes nothing under any of them.
enum class FsyncPolicy { kNone, kData, kFull };
// "none", "data", "full"; InvalidArgument names the choices.
StatusOr<FsyncPolicy> ParseFsyncPolicy(std::string_view name);

struct DiskStoreOptions {
  std::string directory;  // exists, writable
  FsyncPolicy fsync = FsyncPolicy::kNone;
  size_t operations_max = 4;  // at once; each has 4 MiB of buffers or more, one ring, one file
  bool use_uring = true;      // where it works
  bool use_direct = true;     // O_DIRECT, where it works
};

struct DiskStoreInfo {
  std::string io;       // "io_uring", "pread/pwrite"
  bool direct = false;  // past the page cache
};

// Takes the directory's lock, tries what it can do and removes left-over temporary files. Errors
// name the directory and the remedy: NotFound (missing), InvalidArgument (no directory),
// PermissionDenied, FailedPrecondition (in use by another process, or read-only),
// ResourceExhausted (full). `info` may be null.
StatusOr<std::unique_ptr<ObjectStore>> OpenDiskStore(const DiskStoreOptions& options,
                                                     DiskStoreInfo* info = nullptr);

}  // namespace baton

#endif  // BATON_TIER_DISK_DISK_STORE_H_
