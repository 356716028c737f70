#include "baton/state_plane.h"

#include <algorithm>
#include <utility>

#include "api/plane.h"

namespace baton::plane {
namespace {

using internal::ToPublic;

// The value, or nothing and the error in `out` (which may be null).
template <class T>
std::optional<T> Unwrap(absl::StatusOr<T> result, Status* out) {
  if (out != nullptr) *out = ToPublic(result.status());
  if (!result.ok()) return std::nullopt;
  return *std::move(result);
}

}  // namespace

Lease::Lease(std::unique_ptr<internal::LeaseState> state) : state_(std::move(state)) {}
Lease::Lease(Lease&&) noexcept = default;
Lease& Lease::operator=(Lease&&) noexcept = default;
Lease::~Lease() = default;

std::span<std::byte> Lease::part(size_t i) const {
  const auto& parts = state_->layout->parts();
  if (i >= parts.size()) return {};
  return MutableByteSpan(state_->slot.bytes()).subspan(parts[i].offset, parts[i].bytes);
}

std::span<std::byte> Lease::block(size_t group, size_t i) const {
  if (group >= state_->blocks.size() || i < state_->first[group]) return {};
  i -= state_->first[group];
  if (i >= state_->blocks[group].size()) return {};
  return state_->blocks[group].bytes(i).first(state_->layout->groups()[group].block_bytes);
}

Offer::Offer(std::shared_ptr<internal::Offered> offered) : offered_(std::move(offered)) {}
Offer::Offer(Offer&&) noexcept = default;
Offer& Offer::operator=(Offer&& other) noexcept {
  if (offered_ != nullptr) offered_->plane->Withdraw(*offered_);
  offered_ = std::move(other.offered_);
  return *this;
}
Offer::~Offer() {
  if (offered_ != nullptr) offered_->plane->Withdraw(*offered_);
}
std::string Offer::state_id() const { return offered_->seal.state_id.Hex(); }
uint64_t Offer::boundary() const { return offered_->record.boundary(); }
Status Offer::Verify() const { return ToPublic(offered_->plane->Verify(*offered_)); }

bool Offer::WaitReleased(std::chrono::milliseconds timeout) const {
  const auto deadline = std::chrono::steady_clock::now() +
                        std::min<std::chrono::milliseconds>(timeout, internal::kTimeoutMax);
  MutexLock lock(&offered_->mu);
  while (offered_->released == 0) {
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) return false;
    offered_->changed.WaitFor(&offered_->mu, deadline - now);
  }
  return true;
}

Sequence::Sequence(std::unique_ptr<internal::SequenceState> state) : state_(std::move(state)) {}
Sequence::Sequence(Sequence&&) noexcept = default;
Sequence& Sequence::operator=(Sequence&&) noexcept = default;
Sequence::~Sequence() = default;
uint64_t Sequence::boundary() const { return state_->record.boundary(); }
Status Sequence::Extend(uint64_t tokens) {
  return ToPublic(state_->plane->Extend(state_.get(), tokens));
}
std::optional<Lease> Sequence::Pin(Status* status) {
  auto lease = Unwrap(state_->plane->Pin(*state_), status);
  if (!lease.has_value()) return std::nullopt;
  return Lease(*std::move(lease));
}
Status Sequence::Advance(std::span<const uint32_t> tokens) {
  return ToPublic(state_->plane->Advance(state_.get(), tokens));
}
void Sequence::Invalidate() { state_->record.Invalidate(); }
std::optional<Offer> Sequence::MakeOffer(Status* status) && {
  internal::Plane* plane = state_->plane;
  auto offered = Unwrap(plane->Seal(std::move(state_)), status);
  if (!offered.has_value()) return std::nullopt;
  return Offer(*std::move(offered));
}

StatePlane::StatePlane() = default;
StatePlane::~StatePlane() = default;

std::unique_ptr<StatePlane> StatePlane::Create(const Options& options, Status* status) {
  auto plane = Unwrap(internal::Plane::Create(options), status);
  if (!plane.has_value()) return nullptr;
  auto out = std::unique_ptr<StatePlane>(new StatePlane);
  out->plane_ = *std::move(plane);
  return out;
}

size_t StatePlane::MemoryBytes(const Options& options, Status* status) {
  return Unwrap(internal::Plane::MemoryBytes(options), status).value_or(0);
}

std::vector<std::string> StatePlane::endpoints() const { return plane_->endpoints(); }

std::optional<Sequence> StatePlane::Begin(std::string_view tenant, Status* status) {
  auto state = Unwrap(plane_->Begin(tenant), status);
  if (!state.has_value()) return std::nullopt;
  return Sequence(*std::move(state));
}

std::optional<Sequence> StatePlane::Pull(const PullOptions& options,
                                         std::span<const uint32_t> tokens,
                                         Status* status) {
  auto state = Unwrap(plane_->Pull(options, tokens), status);
  if (!state.has_value()) return std::nullopt;
  return Sequence(*std::move(state));
}

void StatePlane::Stop() { plane_->Stop(); }

}  // namespace baton::plane
