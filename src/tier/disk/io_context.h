// What one operation on the disk needs: a way to do I/O and page-aligned memory for it. Contexts
// are kept and lent, so that memory, rings and open files are bounded by their number.
// Thread rule: IoContexts is thread-safe; a context belongs to its borrower.
#ifndef BATON_TIER_DISK_IO_CONTEXT_H_
#define BATON_TIER_DISK_IO_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/bytes.h"
#include "base/mutex.h"
#include "base/status.h"
#include "tier/disk/block_io.h"

namespace baton {

class IoContext {
 public:
  IoContext() = default;
  ~IoContext();
  IoContext(const IoContext&) = delete;
  IoContext& operator=(const IoContext&) = delete;

  // Page-aligned memory of at least `bytes`; its contents are of no promise. kNoCapacity.
  StatusOr<MutableByteSpan> Memory(uint64_t bytes);
  BlockIo& io() { return *io_; }

 private:
  friend class IoContexts;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::unique_ptr<BlockIo> io_;  // goes first: nothing is under way into the memory then
};

class IoContexts {
 public:
  using MakeIo = std::function<std::unique_ptr<BlockIo>()>;
  IoContexts(size_t count, MakeIo make) : left_(count), make_(std::move(make)) {}

  // Waits until one is free. `broken` contexts are not lent again.
  std::unique_ptr<IoContext> Borrow();
  void GiveBack(std::unique_ptr<IoContext> context, bool broken);

 private:
  Mutex mu_;
  CondVar free_;
  size_t left_ BATON_GUARDED_BY(mu_);
  std::vector<std::unique_ptr<IoContext>> idle_ BATON_GUARDED_BY(mu_);
  const MakeIo make_;
};

}  // namespace baton

#endif  // BATON_TIER_DISK_IO_CONTEXT_H_
