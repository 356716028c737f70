#include "engine/tiering.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "handoff/parts.h"
#include "handoff/restore.h"

namespace baton::engine {

Tiering::Tiering(Options options,
                 const Layout* layout,
                 PoolSet pools,
                 std::function<void()> on_released)
    : tiers_(std::move(options.tiers)),
      queue_max_(options.queue_max),
      layout_(layout),
      pools_(std::move(pools)),
      on_released_(std::move(on_released)) {
  if (!tiers_.empty()) thread_ = std::thread([this] { Main(); });
}

Tiering::~Tiering() { Stop(); }

void Tiering::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  cancel_.request_stop();
  thread_.join();
  Shed();
}

std::optional<Tiering::Found> Tiering::FindDeepest(const IdentityBase& base,
                                                   std::span<const Sha256> hashes,
                                                   int64_t max_boundary) const {
  std::optional<Found> best;
  for (size_t i = 0; i < tiers_.size(); ++i) {
    const std::optional<uint64_t> found =
        tiers_[i]->FindDeepest(base, hashes, static_cast<uint64_t>(max_boundary));
    if (found.has_value() && (!best.has_value() || static_cast<int64_t>(*found) > best->boundary))
      best = Found{i, static_cast<int64_t>(*found)};
  }
  return best;
}

PullResult Tiering::Restore(size_t tier, const PullRequest& request, const CancelToken& cancel) {
  const PrefixChain chain(request.ask.expected.scope, request.ask.tokens);
  const Layout& layout = *layout_;
  RestoreRequest restore;
  restore.expected.identity = request.ask.expected;
  restore.expected.chain = &chain;
  const auto fill = [&](const RestorePlace& place, PullReport* report) -> Status {
    for (const BundlePart& part : BundleParts(layout, request.ask.expected.boundary)) {
      restore.targets.push_back({part, place.bytes(part)});
      ++report->parts;
      report->planned += part.bytes;
      (part.is_state ? report->state_bytes : report->kv_bytes) += part.bytes;
    }
    restore.check_handles = place.check_handles;
    BATON_ASSIGN_OR_RETURN(RestoredBundle bundle, tiers_[tier]->Restore(restore, cancel));
    report->posted = report->landed = report->planned;
    report->state_id = bundle.seal.state_id;
    report->seal = std::move(bundle.seal);
    report->block_digests = std::move(bundle.block_digests);
    return absl::OkStatus();
  };
  PullResult result = RestoreBundle({pools_.slots, pools_.blocks}, layout, request, fill);
  result.report.connector = std::string(tiers_[tier]->name());
  return result;
}

void Tiering::Demote(std::shared_ptr<const Checkpoint> checkpoint, PrefixChain chain) {
  if (tiers_.empty()) return;
  Job oldest{nullptr, PrefixChain(Sha256())};  // let go outside the lock
  {
    MutexLock lock(&mu_);
    if (stop_) return;
    if (queue_.size() >= queue_max_) {
      oldest = std::move(queue_.front());
      queue_.pop_front();
      dropped_.fetch_add(1);
      holding_.fetch_sub(1);
    }
    queue_.push_back({std::move(checkpoint), std::move(chain)});
    holding_.fetch_add(1);
    wake_.NotifyOne();
  }
}

bool Tiering::Shed() {
  std::deque<Job> gone;
  MutexLock lock(&mu_);
  gone.swap(queue_);
  dropped_.fetch_add(gone.size());
  holding_.fetch_sub(static_cast<int64_t>(gone.size()));
  return !gone.empty();
}

void Tiering::Flush() {
  MutexLock lock(&mu_);
  while (!stop_ && (busy_ || !queue_.empty())) idle_.Wait(&mu_);
}

size_t Tiering::queued() const {
  MutexLock lock(&mu_);
  return queue_.size() + busy_;
}

size_t Tiering::Revoke(const absl::flat_hash_set<StateId>& ids) {
  size_t count = 0;
  {
    MutexLock lock(&mu_);
    revoked_.insert(ids.begin(), ids.end());
  }
  for (const auto& tier : tiers_)
    for (const StateId& id : ids) count += tier->Revoke(id);
  return count;
}

bool Tiering::IsRevoked(const Checkpoint& checkpoint) {
  MutexLock lock(&mu_);
  return revoked_.contains(checkpoint.seal().state_id) ||
         revoked_.contains(checkpoint.seal().parent);
}

void Tiering::Main() {
  for (;;) {
    Job job{nullptr, PrefixChain(Sha256())};
    {
      MutexLock lock(&mu_);
      idle_.NotifyAll();
      while (queue_.empty() && !stop_) wake_.Wait(&mu_);
      if (stop_) return;
      job = std::move(queue_.front());
      queue_.pop_front();
      busy_ = true;
    }
    Put(job);
    job.checkpoint.reset();
    holding_.fetch_sub(1);
    {
      MutexLock lock(&mu_);
      busy_ = false;
    }
    on_released_();
  }
}

void Tiering::Put(const Job& job) {
  const Checkpoint& c = *job.checkpoint;
  if (IsRevoked(c)) return;
  BundleSource source;
  source.seal = &c.seal();
  source.chain = &job.chain;
  source.block_digests = &c.block_digests();
  source.bytes = [&](const BundlePart& part) -> StatusOr<PinnedBytes> {
    if (part.is_state) {
      if (!c.slot().has_value()) return Reject(Reason::kMissingPart, "the checkpoint has no slot");
      BATON_ASSIGN_OR_RETURN(StateLease lease, pools_.slots->Acquire(*c.slot(), LeaseFor::kDigest));
      auto pin = std::make_shared<StateLease>(std::move(lease));
      const ByteSpan bytes =
          ByteSpan(pin->bytes()).subspan(layout_->parts()[part.part].offset, part.bytes);
      return PinnedBytes{bytes, std::move(pin)};
    }
    BATON_ASSIGN_OR_RETURN(
        BlockLease lease,
        pools_.blocks[part.group]->Acquire(c.blocks()[part.group][part.slot], LeaseFor::kDigest));
    auto pin = std::make_shared<BlockLease>(std::move(lease));
    const ByteSpan bytes = ByteSpan(pin->bytes()).first(part.bytes);
    return PinnedBytes{bytes, std::move(pin)};
  };
  full_.resize(tiers_.size());
  for (size_t i = 0; i < tiers_.size(); ++i) {
    const auto& tier = tiers_[i];
    const Status put = tier->Put(source, cancel_.get_token());
    if (ReasonOf(put) == Reason::kCancelled) continue;
    const bool full = ReasonOf(put) == Reason::kNoCapacity;  // each is counted, the first is said
    const bool said = full && full_[i];
    full_[i] = full;
    if (put.ok() || said) continue;
    LogWarning(absl::StrCat(std::string(tier->name()), " tier: a checkpoint at boundary ",
                            c.boundary(), " was not stored: ", put.message()));
  }
  if (IsRevoked(c))  // meanwhile
    for (const auto& tier : tiers_) tier->Revoke(c.seal().state_id);
}

}  // namespace baton::engine
