#include "drill/bundle.h"

#include <cstring>
#include <utility>
#include <vector>

#include "handoff/parts.h"

namespace baton::drill {

StatusOr<Payload> ComputeBundle(const model::Model& model, std::span<const TokenId> tokens) {
  const Layout& layout = model.layout();
  const auto n = static_cast<uint64_t>(BlocksFor(static_cast<int64_t>(tokens.size())));
  std::vector<std::byte> slot(layout.slot_bytes());
  std::vector<std::vector<std::byte>> storage;
  std::vector<std::vector<std::byte*>> blocks(layout.groups().size());
  for (size_t g = 0; g < blocks.size(); ++g) {
    for (uint64_t b = 0; b < n; ++b) {
      storage.emplace_back(layout.groups()[g].block_bytes);
      blocks[g].push_back(storage.back().data());
    }
  }
  model::BatchItem item;
  item.tokens = tokens;
  item.slot = layout.has_state() ? slot.data() : nullptr;
  for (const auto& group : blocks) item.blocks.emplace_back(group);
  item.logits_mode = model::LogitsMode::kNone;
  model::Workspace work;
  BATON_RETURN_IF_ERROR(model.Forward(std::span(&item, 1), &work, nullptr));

  auto bundle = std::make_shared<CapturedPull>();
  for (size_t i = 0; i < layout.parts().size(); ++i) {
    const StatePart& part = layout.parts()[i];
    const std::byte* from = slot.data() + part.offset;
    bundle->parts[StatePartKey(i)].assign(from, from + part.bytes);
  }
  for (size_t g = 0; g < blocks.size(); ++g) {
    for (uint64_t b = layout.FirstBlock(g, tokens.size()); b < n; ++b) {
      const std::byte* from = blocks[g][b];
      bundle->parts[BlockPartKey(g, b)].assign(from, from + layout.groups()[g].block_bytes);
    }
  }
  return Payload(std::move(bundle));
}

void SwapHalves(const Layout& layout, size_t index, MutableByteSpan bytes) {
  const auto is_ssm = [](const StatePart& part) { return part.component == "ssm"; };
  const bool any_ssm = std::any_of(layout.parts().begin(), layout.parts().end(), is_ssm);
  const StatePart& part = layout.parts()[index];
  if (any_ssm && !is_ssm(part)) return;
  // Heads are the first axis of a recurrent state, channels the last of a convolution window.
  const size_t rows = is_ssm(part) ? 1 : static_cast<size_t>(part.shape[0]);
  const size_t row = bytes.size() / rows;
  for (size_t r = 0; r < rows; ++r) {
    const MutableByteSpan one = bytes.subspan(r * row, row);
    std::rotate(one.begin(), one.begin() + static_cast<ptrdiff_t>(row / 2), one.end());
  }
}

Payload Rearranged(const Layout& layout, const Payload& payload, size_t index, Rearrange how) {
  auto out = std::make_shared<CapturedPull>(*payload);
  const StatePart& part = layout.parts()[index];
  const std::vector<std::byte>& from = payload->parts.at(StatePartKey(index));
  std::vector<std::byte>& to = out->parts.at(StatePartKey(index));
  const size_t element = part.bytes / [&] {
    uint64_t elements = 1;
    for (const int64_t extent : part.shape) elements *= static_cast<uint64_t>(extent);
    return elements;
  }();
  if (how == Rearrange::kReverseFirst) {
    const auto rows = static_cast<size_t>(part.shape[0]);
    const size_t row = from.size() / rows;
    for (size_t i = 0; i < rows; ++i)
      std::memcpy(to.data() + i * row, from.data() + (rows - 1 - i) * row, row);
    return out;
  }
  const auto a = static_cast<size_t>(part.shape[part.shape.size() - 2]);
  const auto b = static_cast<size_t>(part.shape.back());
  const size_t matrix = a * b * element;
  for (size_t m = 0; m < from.size(); m += matrix)
    for (size_t i = 0; i < a; ++i)
      for (size_t j = 0; j < b; ++j)
        std::memcpy(to.data() + m + (j * a + i) * element, from.data() + m + (i * b + j) * element,
                    element);
  return out;
}

}  // namespace baton::drill
