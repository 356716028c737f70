#include "tier/disk/disk_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tier/disk/disk_object.h"

namespace baton {
namespace {

constexpr char kLockName[] = "LOCK";
constexpr char kProbeName[] = "probe.tmp";
constexpr std::string_view kTemporary = ".tmp";
constexpr mode_t kMode = 0600;  // states are as private as the prompts they come from

// The file system may know O_DIRECT and still refuse it on one file; then it is opened without.
OwnedFd OpenFile(int directory, const std::string& name, int flags, bool direct) {
  int fd = -1;
  if (direct) fd = openat(directory, name.c_str(), flags | O_DIRECT | O_CLOEXEC, kMode);
  if (fd < 0 && (!direct || errno == EINVAL))
    fd = openat(directory, name.c_str(), flags | O_CLOEXEC, kMode);
  return OwnedFd(fd);
}

Status OpenError(int error, const std::string& directory, const char* doing) {
  const std::string text =
      absl::StrCat("disk tier: ", directory, ": ", doing, ": ", std::strerror(error));
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(text + "; create the directory or name another");
    case ENOTDIR:
      return absl::InvalidArgumentError(text + "; name a directory");
    case EACCES:
    case EPERM:
      return absl::PermissionDeniedError(text + "; this user must be able to write there");
    case EROFS:
      return absl::FailedPreconditionError(text + "; name a writable directory");
    case ENOSPC:
    case EDQUOT:
      return absl::ResourceExhaustedError(text + "; free space or name another directory");
    default:
      return absl::UnavailableError(text);
  }
}

std::unique_ptr<BlockIo> MakeIo(bool uring) {
  if (uring) {
    StatusOr<std::unique_ptr<BlockIo>> io = MakeUringIo();
    if (io.ok()) return *std::move(io);
  }
  return MakeSyncIo();
}

class DiskStore final : public ObjectStore {
 public:
  DiskStore(const DiskStoreOptions& options, OwnedFd directory)
      : options_(options), directory_(std::move(directory)) {}

  Status Lock();
  Status Probe();
  Status Scan();
  const DiskStoreInfo& info() const { return info_; }

  std::string_view name() const override { return "disk"; }
  StatusOr<std::unique_ptr<ObjectWriter>> Create(const ObjectName& name,
                                                 const ObjectSize& size) override;
  StatusOr<std::unique_ptr<ObjectReader>> Open(const ObjectName& name, ReadAhead ahead) override;
  Status Remove(const ObjectName& name) override {
    if (unlinkat(directory_.get(), name.FileName().c_str(), 0) != 0 && errno != ENOENT)
      return DiskError(errno, "removing " + name.FileName());
    return absl::OkStatus();
  }
  std::vector<StoredObject> Found(uint64_t* foreign) override {
    *foreign = foreign_;
    return std::move(found_);
  }

 private:
  Status TryWrite(BlockIo* io, bool direct);

  const DiskStoreOptions options_;
  const OwnedFd directory_;
  OwnedFd lock_;
  DiskStoreInfo info_;
  std::unique_ptr<IoContexts> contexts_;
  std::vector<StoredObject> found_;
  uint64_t foreign_ = 0;
};

Status DiskStore::Lock() {
  lock_ = OpenFile(directory_.get(), kLockName, O_RDWR | O_CREAT, false);
  if (!lock_) return OpenError(errno, options_.directory, "creating LOCK");
  if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    char owner[32] = {};
    if (pread(lock_.get(), owner, sizeof owner - 1, 0) <= 0) std::strcpy(owner, "unknown");
    return absl::FailedPreconditionError(
        absl::StrCat("disk tier: ", options_.directory, ": in use by process ", owner,
                     "; give each process a directory of its own"));
  }
  const std::string pid = absl::StrCat(getpid());
  if (ftruncate(lock_.get(), 0) != 0 ||
      pwrite(lock_.get(), pid.data(), pid.size(), 0) != static_cast<ssize_t>(pid.size()))
    return OpenError(errno, options_.directory, "writing LOCK");
  return absl::OkStatus();
}

Status DiskStore::TryWrite(BlockIo* io, bool direct) {
  const OwnedFd fd =
      OwnedFd(openat(directory_.get(), kProbeName,
                     O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | (direct ? O_DIRECT : 0), kMode));
  if (!fd) return OpenError(errno, options_.directory, "creating a file");
  alignas(kObjectAlign) static constexpr std::byte kPage[kObjectAlign] = {};
  IoRequest request;
  request.write = true;
  request.fd = fd.get();
  request.bytes = {const_cast<std::byte*>(kPage), sizeof kPage};  // written from, never to
  BATON_RETURN_IF_ERROR(io->Start(request));
  BATON_ASSIGN_OR_RETURN(const IoCompletion done, io->Wait());
  if (done.result < 0)
    return OpenError(static_cast<int>(-done.result), options_.directory, "writing a file");
  if (done.result != sizeof kPage) return OpenError(ENOSPC, options_.directory, "writing a file");
  return absl::OkStatus();
}

