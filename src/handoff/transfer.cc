// A share that moves. The dead link is closed first. Whatever it was given and did not finish gets
// a fresh unit; if it could not prove quiet, so does whatever it had finished, since a late write
// might land there after the digest was taken: nothing that an unproven writer was ever given is
// committed. State parts share one unit, the slot, so they move together.
#include "handoff/transfer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/log.h"

namespace baton {
namespace {

// A transfer has three links at most: the conversation's, one for KV, one for
// state.
uint32_t Bit(size_t way) {
  BATON_CHECK(way < 32);
  return uint32_t{1} << way;
}

}  // namespace

Transfer::Transfer(std::vector<BundlePart> parts,
                   Destination* destination,
                   const Clock* clock,
                   HandoffStats* stats,
                   const Checks& checks)
    : destination_(destination),
      clock_(clock),
      stats_(stats),
      checks_(checks),
      progress_(parts.size()) {
  index_.reserve(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    progress_[i].part = parts[i];
    index_.emplace(parts[i].key, i);
  }
}

void Transfer::AddLink(Connector* connector, std::unique_ptr<Link> link) {
  MutexLock lock(&mu_);
  ways_.push_back({connector, std::move(link), false});
}

Link* Transfer::first_link() const { return ways_.empty() ? nullptr : ways_[0].link.get(); }

void Transfer::CloseAll() {
  MutexLock lock(&mu_);
  for (const Way& way : ways_) way.link->Close();
}

void Transfer::CountFailover(std::string_view connector) {
  if (stats_ != nullptr) stats_->connectors.Add(connector, {.failovers = 1});
}

const size_t* Transfer::Find(PartKey key) const {
  const auto it = index_.find(key);
  return it == index_.end() ? nullptr : &it->second;
}

void Transfer::Under(const StateId& state_id) {
  if (state_id == state_id_) return;
  state_id_ = state_id;
  for (PartProgress& p : progress_) {
    p.posted = false;
    p.landed = 0;
    p.digest.reset();
  }
}

std::optional<size_t> Transfer::LinkFor(const BundlePart& part) const {
  const size_t preferred = part.is_state ? state_link_ : kv_link_;
  if (preferred < ways_.size() && !ways_[preferred].dead) return preferred;
  // Those that carry bytes only come before the one that the conversation depends on.
  for (size_t i = ways_.size(); i-- > 0;)
    if (!ways_[i].dead) return i;
  return std::nullopt;
}

Status Transfer::Fetch(const std::vector<Wanted>& wanted, Instant deadline) {
  std::set<size_t> pending;
  for (const Wanted& w : wanted) {
    progress_[w.index].address = w.address;
    pending.insert(w.index);
  }
  while (!pending.empty()) {
    std::vector<std::vector<size_t>> shares(ways_.size());
    for (const size_t i : pending) {
      const auto way = LinkFor(progress_[i].part);
      if (!way.has_value())
        return Reject(Reason::kPeerUnavailable, "every link of the hand-off is dead");
      shares[*way].push_back(i);
    }
    pending.clear();
    for (size_t way = 0; way < shares.size(); ++way) {
      if (shares[way].empty()) continue;
      // A share planned for a link that died in this round waits for the next.
      if (ways_[way].dead) {
        pending.insert(shares[way].begin(), shares[way].end());
        continue;
      }
      std::set<size_t> again;
      BATON_RETURN_IF_ERROR(FetchOver(way, shares[way], deadline, &again));
      pending.merge(again);
    }
  }
  return absl::OkStatus();
}

// Ok if the share has landed, or moves: then `again` says what is to be fetched anew.
Status Transfer::FetchOver(size_t way,
                           const std::vector<size_t>& share,
                           Instant deadline,
                           std::set<size_t>* again) {
  Way& w = ways_[way];
  std::vector<ReadExtent> extents;
  extents.reserve(share.size());
  for (const size_t i : share) {
    PartProgress& p = progress_[i];
    p.posted = true;
    p.link = way;
    p.given |= Bit(way);
    p.landed = 0;
    p.digest.reset();
    extents.push_back({state_id_, p.part.key, p.address.region, p.address.offset, p.part.bytes,
                       destination_->BytesOf(p.part)});
  }
  const Instant start = clock_->Now();
  PullOutcome outcome = w.connector->Pull(*w.link, extents, deadline);
  seconds_ += Seconds(clock_->Now() - start);
  uint64_t bytes = 0;
  for (size_t k = 0; k < share.size(); ++k) {
    progress_[share[k]].landed = k < outcome.landed.size() ? outcome.landed[k] : 0;
    bytes += progress_[share[k]].landed;
  }
  if (stats_ != nullptr) stats_->connectors.Add(w.connector->name(), {.pulls = 1, .bytes = bytes});
  if (outcome.status.ok() && outcome.quiet) return absl::OkStatus();
  if (!outcome.quiet)
    for (const PartProgress& p : progress_)
      if ((p.given & Bit(way)) != 0)
        destination_->Suspect(p.part, std::string(w.connector->name()), outcome.writers_left);
  // What lies is refused by name; only what is gone is replaced.
  const bool gone = !outcome.status.ok() && ReasonOf(outcome.status) == Reason::kPeerUnavailable;
  Status status = outcome.status;
  if (status.ok())
    status = Reject(Reason::kPeerUnavailable,
                    absl::StrCat(std::string(w.connector->name()),
                                 ": the connector cannot prove that nobody writes any more"));
  if ((!gone && !outcome.status.ok()) || clock_->Now() >= deadline) return status;
  w.dead = true;
  if (way == 0) return status;  // the conversation is over, and with it every grant
  w.link->Close();
  BATON_RETURN_IF_ERROR(MoveShare(way, share, outcome, again));
  LogWarning(absl::StrCat("hand-off: ", std::string(w.connector->name()), " died (",
                          std::string(status.message()), "); ", again->size(),
                          " parts move to another connector"));
  return absl::OkStatus();
}

Status Transfer::MoveShare(size_t way,
                           const std::vector<size_t>& share,
                           const PullOutcome& outcome,
                           std::set<size_t>* again) {
  // Not all of it need be fetched again: what was withdrawn since has not been
  // asked for anew.
  std::set<size_t> renew;
  for (const size_t i : share)
    if (progress_[i].landed != progress_[i].part.bytes || !outcome.quiet) renew.insert(i);
  bool slot = false;
  for (size_t i = 0; i < progress_.size(); ++i) {
    const PartProgress& p = progress_[i];
    if (!outcome.quiet && (p.given & Bit(way)) != 0) renew.insert(i);
    slot = slot || (p.part.is_state && renew.contains(i));
  }
  if (slot)
    for (size_t i = 0; i < progress_.size(); ++i)
      if (progress_[i].part.is_state) renew.insert(i);
  std::vector<BundlePart> moved;
  for (const size_t i : renew) {
    PartProgress& p = progress_[i];
    if (p.posted) again->insert(i);
    p.posted = false;
    p.given = 0;
    p.digest.reset();
    moved.push_back(p.part);
    if (!checks_.On(Check::kFreshMemory)) destination_->Trust(p.part);
  }
  if (checks_.On(Check::kFreshMemory)) BATON_RETURN_IF_ERROR(destination_->Renew(moved));
  if (stats_ != nullptr)
    stats_->connectors.Add(ways_[way].connector->name(),
                           {.failovers = 1, .shares_moved = again->size()});
  return absl::OkStatus();
}

std::string Transfer::ConnectorNames() const {
  std::set<std::string> names;
  for (const PartProgress& p : progress_)
    if (p.posted) names.emplace(ways_[p.link].connector->name());
  if (names.empty() && !ways_.empty()) names.emplace(ways_[0].connector->name());
  return absl::StrJoin(names, "+");
}

}  // namespace baton
