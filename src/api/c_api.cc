// The C API over the C++ one. No exception can leave: nothing below throws but for lack of memory,
// which ends the process.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "baton/baton.h"
#include "baton/state_plane.h"

namespace plane = baton::plane;

struct baton_error {
  std::string reason, message;
};
struct baton_plane {
  std::unique_ptr<plane::StatePlane> plane;
  std::vector<std::string> endpoints;
};
struct baton_sequence {
  plane::Sequence sequence;
};
struct baton_lease {
  plane::Lease lease;
};
struct baton_offer {
  plane::Offer offer;
  std::string state_id;
};

namespace {

// Sets *error from `status`; true on success.
bool Report(const plane::Status& status, baton_error** error) {
  if (error != nullptr)
    *error = status.ok ? nullptr : new baton_error{status.reason, status.message};
  return status.ok;
}

plane::Element ElementOf(baton_element e) {
  if (e == BATON_BF16) return plane::Element::kBF16;
  return e == BATON_F16 ? plane::Element::kF16 : plane::Element::kF32;
}

std::string Text(const char* text) { return text == nullptr ? "" : text; }

plane::Options OptionsOf(const baton_options& c) {
  plane::Options o;
  std::copy(c.model, c.model + sizeof c.model, o.model.begin());
  std::copy(c.numerics, c.numerics + sizeof c.numerics, o.numerics.begin());
  for (size_t i = 0; i < c.part_count; ++i) {
    const baton_state_part& p = c.parts[i];
    o.parts.push_back({p.layer, Text(p.component), ElementOf(p.element),
                       std::vector<int64_t>(p.shape, p.shape + p.rank), Text(p.axes)});
  }
  for (size_t i = 0; i < c.group_count; ++i) {
    const baton_kv_group& g = c.groups[i];
    o.groups.push_back({Text(g.name), std::vector<uint32_t>(g.layers, g.layers + g.layer_count),
                        g.kv_heads, g.head_dim, ElementOf(g.element), g.window});
  }
  if (c.slots != 0) o.slots = c.slots;
  if (c.blocks != 0) o.blocks = c.blocks;
  o.memory = c.memory;
  o.memory_bytes = c.memory_bytes;
  o.memory_fd = c.memory == nullptr ? -1 : c.memory_fd;
  for (size_t i = 0; i < c.listen_count; ++i) o.listen.push_back(Text(c.listen[i]));
  if (c.lease_ms != 0) o.lease = std::chrono::milliseconds(c.lease_ms);
  if (c.digest_key_bytes != 0) o.digest_key.assign(c.digest_key, c.digest_key + c.digest_key_bytes);
  return o;
}

void* BytesOf(std::span<std::byte> span, size_t* bytes) {
  if (bytes != nullptr) *bytes = span.size();
  return span.empty() ? nullptr : span.data();
}

baton_sequence* Wrap(std::optional<plane::Sequence> sequence,
                     const plane::Status& status,
                     baton_error** error) {
  if (!Report(status, error) || !sequence.has_value()) return nullptr;
  return new baton_sequence{*std::move(sequence)};
}

}  // namespace

const char* baton_error_reason(const baton_error* error) { return error->reason.c_str(); }
const char* baton_error_message(const baton_error* error) { return error->message.c_str(); }
void baton_error_free(baton_error* error) { delete error; }

baton_plane* baton_plane_create(const baton_options* options, baton_error** error) {
  plane::Status status;
  auto made = plane::StatePlane::Create(OptionsOf(*options), &status);
  if (!Report(status, error) || made == nullptr) return nullptr;
  std::vector<std::string> endpoints = made->endpoints();
  return new baton_plane{std::move(made), std::move(endpoints)};
}
void baton_plane_free(baton_plane* plane) { delete plane; }
size_t baton_memory_bytes(const baton_options* options, baton_error** error) {
  plane::Status status;
  const size_t bytes = plane::StatePlane::MemoryBytes(OptionsOf(*options), &status);
  return Report(status, error) ? bytes : 0;
}
const char* baton_plane_endpoint(const baton_plane* plane, size_t i) {
  return i < plane->endpoints.size() ? plane->endpoints[i].c_str() : nullptr;
}

baton_sequence* baton_begin(baton_plane* plane, const char* tenant, baton_error** error) {
  plane::Status status;
  auto sequence = plane->plane->Begin(Text(tenant), &status);
  return Wrap(std::move(sequence), status, error);
}
baton_sequence* baton_pull(baton_plane* plane,
                           const char* endpoint,
                           const char* tenant,
                           const uint32_t* tokens,
                           size_t count,
                           uint32_t timeout_ms,
                           baton_error** error) {
  plane::PullOptions options{Text(endpoint), Text(tenant), std::chrono::milliseconds(timeout_ms)};
  plane::Status status;
  auto sequence = plane->plane->Pull(options, std::span(tokens, count), &status);
  return Wrap(std::move(sequence), status, error);
}
void baton_sequence_free(baton_sequence* sequence) { delete sequence; }
uint64_t baton_sequence_boundary(const baton_sequence* sequence) {
  return sequence->sequence.boundary();
}
int baton_extend(baton_sequence* sequence, uint64_t tokens, baton_error** error) {
  return Report(sequence->sequence.Extend(tokens), error) ? 0 : -1;
}
int baton_advance(baton_sequence* sequence,
                  const uint32_t* tokens,
                  size_t count,
                  baton_error** error) {
  return Report(sequence->sequence.Advance(std::span(tokens, count)), error) ? 0 : -1;
}
void baton_invalidate(baton_sequence* sequence) { sequence->sequence.Invalidate(); }

baton_lease* baton_pin(baton_sequence* sequence, baton_error** error) {
  plane::Status status;
  auto lease = sequence->sequence.Pin(&status);
  if (!Report(status, error) || !lease.has_value()) return nullptr;
  return new baton_lease{*std::move(lease)};
}
void* baton_lease_part(const baton_lease* lease, size_t part, size_t* bytes) {
  return BytesOf(lease->lease.part(part), bytes);
}
void* baton_lease_block(const baton_lease* lease, size_t group, size_t block, size_t* bytes) {
  return BytesOf(lease->lease.block(group, block), bytes);
}
void baton_lease_free(baton_lease* lease) { delete lease; }

baton_offer* baton_offer_sequence(baton_sequence* sequence, baton_error** error) {
  const std::unique_ptr<baton_sequence> used(sequence);
  plane::Status status;
  auto offer = std::move(used->sequence).MakeOffer(&status);
  if (!Report(status, error) || !offer.has_value()) return nullptr;
  std::string id = offer->state_id();
  return new baton_offer{*std::move(offer), std::move(id)};
}
const char* baton_offer_state_id(const baton_offer* offer) { return offer->state_id.c_str(); }
int baton_offer_verify(const baton_offer* offer, baton_error** error) {
  return Report(offer->offer.Verify(), error) ? 0 : -1;
}
int baton_offer_wait(const baton_offer* offer, uint32_t timeout_ms) {
  return offer->offer.WaitReleased(std::chrono::milliseconds(timeout_ms)) ? 1 : 0;
}
void baton_offer_free(baton_offer* offer) { delete offer; }
