#include "model/sequence_memory.h"

#include <cstdlib>
#include <cstring>

#include "identity/element_f8.h"
#include "kernel/kernels.h"
#include "model/model_layout.h"

namespace baton::model {

void SequenceMemory::Free::operator()(std::byte* p) const { std::free(p); }

SequenceMemory::Buffer SequenceMemory::Allocate(size_t bytes, uint8_t fill) {
  if (bytes == 0) return nullptr;
  const size_t rounded = (bytes + 63) / 64 * 64;
  auto* p = static_cast<std::byte*>(std::aligned_alloc(64, rounded));
  BATON_CHECK(p != nullptr);
  std::memset(p, fill, rounded);
  return Buffer(p);
}

SequenceMemory::SequenceMemory(const Layout& layout,
                               int64_t tokens_max,
                               uint8_t fill,
                               uint64_t tail_bytes)
    : layout_(layout), slot_(Allocate(layout.slot_bytes() + tail_bytes, 0)) {
  if (tail_bytes > 0) std::memset(slot_.get() + layout.slot_bytes(), fill, tail_bytes);
  const int64_t blocks = BlocksFor(tokens_max);
  for (const KvGroup& group : layout.groups()) {
    storage_.push_back(Allocate(group.block_bytes * static_cast<size_t>(blocks), fill));
    std::vector<std::byte*>& table = tables_.emplace_back();
    // Not in order of address: nobody may assume that blocks are neighbours.
    for (int64_t b = 0; b < blocks; ++b) {
      const int64_t place = blocks - 1 - b;
      table.push_back(storage_.back().get() + place * static_cast<int64_t>(group.block_bytes));
    }
  }
}

BatchItem SequenceMemory::Extend(std::span<const TokenId> tokens, LogitsMode mode, float* logits) {
  BatchItem item;
  item.tokens = tokens;
  item.position = position_;
  item.slot = slot_.get();
  for (const auto& table : tables_) item.blocks.emplace_back(table.data(), table.size());
  item.logits_mode = mode;
  item.logits = logits;
  position_ += static_cast<int64_t>(tokens.size());
  return item;
}

float SequenceMemory::StateValue(size_t part, int64_t element) const {
  const StatePart& p = layout_.parts()[part];
  const std::byte* at =
      slot_.get() + p.offset + element * static_cast<int64_t>(ElementBytes(p.dtype));
  kernel::NarrowArgs one = {.dtype = kernel::StateDType::kF32,
                            .rounding = kernel::Rounding::kNearest,
                            .key = 0,
                            .rows = 1,
                            .width = 1,
                            .wide = nullptr,
                            .narrow = const_cast<std::byte*>(at),
                            .scales = nullptr};
  float v = 0;
  uint16_t scale = 0;
  one.wide = &v;
  switch (p.dtype) {
    case ElementType::kF32:
      std::memcpy(&v, at, sizeof(v));
      return v;
    case ElementType::kBF16:
      one.dtype = kernel::StateDType::kBF16;
      break;
    case ElementType::kF16:
      one.dtype = kernel::StateDType::kF16;
      break;
  }
  if (p.dtype == kElementF8E4M3) {
    const StatePart& scales = layout_.parts()[*layout_.FindPart(p.layer, kScaleComponent)];
    std::memcpy(&scale, slot_.get() + scales.offset + element / p.shape.back() * 2, 2);
    one.dtype = kernel::StateDType::kF8E4M3;
    one.scales = &scale;
  }
  kernel::ReferenceKernels().widen(one);
  return v;
}

float SequenceMemory::KeyValue(
    size_t group, size_t layer_ordinal, size_t head, int64_t token, int64_t d) const {
  const auto* block = reinterpret_cast<const float*>(tables_[group][token / kBlockTokens]);
  return block[layout_.groups()[group].KOffset(layer_ordinal, head) + d * kBlockTokens +
               token % kBlockTokens];
}

float SequenceMemory::ValueValue(
    size_t group, size_t layer_ordinal, size_t head, int64_t token, int64_t d) const {
  const KvGroup& g = layout_.groups()[group];
  const auto* block = reinterpret_cast<const float*>(tables_[group][token / kBlockTokens]);
  return block[g.VOffset(layer_ordinal, head) + token % kBlockTokens * g.head_dim + d];
}

}  // namespace baton::model
