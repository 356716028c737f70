#include "identity/layout.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/sha256.h"
#include "identity/element_f8.h"

namespace baton {
namespace {

constexpr uint32_t kMaxLayer = 1u << 20;
constexpr size_t kMaxName = 64;

uint64_t RoundUp(uint64_t n, uint64_t align) { return (n + align - 1) / align * align; }

bool IsName(std::string_view s) {
  if (s.empty() || s.size() > kMaxName) return false;
  for (char c : s) {
    const bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!word && c != '_' && c != '-') return false;
  }
  return true;
}

bool IsText(std::string_view s, size_t max) {
  if (s.size() > max) return false;
  for (char c : s)
    if (c < ' ' || c > '~') return false;
  return true;
}

bool IsElementType(ElementType t) {
  return t >= ElementType::kF32 && t <= kElementF8E4M3;
}

// a * b, or nullopt once the product passes Layout::kMaxBytes.
std::optional<uint64_t> BoundedProduct(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > Layout::kMaxBytes) return std::nullopt;
  return product;
}

Status Bad(std::string_view what, std::string_view field, std::string_view detail) {
  return absl::InvalidArgumentError(absl::StrCat("layout: ", std::string(what), ": ",
                                                 std::string(field), " ", std::string(detail)));
}

// Fills part->bytes.
Status CheckPart(StatePart* part, size_t index) {
  if (!IsName(part->component))
    return Bad(absl::StrCat("part ", index), "component",
               "must be 1..64 letters, digits, '_' or '-'");
  const std::string name = absl::StrCat("l", part->layer, ".", part->component);
  if (part->layer >= kMaxLayer) return Bad(name, "layer", absl::StrCat("must be < ", kMaxLayer));
  if (!IsElementType(part->dtype)) return Bad(name, "dtype", "must be f32, bf16, f16 or fp8_e4m3");
  if (!IsText(part->axes, Layout::kMaxText))
    return Bad(name, "axes", "must be at most 256 printable characters");
  if (part->shape.empty() || part->shape.size() > Layout::kMaxRank)
    return Bad(name, "shape", absl::StrCat("has rank ", part->shape.size(), ", expected 1..8"));
  uint64_t bytes = ElementBytes(part->dtype);
  for (int64_t extent : part->shape) {
    if (extent < 1)
      return Bad(name, "shape", absl::StrCat("has extent ", extent, ", expected >= 1"));
    const auto product = BoundedProduct(bytes, static_cast<uint64_t>(extent));
    if (!product) return Bad(name, "shape", "is larger than 1 TiB");
    bytes = *product;
  }
  part->bytes = bytes;
  return absl::OkStatus();
}

// Fills group->block_bytes.
Status CheckGroup(KvGroup* group, size_t index) {
  if (!IsName(group->name))
    return Bad(absl::StrCat("KV group ", index), "name",
               "must be 1..64 letters, digits, '_' or '-'");
  const std::string name = absl::StrCat("KV group ", group->name);
  if (!IsElementType(group->dtype)) return Bad(name, "dtype", "must be f32, bf16, f16 or fp8_e4m3");
  if (!IsText(group->axes, Layout::kMaxText))
    return Bad(name, "axes", "must be at most 256 printable characters");
  if (group->layers.empty() || group->layers.size() > Layout::kMaxGroupLayers)
    return Bad(
        name, "layers",
        absl::StrCat("are ", group->layers.size(), ", expected 1..", Layout::kMaxGroupLayers));
  if (group->kv_heads == 0 || group->head_dim == 0)
    return Bad(name, "kv_heads and head_dim", "must be >= 1");
  std::optional<uint64_t> bytes = 2 * kBlockTokens * ElementBytes(group->dtype);
  for (uint64_t factor :
       {uint64_t{group->kv_heads}, uint64_t{group->head_dim}, uint64_t{group->layers.size()}})
    if (bytes) bytes = BoundedProduct(*bytes, factor);
  if (!bytes) return Bad(name, "block", "is larger than 1 TiB");
  group->block_bytes = *bytes;
  return absl::OkStatus();
}

