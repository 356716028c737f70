// The layout: the canonical table of everything a bundle consists of. It fixes each state part's
// name, shape, dtype, axis meaning and place in the slot, each KV group's block form, the block
// size and the numerics tag. Which parts a bundle has, and how long each is, is a function of
// (layout, boundary) and never of what a peer offers.
//
// It holds no bytes and no addresses; memory/ places them. docs/format/layout.md has every byte.
//
// Thread rule: a Layout is immutable after Build or Decode; share it freely.
#ifndef BATON_IDENTITY_LAYOUT_H_
#define BATON_IDENTITY_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/types.h"

namespace baton {

enum class ElementType : uint8_t { kF32 = 1, kBF16 = 2, kF16 = 3 };

// 4, 2, 2.
size_t ElementBytes(ElementType type);
// "f32", "bf16", "f16".
std::string_view ElementName(ElementType type);

// One recurrent layer's component of the state slot; the unit with its own digest.
struct StatePart {
  uint32_t layer = 0;
  std::string component;  // "conv", "ssm", ...
  ElementType dtype = ElementType::kF32;
  std::vector<int64_t> shape;  // every extent >= 1; at least one
  std::string axes;  // what each axis means and its order: "H,N,P", "tap-oldest-first,channel"
  // Filled by Layout::Build.
  uint64_t offset = 0;  // bytes from the start of the slot, a multiple of Layout::kPartAlign
  uint64_t bytes = 0;   // product(shape) * ElementBytes(dtype)

  friend bool operator==(const StatePart&, const StatePart&) = default;
};

// The attention layers that share one paged pool. One block holds kBlockTokens tokens of K and V
// of every layer of the group, layer after layer in the order of `layers`:
//   K as [kv_heads][head_dim][kBlockTokens], then V as [kv_heads][kBlockTokens][head_dim].
// Positions of a block that no token has reached yet are zero.
struct KvGroup {
  std::string name;              // "full", "window"
  uint32_t window = 0;           // tokens a query sees including itself; 0 = all
  std::vector<uint32_t> layers;  // model layer indices, at least one
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  ElementType dtype = ElementType::kF32;
  std::string axes = "layer,K[head,dim,token],V[head,token,dim]";
  uint64_t block_bytes = 0;  // filled by Layout::Build

  // Where one head's K ([head_dim][kBlockTokens]) or V ([kBlockTokens][head_dim]) starts, in
  // elements from the start of the block. `layer_ordinal` indexes `layers`.
  uint64_t KOffset(size_t layer_ordinal, size_t head) const {
    return layer_ordinal * LayerElements() + head * HeadElements();
  }
  uint64_t VOffset(size_t layer_ordinal, size_t head) const {
    return layer_ordinal * LayerElements() + (kv_heads + head) * HeadElements();
  }
  uint64_t HeadElements() const { return uint64_t{head_dim} * kBlockTokens; }
  uint64_t LayerElements() const { return 2 * kv_heads * HeadElements(); }

  friend bool operator==(const KvGroup&, const KvGroup&) = default;
};

struct LayoutSpec {
  std::vector<StatePart> parts;  // order is the order in the slot, in the seal and on the wire
  std::vector<KvGroup> groups;
  Sha256 numerics_tag;  // digest of the kernel vectors run at start-up
  std::string extra;    // anything else that must agree between peers, e.g. "tp=0/1"
};

class Layout {
 public:
  static constexpr uint64_t kPartAlign = 64;
  static constexpr uint64_t kSlotAlign = 4096;
  // Bounds that no real model reaches; a record beyond them is refused before it is believed.
  static constexpr size_t kMaxParts = 16384;
  static constexpr size_t kMaxGroups = 64;
  static constexpr size_t kMaxGroupLayers = 4096;
  static constexpr size_t kMaxRank = 8;
  static constexpr size_t kMaxText = 256;
  static constexpr size_t kMaxExtra = 4096;
  static constexpr uint64_t kMaxBytes = uint64_t{1} << 40;  // of a slot, of a block

  // The empty layout: no parts, no groups.
  Layout();

  // Validates `spec`, fills offsets and sizes. A layout without state parts (pure attention) or
  // without KV groups is legal. Fails with kInvalidArgument naming the part or group and the field:
  // an empty or duplicate name, a non-positive extent, a layer listed twice in KV groups, a count
  // or size beyond the bounds above.
  static StatusOr<Layout> Build(LayoutSpec spec);

  // The canonical encoding, its last 32 bytes being the fingerprint. Equal layouts encode equally.
  std::vector<uint8_t> Encode() const;
  // Reads a record from anywhere. Fails with Reason::kMalformed (bad magic, bounds, checksum,
  // trailing bytes, offsets that Build would not assign) or kProtocolVersion (unknown version).
  static StatusOr<Layout> Decode(ByteSpan record);

  // SHA-256 of the canonical encoding.
  const Sha256& fingerprint() const { return fingerprint_; }

  const std::vector<StatePart>& parts() const { return spec_.parts; }
  const std::vector<KvGroup>& groups() const { return spec_.groups; }
  const Sha256& numerics_tag() const { return spec_.numerics_tag; }
  const std::string& extra() const { return spec_.extra; }

  size_t StatePartCount() const { return spec_.parts.size(); }
  bool has_state() const { return !spec_.parts.empty(); }
  // "l3.ssm"; for messages and metrics. `part` < StatePartCount().
  std::string PartName(size_t part) const;
  // "full[17]": block 17 (counted from token 0) of a group.
  std::string BlockName(size_t group, uint64_t block) const;
  std::optional<size_t> FindPart(uint32_t layer, std::string_view component) const;

  // Size of a slot: a multiple of kSlotAlign; 0 without state parts.
  uint64_t slot_bytes() const { return slot_bytes_; }
  // Bytes of all state parts, without gaps.
  uint64_t state_payload_bytes() const { return state_payload_bytes_; }
  // KV bytes one more token costs, over all groups (windows ignored).
  uint64_t kv_bytes_per_token() const { return kv_bytes_per_token_; }

  // A sequence at `boundary` tokens needs blocks [FirstBlock, FirstBlock + BlockCount) of a group:
  // all of them for a full group, those a next token can still see for a window. A block is
  // counted from token 0 of the sequence. Off the grid the last block is partial and always
  // counted: the next token goes there.
  uint64_t FirstBlock(size_t group, uint64_t boundary) const;
  uint64_t BlockCount(size_t group, uint64_t boundary) const;
  // Sum of BlockCount over all groups.
  uint64_t TotalBlocks(uint64_t boundary) const;
  // KV bytes of a bundle at `boundary`.
  uint64_t KvPayloadBytes(uint64_t boundary) const;

  // "" if equal, else the first difference in words: "l3.ssm axes: H,N,P here, H,P,N there".
  std::string FirstDifference(const Layout& other) const;

  friend bool operator==(const Layout& a, const Layout& b) {
    return a.fingerprint_ == b.fingerprint_;
  }

 private:
  std::vector<uint8_t> EncodeBody() const;

  LayoutSpec spec_;
  Sha256 fingerprint_;
  uint64_t slot_bytes_ = 0;
  uint64_t state_payload_bytes_ = 0;
  uint64_t kv_bytes_per_token_ = 0;
};

}  // namespace baton

#endif  // BATON_IDENTITY_LAYOUT_H_