// The best pair that really works here; a container may allow the ring and forbid what it does.
Status DiskStore::Probe() {
  Status status;
  for (const bool uring : {true, false}) {
    if (uring && !options_.use_uring) continue;
    const std::unique_ptr<BlockIo> io = MakeIo(uring);
    if (uring && io->name() == MakeSyncIo()->name()) continue;
    for (const bool direct : {true, false}) {
      if (direct && !options_.use_direct) continue;
      status = TryWrite(io.get(), direct);
      unlinkat(directory_.get(), kProbeName, 0);
      if (!status.ok()) continue;
      info_ = {std::string(io->name()), direct};
      contexts_ = std::make_unique<IoContexts>(std::max<size_t>(options_.operations_max, 1),
                                               [uring] { return MakeIo(uring); });
      return status;
    }
  }
  return status;
}

Status DiskStore::Scan() {
  const int fd = openat(directory_.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* dir = fd < 0 ? nullptr : fdopendir(fd);
  if (dir == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return OpenError(error, options_.directory, "listing it");
  }
  std::vector<std::string> temporary;
  while (const dirent* entry = readdir(dir)) {
    const std::string name = entry->d_name;
    if (name == "." || name == ".." || name == kLockName) continue;
    struct stat st {};
    const bool regular = fstatat(directory_.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                         S_ISREG(st.st_mode);
    const std::optional<ObjectName> object = ObjectName::FromFileName(name);
    if (regular && object.has_value()) {
      const int64_t age = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec;
      found_.push_back({*object, static_cast<uint64_t>(st.st_size), age});
    } else if (regular && absl::EndsWith(name, std::string(kTemporary)) &&
               (name == kProbeName ||
                ObjectName::FromFileName(
                    std::string_view(name).substr(0, name.size() - kTemporary.size()))
                    .has_value())) {
      temporary.push_back(name);
    } else {
      ++foreign_;
    }
  }
  closedir(dir);
  // Not while listing: what readdir makes of that is the file system's choice.
  for (const std::string& name : temporary) unlinkat(directory_.get(), name.c_str(), 0);
  return absl::OkStatus();
}

StatusOr<std::unique_ptr<ObjectWriter>> DiskStore::Create(const ObjectName& name,
                                                          const ObjectSize& size) {
  DiskFile file;
  file.directory = directory_.get();
  file.name = name.FileName();
  const std::string temporary = absl::StrCat(file.name, std::string(kTemporary));
  file.fd = OpenFile(file.directory, temporary, O_WRONLY | O_CREAT | O_TRUNC, info_.direct);
  if (!file.fd) return DiskError(errno, "creating " + temporary);
  auto writer =
      std::make_unique<DiskWriter>(std::move(file), options_.fsync, size, contexts_.get());
  BATON_RETURN_IF_ERROR(writer->Prepare());
  return writer;
}

StatusOr<std::unique_ptr<ObjectReader>> DiskStore::Open(const ObjectName& name, ReadAhead ahead) {
  DiskFile file;
  file.directory = directory_.get();
  file.name = name.FileName();
  file.fd = OpenFile(file.directory, file.name, O_RDONLY | O_NOFOLLOW, info_.direct);
  if (!file.fd) {
    if (errno == ENOENT) return absl::NotFoundError(file.name + ": no such file");
    return DiskError(errno, "opening " + file.name);
  }
  struct stat st {};
  if (fstat(file.fd.get(), &st) != 0) return DiskError(errno, "examining " + file.name);
  auto reader = std::make_unique<DiskReader>(std::move(file), static_cast<uint64_t>(st.st_size),
                                             ahead, contexts_.get());
  BATON_RETURN_IF_ERROR(reader->Prepare());
  return reader;
}

}  // namespace

StatusOr<FsyncPolicy> ParseFsyncPolicy(std::string_view name) {
  if (name == "none") return FsyncPolicy::kNone;
  if (name == "data") return FsyncPolicy::kData;
  if (name == "full") return FsyncPolicy::kFull;
  return absl::InvalidArgumentError(
      absl::StrCat("fsync policy '", std::string(name), "': expected none, data or full"));
}

StatusOr<std::unique_ptr<ObjectStore>> OpenDiskStore(const DiskStoreOptions& options,
                                                     DiskStoreInfo* info) {
  OwnedFd directory(open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return OpenError(errno, options.directory, "opening it");
  auto store = std::make_unique<DiskStore>(options, std::move(directory));
  BATON_RETURN_IF_ERROR(store->Lock());
  BATON_RETURN_IF_ERROR(store->Probe());
  BATON_RETURN_IF_ERROR(store->Scan());
  if (info != nullptr) *info = store->info();
  return std::unique_ptr<ObjectStore>(std::move(store));
}

}  // namespace baton
