// The memory of one sequence outside any pool: a slot and blocks of its own, for tools and tests
// that run a model without an engine. Thread rule: plain object.
#ifndef BATON_MODEL_SEQUENCE_MEMORY_H_
#define BATON_MODEL_SEQUENCE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "identity/layout.h"
#include "model/model.h"

namespace baton::model {

class SequenceMemory {
 public:
  // Room for `tokens_max` tokens; the slot is zero. `fill` is the byte blocks and the slot's tail
  // start with: a model must not depend on it. `tail_bytes`: Model::slot_tail_bytes().
  SequenceMemory(const Layout& layout,
                 int64_t tokens_max,
                 uint8_t fill = 0,
                 uint64_t tail_bytes = 0);

  // An item that extends the sequence by `tokens`, which must outlive the call of Forward.
  BatchItem Extend(std::span<const TokenId> tokens, LogitsMode mode, float* logits);

  int64_t position() const { return position_; }
  std::byte* slot() { return slot_.get(); }
  const std::byte* slot() const { return slot_.get(); }
  // Base of a block.
  std::byte* block(size_t group, int64_t b) { return tables_[group][b]; }

  // Value of the state part at `element` of its shape, row-major.
  float StateValue(size_t part, int64_t element) const;
  // K or V of one token: `layer_ordinal` in the group, `head`, dimension `d`.
  float KeyValue(size_t group, size_t layer_ordinal, size_t head, int64_t token, int64_t d) const;
  float ValueValue(size_t group, size_t layer_ordinal, size_t head, int64_t token, int64_t d) const;

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  using Buffer = std::unique_ptr<std::byte, Free>;
  static Buffer Allocate(size_t bytes, uint8_t fill);

  const Layout& layout_;
  int64_t position_ = 0;
  Buffer slot_;
  std::vector<Buffer> storage_;  // one per group
  std::vector<std::vector<std::byte*>> tables_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_SEQUENCE_MEMORY_H_