Status CheckNamesDistinct(const LayoutSpec& spec) {
  std::set<std::pair<uint32_t, std::string_view>> parts;
  for (const StatePart& p : spec.parts)
    if (!parts.emplace(p.layer, p.component).second)
      return Bad(absl::StrCat("l", p.layer, ".", p.component), "name", "is used twice");
  std::set<std::string_view> groups;
  std::set<uint32_t> layers;
  for (const KvGroup& g : spec.groups) {
    if (!groups.insert(g.name).second)
      return Bad(absl::StrCat("KV group ", g.name), "name", "is used twice");
    for (uint32_t layer : g.layers) {
      if (layer >= kMaxLayer)
        return Bad(absl::StrCat("KV group ", g.name), "layer",
                   absl::StrCat(layer, " must be < ", kMaxLayer));
      if (!layers.insert(layer).second)
        return Bad(absl::StrCat("KV group ", g.name), "layer",
                   absl::StrCat(layer, " is listed twice"));
    }
  }
  return absl::OkStatus();
}

std::string ShapeText(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ","), "]");
}

}  // namespace

size_t ElementBytes(ElementType type) {
  if (type == kElementF8E4M3) return 1;
  return type == ElementType::kF32 ? 4 : 2;
}

std::string_view ElementName(ElementType type) {
  switch (type) {
    case ElementType::kF32:
      return "f32";
    case ElementType::kBF16:
      return "bf16";
    case ElementType::kF16:
      return "f16";
  }
  return type == kElementF8E4M3 ? "fp8_e4m3" : "unknown";
}

Layout::Layout() {
  const auto body = EncodeBody();
  fingerprint_ = Sha256Of(AsBytes(body));
}

StatusOr<Layout> Layout::Build(LayoutSpec spec) {
  if (spec.parts.size() > kMaxParts)
    return Bad("state", "parts", absl::StrCat("are ", spec.parts.size(), ", at most ", kMaxParts));
  if (spec.groups.size() > kMaxGroups)
    return Bad("KV", "groups", absl::StrCat("are ", spec.groups.size(), ", at most ", kMaxGroups));
  if (!IsText(spec.extra, kMaxExtra))
    return Bad("extra", "text", "must be at most 4096 printable characters");

  Layout layout;
  uint64_t end = 0;  // each addend <= kMaxBytes and the sum is checked each time: no overflow
  for (size_t i = 0; i < spec.parts.size(); ++i) {
    StatePart& part = spec.parts[i];
    BATON_RETURN_IF_ERROR(CheckPart(&part, i));
    part.offset = RoundUp(end, kPartAlign);
    end = part.offset + part.bytes;
    layout.state_payload_bytes_ += part.bytes;
    if (end > kMaxBytes) return Bad("state", "slot", "is larger than 1 TiB");
  }
  layout.slot_bytes_ = RoundUp(end, kSlotAlign);
  for (size_t i = 0; i < spec.groups.size(); ++i) {
    BATON_RETURN_IF_ERROR(CheckGroup(&spec.groups[i], i));
    layout.kv_bytes_per_token_ += spec.groups[i].block_bytes / kBlockTokens;
  }
  BATON_RETURN_IF_ERROR(CheckNamesDistinct(spec));

  layout.spec_ = std::move(spec);
  const auto body = layout.EncodeBody();
  layout.fingerprint_ = Sha256Of(AsBytes(body));
  return layout;
}

std::string Layout::PartName(size_t part) const {
  const StatePart& p = spec_.parts[part];
  return absl::StrCat("l", p.layer, ".", p.component);
}

std::string Layout::BlockName(size_t group, uint64_t block) const {
  return absl::StrCat(spec_.groups[group].name, "[", block, "]");
}

std::optional<size_t> Layout::FindPart(uint32_t layer, std::string_view component) const {
  for (size_t i = 0; i < spec_.parts.size(); ++i)
    if (spec_.parts[i].layer == layer && spec_.parts[i].component == component) return i;
  return std::nullopt;
}

