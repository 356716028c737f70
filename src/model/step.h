// One Forward call as its layers see it: the rows of all sequences one after the other, who owns
// which rows, scratch memory, and a parallel loop. Private to the forward pass.
//
// Nothing here influences a bit: loops may be cut anywhere because every index has its own output.
// Thread rule: one Step per calling thread; loop bodies run on the pool.
#ifndef BATON_MODEL_STEP_H_
#define BATON_MODEL_STEP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "kernel/kernels.h"
#include "model/model.h"

namespace baton::model {

// f32 scratch, handed out front to back and taken back as a whole. Grows between steps only.
class Arena {
 public:
  // At least `floats` for what follows; contents are lost.
  Status Reserve(int64_t floats);
  // 64-byte aligned, uninitialised. The caller reserved enough.
  float* Take(int64_t floats) {
    float* p = data_.get() + used_;
    used_ += Rounded(floats);
    BATON_CHECK(used_ <= capacity_);
    return p;
  }
  int64_t used() const { return used_; }
  void ReleaseTo(int64_t used) { used_ = used; }
  // What Take(floats) consumes.
  static int64_t Rounded(int64_t floats) { return (floats + 15) / 16 * 16; }

 private:
  struct Free {
    void operator()(float* p) const { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  int64_t capacity_ = 0;
  int64_t used_ = 0;
};

// `rows` rows of `width` floats, `stride` apart.
struct Rows {
  float* data = nullptr;
  int64_t stride = 0;
  float* operator[](int64_t row) const { return data + row * stride; }
};

// cos and sin of every row of a step, [rows][dims / 2] each; empty without rotation.
struct RopeTable {
  Rows cos, sin;
  int64_t dims = 0;
};

// The rows of one sequence in this step.
struct StepItem {
  int64_t row0 = 0;
  int64_t tokens = 0;
  int64_t position = 0;
  std::byte* slot = nullptr;
  float* const* const* tables = nullptr;  // one per KV group

  // Block table of a KV group: block b holds positions from 16 * b.
  float* const* Blocks(size_t group) const { return tables[group]; }
  float* State(uint64_t offset) const { return reinterpret_cast<float*>(slot + offset); }
};

// A run of query rows of one sequence.
struct RowTile {
  int32_t item = 0;
  int32_t begin = 0;  // row within the item
  int32_t rows = 0;
};

struct Workspace::Impl {
  Arena arena;
  std::vector<StepItem> items;
  std::vector<float*> blocks;         // of all items and groups
  std::vector<float* const*> tables;  // [items][groups]
  std::vector<RowTile> tiles;         // attention rows
  std::vector<int64_t> logit_rows;
  std::vector<float*> logit_out;
  std::vector<const void*> slots;  // sorted, to find a slot given twice
  // Routed experts: per (row, choice) and per expert.
  std::vector<int32_t> chosen;
  std::vector<int64_t> expert_begin, expert_next;
  std::vector<int64_t> gathered_row, row_slot;
  RopeTable rope;
};

class Step {
 public:
  Step(const kernel::Kernels& kernels, ThreadPool* pool, Workspace::Impl* work)
      : kernels_(kernels), pool_(pool), work_(work) {}

  const kernel::Kernels& kernels() const { return kernels_; }
  Workspace::Impl& work() const { return *work_; }
  Arena& arena() const { return work_->arena; }
  const std::vector<StepItem>& items() const { return work_->items; }
  const RopeTable& rope() const { return work_->rope; }
  int threads() const { return pool_ == nullptr ? 1 : pool_->threads(); }

  // fn(i) for each i in [0, n), each its own piece. `work` is a guess of the whole in nanoseconds.
  template <class Fn>
  void ForEach(int64_t n, int64_t work, const Fn& fn) const {
    if (threads() == 1 || n == 1 || work < kWorthWaking) {
      kernel::SetCanonicalFpMode();
      for (int64_t i = 0; i < n; ++i) fn(i);
      return;
    }
    pool_->ParallelFor(n, [&](int64_t i) {
      kernel::SetCanonicalFpMode();
      fn(i);
    });
  }

  // fn(begin, end) over pieces of [0, n). `cost` is a guess of one index in nanoseconds: loops
  // shorter than a wake-up run here and now.
  template <class Fn>
  void For(int64_t n, int64_t cost, const Fn& fn) const {
    if (n <= 0) return;
    const int64_t total = n * std::max<int64_t>(cost, 1);
    if (threads() == 1 || n == 1 || total < kWorthWaking) {
      kernel::SetCanonicalFpMode();
      fn(int64_t{0}, n);
      return;
    }
    const int64_t most = int64_t{8} * threads();
    const int64_t pieces = std::clamp<int64_t>(total / kPiece, 2, std::min(n, most));
    pool_->ParallelFor(pieces, [&](int64_t i) {
      kernel::SetCanonicalFpMode();
      const int64_t begin = n * i / pieces, end = n * (i + 1) / pieces;
      if (begin < end) fn(begin, end);
    });
  }

 private:
  static constexpr int64_t kWorthWaking = 4000, kPiece = 2000;  // nanoseconds

  const kernel::Kernels& kernels_;
  ThreadPool* pool_;
  Workspace::Impl* work_;
};

// Gives back at its end what was taken from the arena since it began.
class ArenaScope {
 public:
  explicit ArenaScope(Arena* arena) : arena_(arena), used_(arena->used()) {}
  ~ArenaScope() { arena_->ReleaseTo(used_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena* arena_;
  int64_t used_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_STEP_H_
