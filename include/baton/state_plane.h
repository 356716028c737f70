// The state plane as a library: memory for the state of sequences, a verifiable identity for each,
// and hand-off of a whole bundle (KV blocks and recurrent state at one token boundary) to another
// process, which gets it verified or an error, never a wrong one. No model code; std types only.
//
// What your engine must supply itself, because no digest can see it:
//   * Advance() in the same call that advances the state. The plane keeps a rolling prefix hash and
//     the boundary from it, and seals a bundle under that and nothing else. If a kernel writes the
//     wrong slot, the seal will be of the wrong bytes: recompute a share of bundles from their
//     tokens and compare bit for bit (replay audit).
//   * A fingerprint of everything that makes states differ: every weight, the effective config, an
//     adapter; and a numerics tag: what two builds of your kernels must share for equal bits.
//   * A step that failed half way: Sequence::Invalidate().
//
// Errors: every function that can fail says so in a Status. `reason` is a stable snake_case code
// ("digest_mismatch", "model_mismatch", "lease_expired", ...; docs/operations.md) where a caller
// can act on one, else ""; `message` names the part, what was expected and what was found.
//
// Thread rule: StatePlane is thread-safe; a Sequence, Lease or Offer belongs to one thread at a
// time. The plane outlives everything made from it.
#ifndef BATON_STATE_PLANE_H_
#define BATON_STATE_PLANE_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace baton::plane {

// Tokens per KV block; bundles exist at multiples of it only.
inline constexpr uint64_t kGrid = 16;

struct Status {
  bool ok = true;
  std::string reason;
  std::string message;
  explicit operator bool() const { return ok; }
};

enum class Element { kF32, kBF16, kF16 };

// One layer's component of a sequence's state, e.g. layer 3's convolution window.
struct StatePart {
  uint32_t layer = 0;
  std::string component;  // "conv", "ssm", ...
  Element element = Element::kF32;
  std::vector<int64_t> shape;  // row-major, the last axis innermost
  std::string axes;            // what each axis means, in order: part of the identity
};

// Attention layers that share one paged pool. A block holds 16 tokens of K and V of every layer:
// K as [kv_heads][head_dim][16], then V as [kv_heads][16][head_dim], layer after layer.
struct KvGroup {
  std::string name;
  std::vector<uint32_t> layers;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  Element element = Element::kF32;
  // Tokens a query sees, itself included; 0: all. Blocks that no next token can see any more are
  // freed by Advance, and a bundle holds only the others.
  uint32_t window = 0;
};

struct Options {
  std::array<uint8_t, 32> model{};     // fingerprint; differs: refused at connect
  std::array<uint8_t, 32> numerics{};  // tag; differs: refused at connect
  std::vector<StatePart> parts;        // may be empty
  std::vector<KvGroup> groups;         // may be empty
  uint32_t slots = 16;                 // sequences at once, offered ones included
  uint32_t blocks = 1024;              // KV blocks per group

  // Memory of your own, page-aligned and at least MemoryBytes() long, for slots and blocks; null:
  // the plane maps its own. `memory_fd` is the memfd behind it, sealed with F_SEAL_SHRINK, which
  // shm needs (a peer maps it); -1: none. Seal it with F_SEAL_FUTURE_WRITE too once it is mapped,
  // or a peer can write there.
  void* memory = nullptr;
  size_t memory_bytes = 0;
  int memory_fd = -1;

  // Where peers may pull from: "tcp:127.0.0.1:7000" (port 0: any), "shm:@name".
  std::vector<std::string> listen;
  std::chrono::milliseconds lease{30000};  // how long an offer's memory is kept for one peer
  // Called when a peer asks for tokens that are not offered; it may compute and offer them. Runs on
  // the peers' threads, several at once; not any more when StatePlane::Stop has returned. A peer
  // names its tenant by hash only: `tenant` is the one of `tenants` below that it is, or "" if it
  // is the shared one; asks of other tenants are refused without a call.
  std::function<void(std::string_view tenant, std::span<const uint32_t> tokens)> on_ask;
  std::vector<std::string> tenants;
  // Keyed BLAKE2b instead of XXH3-128 where the transport is not trusted: 16 to 64 bytes, the same
  // on both sides. Empty: XXH3-128.
  std::vector<uint8_t> digest_key;
};

