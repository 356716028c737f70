#include "tier/host/host_store.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "tier/host/extent_heap.h"

namespace baton {
namespace {

class HostStore final : public ObjectStore {
 public:
  explicit HostStore(std::unique_ptr<ExtentHeap> heap) : heap_(std::move(heap)) {}

  std::string_view name() const override { return "host"; }
  StatusOr<std::unique_ptr<ObjectWriter>> Create(const ObjectName& name,
                                                 const ObjectSize& size) override;
  StatusOr<std::unique_ptr<ObjectReader>> Open(const ObjectName& name, ReadAhead ahead) override;
  Status Remove(const ObjectName& name) override {
    std::shared_ptr<Extent> dropped;  // unmapped without the lock
    MutexLock lock(&mu_);
    const auto it = objects_.find(name);
    if (it == objects_.end()) return absl::OkStatus();
    dropped = std::move(it->second);
    objects_.erase(it);
    return absl::OkStatus();
  }
  std::vector<StoredObject> Found(uint64_t* foreign) override {
    *foreign = 0;
    return {};
  }

  void Publish(const ObjectName& name, std::shared_ptr<Extent> extent) {
    MutexLock lock(&mu_);
    std::swap(objects_[name], extent);  // an older one goes when its readers have ended
  }

 private:
  const std::unique_ptr<ExtentHeap> heap_;  // outlives every extent
  Mutex mu_;
  absl::flat_hash_map<ObjectName, std::shared_ptr<Extent>> objects_ BATON_GUARDED_BY(mu_);
};

class HostWriter final : public ObjectWriter {
 public:
  HostWriter(HostStore* store, const ObjectName& name, std::shared_ptr<Extent> extent)
      : store_(*store), name_(name), extent_(std::move(extent)) {}
  StatusOr<MutableByteSpan> Next(uint64_t bytes) override {
    if (bytes > extent_->bytes().size() - done_)
      return absl::InternalError("host store: more bytes than the object was created with");
    const MutableByteSpan out = extent_->bytes().subspan(done_, bytes);
    done_ += bytes;
    return out;
  }
  Status Commit() override {
    store_.Publish(name_, std::move(extent_));
    return absl::OkStatus();
  }

 private:
  HostStore& store_;
  const ObjectName name_;
  std::shared_ptr<Extent> extent_;
  uint64_t done_ = 0;
};

class HostReader final : public ObjectReader {
 public:
  explicit HostReader(std::shared_ptr<const Extent> extent) : extent_(std::move(extent)) {}
  uint64_t size() const override { return extent_->bytes().size(); }
  StatusOr<ByteSpan> Read(uint64_t offset, uint64_t bytes_max) override {
    const ByteSpan all = extent_->bytes();
    if (offset >= all.size()) return ByteSpan();
    return all.subspan(offset, std::min<uint64_t>(bytes_max, all.size() - offset));
  }

 private:
  const std::shared_ptr<const Extent> extent_;
};

StatusOr<std::unique_ptr<ObjectWriter>> HostStore::Create(const ObjectName& name,
                                                          const ObjectSize& size) {
  BATON_ASSIGN_OR_RETURN(std::shared_ptr<Extent> extent, heap_->Allocate(size.bytes));
  return std::make_unique<HostWriter>(this, name, std::move(extent));
}

StatusOr<std::unique_ptr<ObjectReader>> HostStore::Open(const ObjectName& name, ReadAhead) {
  MutexLock lock(&mu_);
  const auto it = objects_.find(name);
  if (it == objects_.end()) return absl::NotFoundError(name.FileName() + ": not in memory");
  return std::make_unique<HostReader>(it->second);
}

}  // namespace

StatusOr<std::unique_ptr<ObjectStore>> OpenHostStore(const HostStoreOptions& options) {
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<ExtentHeap> heap, ExtentHeap::Create(options.bytes_max));
  return std::make_unique<HostStore>(std::move(heap));
}

}  // namespace baton
