#include "engine/parked.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace baton::engine {

ParkedBundle::ParkedBundle(Seal seal,
                           std::vector<std::vector<Digest128>> digests,
                           ParkBudget* budget)
    : seal_(std::move(seal)), block_digests_(std::move(digests)), budget_(budget) {}

ParkedBundle::~ParkedBundle() { budget_->used -= size_; }

StatusOr<std::unique_ptr<ParkedBundle>> ParkedBundle::Take(
    const Layout& layout,
    Seal seal,
    std::vector<std::vector<Digest128>> block_digests,
    const std::function<ByteSpan(const BundlePart&)>& bytes_of,
    ParkBudget* budget) {
  const std::vector<BundlePart> parts = BundleParts(layout, seal.identity.boundary);
  uint64_t size = 0;
  for (const BundlePart& part : parts) size += part.bytes;
  if (size > budget->max - std::min(budget->max, budget->used))
    return Reject(Reason::kNoCapacity,
                  absl::StrCat("a bundle of ", size, " bytes does not fit beside the ",
                               budget->used, " parked ones of at most ", budget->max));
  std::unique_ptr<ParkedBundle> out(
      new ParkedBundle(std::move(seal), std::move(block_digests), budget));
  out->data_ = std::make_unique_for_overwrite<std::byte[]>(size);
  for (const BundlePart& part : parts) {
    const ByteSpan from = bytes_of(part).first(part.bytes);
    std::memcpy(out->data_.get() + out->size_, from.data(), from.size());
    out->pieces_.push_back({part.key, out->size_, part.bytes});
    out->size_ += part.bytes;
  }
  budget->used += out->size_;
  return out;
}

Status ParkedBundle::KeepTail(ByteSpan tail, const Digest128& digest) {
  if (tail.size() > budget_->max - std::min(budget_->max, budget_->used))
    return Reject(Reason::kNoCapacity,
                  absl::StrCat("a tail of ", tail.size(), " bytes does not fit beside the ",
                               budget_->used, " parked bytes of at most ", budget_->max));
  tail_.assign(tail.begin(), tail.end());
  tail_digest_ = digest;
  size_ += tail_.size();
  budget_->used += tail_.size();
  return absl::OkStatus();
}

BundleClaim ParkedBundle::Claim() const {
  BundleClaim claim;
  claim.state_id = seal_.state_id;
  claim.seal = seal_;
  claim.block_digests = block_digests_;
  return claim;
}

std::vector<LandedPart> ParkedBundle::CopyTo(
    const Layout& layout, const std::function<MutableByteSpan(const BundlePart&)>& place) {
  std::vector<LandedPart> landed;
  for (const BundlePart& part : BundleParts(layout, boundary())) {
    const ByteSpan from = BytesOf(part.key);
    if (from.size() != part.bytes) continue;
    const MutableByteSpan to = place(part).first(part.bytes);
    std::memcpy(to.data(), from.data(), from.size());
    landed.push_back({part, to, part.bytes, part.bytes, from.size()});
  }
  return landed;
}

MutableByteSpan ParkedBundle::BytesOf(PartKey key) {
  for (const Piece& piece : pieces_)
    if (piece.key == key) return {data_.get() + piece.offset, piece.bytes};
  return {};
}

void ParkedBundle::DropPartForTesting(PartKey key) {
  std::erase_if(pieces_, [&](const Piece& piece) { return piece.key == key; });
}

}  // namespace baton::engine