uint64_t Layout::FirstBlock(size_t group, uint64_t boundary) const {
  // The next token, at position `boundary`, sees itself and the window - 1 tokens before it.
  const uint64_t window = spec_.groups[group].window;
  if (window == 0 || boundary < window) return 0;
  return (boundary - window + 1) / kBlockTokens;
}

uint64_t Layout::BlockCount(size_t group, uint64_t boundary) const {
  const uint64_t end = boundary / kBlockTokens + (boundary % kBlockTokens != 0);
  return end - std::min(end, FirstBlock(group, boundary));
}

uint64_t Layout::TotalBlocks(uint64_t boundary) const {
  uint64_t total = 0;
  for (size_t g = 0; g < spec_.groups.size(); ++g) total += BlockCount(g, boundary);
  return total;
}

uint64_t Layout::KvPayloadBytes(uint64_t boundary) const {
  uint64_t total = 0;
  for (size_t g = 0; g < spec_.groups.size(); ++g)
    total += BlockCount(g, boundary) * spec_.groups[g].block_bytes;
  return total;
}

namespace {

// "" or "<what> <field>: <a> here, <b> there".
template <class T>
std::string Differ(std::string_view what, std::string_view field, const T& a, const T& b) {
  if (a == b) return "";
  return absl::StrCat(std::string(what), " ", std::string(field), ": ", a, " here, ", b, " there");
}

std::string FirstOf(std::initializer_list<std::string> candidates) {
  for (const std::string& c : candidates)
    if (!c.empty()) return c;
  return "";
}

std::string PartDifference(const StatePart& a, const StatePart& b) {
  const std::string name = absl::StrCat("l", a.layer, ".", a.component);
  return FirstOf({
      Differ("part", "name", name, absl::StrCat("l", b.layer, ".", b.component)),
      Differ(name, "dtype", std::string(ElementName(a.dtype)), std::string(ElementName(b.dtype))),
      Differ(name, "axes", a.axes, b.axes),
      Differ(name, "shape", ShapeText(a.shape), ShapeText(b.shape)),
      Differ(name, "offset", a.offset, b.offset),
  });
}

std::string GroupDifference(const KvGroup& a, const KvGroup& b) {
  const std::string name = absl::StrCat("KV group ", a.name);
  return FirstOf({
      Differ("KV group", "name", a.name, b.name),
      Differ(name, "window", a.window, b.window),
      Differ(name, "layers", absl::StrJoin(a.layers, ","), absl::StrJoin(b.layers, ",")),
      Differ(name, "kv_heads", a.kv_heads, b.kv_heads),
      Differ(name, "head_dim", a.head_dim, b.head_dim),
      Differ(name, "dtype", std::string(ElementName(a.dtype)), std::string(ElementName(b.dtype))),
      Differ(name, "axes", a.axes, b.axes),
  });
}

}  // namespace

std::string Layout::FirstDifference(const Layout& other) const {
  std::string d = FirstOf({
      Differ("state", "parts", spec_.parts.size(), other.spec_.parts.size()),
      Differ("KV", "groups", spec_.groups.size(), other.spec_.groups.size()),
  });
  for (size_t i = 0; d.empty() && i < spec_.parts.size(); ++i)
    d = PartDifference(spec_.parts[i], other.spec_.parts[i]);
  for (size_t i = 0; d.empty() && i < spec_.groups.size(); ++i)
    d = GroupDifference(spec_.groups[i], other.spec_.groups[i]);
  if (!d.empty()) return d;
  return FirstOf({
      Differ("numerics", "tag", spec_.numerics_tag.Hex(), other.spec_.numerics_tag.Hex()),
      Differ("extra", "text", spec_.extra, other.spec_.extra),
      Differ("layout", "fingerprint", fingerprint_.Hex(), other.fingerprint_.Hex()),
  });
}

}  // namespace baton