namespace internal {
class Plane;
struct SequenceState;
struct LeaseState;
struct Offered;
}  // namespace internal

// Pins a sequence's memory: while it lives, the spans stay valid and nothing moves.
class Lease {
 public:
  Lease(Lease&&) noexcept;
  Lease& operator=(Lease&&) noexcept;
  ~Lease();
  // State part `i`, in the order of Options::parts: exactly its bytes.
  std::span<std::byte> part(size_t i) const;
  // KV block `i`, counted from token 0. Empty if there is none, or the window has left it behind.
  std::span<std::byte> block(size_t group, size_t i) const;

 private:
  friend class Sequence;
  explicit Lease(std::unique_ptr<internal::LeaseState> state);
  std::unique_ptr<internal::LeaseState> state_;
};

// A sealed bundle that peers may pull. Its destruction withdraws it; a peer in the middle of a pull
// keeps the memory until it is done or its lease has run out.
class Offer {
 public:
  Offer(Offer&&) noexcept;
  Offer& operator=(Offer&&) noexcept;
  ~Offer();
  std::string state_id() const;  // 32 hexadecimal digits
  uint64_t boundary() const;
  // Reads the memory again and compares it with the seal.
  Status Verify() const;
  // Blocks until a peer has pulled it and said so, or the time is over (false).
  bool WaitReleased(std::chrono::milliseconds timeout) const;

 private:
  friend class Sequence;
  explicit Offer(std::shared_ptr<internal::Offered> offered);
  std::shared_ptr<internal::Offered> offered_;
};

// The memory of one sequence: one state slot and a growing list of KV blocks. Its destruction frees
// them.
class Sequence {
 public:
  Sequence(Sequence&&) noexcept;
  Sequence& operator=(Sequence&&) noexcept;
  ~Sequence();
  // Tokens the state has absorbed, as told by Advance.
  uint64_t boundary() const;
  // KV blocks for `tokens` tokens in every group (of a window: those it has not left behind),
  // zero-filled. no_capacity, and nothing taken, if
  // there are not enough.
  Status Extend(uint64_t tokens);
  std::optional<Lease> Pin(Status* status);
  // The state has absorbed `tokens`: call it where the step that wrote the state returns.
  // Fails if Extend did not cover them.
  Status Advance(std::span<const uint32_t> tokens);
  // A step failed half way: from now on the sequence can be freed, not offered.
  void Invalidate();
  // Seals the bundle and lets peers pull it. The boundary must be a multiple of 16 and no Lease be
  // held. The sequence is used up, also on error.
  std::optional<Offer> MakeOffer(Status* status) &&;

 private:
  friend class StatePlane;
  explicit Sequence(std::unique_ptr<internal::SequenceState> state);
  std::unique_ptr<internal::SequenceState> state_;
};

struct PullOptions {
  std::string endpoint;  // of the plane that offers
  std::string tenant;    // both sides must name the same; separates states from token 0
  std::chrono::milliseconds timeout{30000};
};

class StatePlane {
 public:
  // Null and an error if an option is wrong, memory cannot be had or an endpoint cannot be bound.
  static std::unique_ptr<StatePlane> Create(const Options& options, Status* status);
  ~StatePlane();  // Stop()
  // What Options::memory must hold at least.
  static size_t MemoryBytes(const Options& options, Status* status);

  // As bound.
  std::vector<std::string> endpoints() const;
  // A new sequence: a zero-filled slot, no tokens.
  std::optional<Sequence> Begin(std::string_view tenant, Status* status);
  // The bundle of exactly these tokens (a multiple of 16, at least 16) from a peer: asked for,
  // pulled into fresh memory, every byte digested where it landed and compared with the identity
  // this side derives from `tokens`. Blocks. On an error nothing is kept; try again or recompute.
  std::optional<Sequence> Pull(const PullOptions& options,
                               std::span<const uint32_t> tokens,
                               Status* status);
  // Serves no peer any more; waits for callbacks that run. The first step of taking an engine down:
  // offers and sequences may be dropped after it, then the plane. Repeatable.
  void Stop();

 private:
  StatePlane();
  std::unique_ptr<internal::Plane> plane_;
};

}  // namespace baton::plane

#endif  // BATON_STATE_PLANE_H_
