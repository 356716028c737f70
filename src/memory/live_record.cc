#include "memory/live_record.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace baton {

LiveRecord::LiveRecord(const IdentityBase& base, PrefixChain chain)
    : base_(base), chain_(std::move(chain)) {
  BATON_CHECK(chain_.scope() == base_.scope);
}

Status LiveRecord::ClaimMatches(const ContentIdentity& claim) const {
  if (!valid_)
    return Reject(Reason::kIdentityMismatch,
                  absl::StrCat("live record: a step failed after boundary ", boundary(),
                               "; what the slot holds is unknown, recompute from tokens"));
  return MatchIdentity(Identity(), claim);
}

StatusOr<LiveTable::Entry*> LiveTable::Find(SlotHandle slot) {
  const auto it = entries_.find(Key{slot.pool, slot.index});
  if (it == entries_.end() || it->second.generation != slot.generation)
    return Reject(Reason::kStaleHandle,
                  absl::StrCat(slot.ToString(), ": no live record for this life of the slot"));
  return &it->second;
}

Status LiveTable::Start(SlotHandle slot, LiveRecord record) {
  MutexLock lock(&mu_);
  const Key key{slot.pool, slot.index};
  const auto it = entries_.find(key);
  if (it != entries_.end() && it->second.generation >= slot.generation)
    return absl::FailedPreconditionError(absl::StrCat(
        slot.ToString(), ": already has a live record, of generation ", it->second.generation));
  entries_.insert_or_assign(key, Entry{slot.generation, std::move(record)});
  return absl::OkStatus();
}

Status LiveTable::Advance(SlotHandle slot, std::span<const TokenId> tokens) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Entry * entry, Find(slot));
  entry->record.Advance(tokens);
  return absl::OkStatus();
}

Status LiveTable::Invalidate(SlotHandle slot) {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(Entry * entry, Find(slot));
  entry->record.Invalidate();
  return absl::OkStatus();
}

Status LiveTable::ClaimMatches(SlotHandle slot, const ContentIdentity& claim) const {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Entry* entry, const_cast<LiveTable*>(this)->Find(slot));
  return entry->record.ClaimMatches(claim);
}

StatusOr<LiveRecord> LiveTable::Get(SlotHandle slot) const {
  MutexLock lock(&mu_);
  BATON_ASSIGN_OR_RETURN(const Entry* entry, const_cast<LiveTable*>(this)->Find(slot));
  return entry->record;
}

Status LiveTable::Drop(SlotHandle slot) {
  MutexLock lock(&mu_);
  BATON_RETURN_IF_ERROR(Find(slot).status());
  entries_.erase(Key{slot.pool, slot.index});
  return absl::OkStatus();
}

size_t LiveTable::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace baton
