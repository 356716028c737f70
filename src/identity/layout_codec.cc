// The layout record, docs/format/layout.md. What is derived (offsets, sizes) is written too, so
// that a reader in another language need not know the rounding rules, and checked on reading.
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "identity/layout.h"

namespace baton {
namespace {

constexpr char kMagic[4] = {'B', 'L', 'A', 'Y'};
constexpr uint16_t kVersion = 1;
constexpr size_t kHeaderBytes = 72;
constexpr size_t kLengthAt = 8;
// Largest legal record: every count at its bound. Anything longer is refused unread.
constexpr size_t kMaxRecord =
    kHeaderBytes + 4 + Layout::kMaxExtra +
    Layout::kMaxParts * (42 + 8 * Layout::kMaxRank + 2 * Layout::kMaxText) +
    Layout::kMaxGroups * (41 + 2 * Layout::kMaxText + 4 * Layout::kMaxGroupLayers) + Sha256::kSize;

Status Malformed(std::string_view what) {
  return Reject(Reason::kMalformed, absl::StrCat("layout record: ", std::string(what)));
}

void PutPart(ByteWriter* w, const StatePart& p) {
  w->Put(p.layer);
  w->PutString(p.component);
  w->Put(static_cast<uint8_t>(p.dtype));
  w->Put(static_cast<uint8_t>(p.shape.size()));
  for (int64_t extent : p.shape) w->Put(extent);
  w->PutString(p.axes);
  w->Put(p.offset);
  w->Put(p.bytes);
}

void PutGroup(ByteWriter* w, const KvGroup& g) {
  w->PutString(g.name);
  w->Put(g.window);
  w->Put(g.kv_heads);
  w->Put(g.head_dim);
  w->Put(static_cast<uint8_t>(g.dtype));
  w->PutString(g.axes);
  w->Put(g.block_bytes);
  w->Put(static_cast<uint32_t>(g.layers.size()));
  for (uint32_t layer : g.layers) w->Put(layer);
}

// Both readers stop at the first byte that is not there: a hostile count costs at most the record.
StatePart GetPart(ByteReader* r) {
  StatePart p;
  p.layer = r->Get<uint32_t>();
  p.component = r->GetString(Layout::kMaxText);
  p.dtype = static_cast<ElementType>(r->Get<uint8_t>());
  const uint8_t rank = r->Get<uint8_t>();
  for (uint8_t i = 0; r->ok() && i < rank; ++i) p.shape.push_back(r->Get<int64_t>());
  p.axes = r->GetString(Layout::kMaxText);
  p.offset = r->Get<uint64_t>();
  p.bytes = r->Get<uint64_t>();
  return p;
}

KvGroup GetGroup(ByteReader* r) {
  KvGroup g;
  g.name = r->GetString(Layout::kMaxText);
  g.window = r->Get<uint32_t>();
  g.kv_heads = r->Get<uint32_t>();
  g.head_dim = r->Get<uint32_t>();
  g.dtype = static_cast<ElementType>(r->Get<uint8_t>());
  g.axes = r->GetString(Layout::kMaxText);
  g.block_bytes = r->Get<uint64_t>();
  const uint32_t layers = r->Get<uint32_t>();
  for (uint32_t i = 0; r->ok() && i < layers; ++i) g.layers.push_back(r->Get<uint32_t>());
  return g;
}

Status CheckEnvelope(ByteSpan record) {
  if (record.size() < kHeaderBytes + Sha256::kSize)
    return Malformed(absl::StrCat(record.size(), " bytes, too short"));
  if (record.size() > kMaxRecord) return Malformed(absl::StrCat(record.size(), " bytes, too long"));
  if (std::memcmp(record.data(), kMagic, sizeof(kMagic)) != 0)
    return Malformed("does not start with BLAY");
  ByteReader r(record.subspan(sizeof(kMagic)));
  const uint16_t version = r.Get<uint16_t>();
  if (version != kVersion)
    return Reject(Reason::kProtocolVersion,
                  absl::StrCat("layout record: version ", version, ", this build reads ", kVersion,
                               "; run the same release on both sides"));
  if (r.Get<uint16_t>() != 0) return Malformed("reserved bytes are not zero");
  const uint32_t length = r.Get<uint32_t>();
  if (length != record.size())
    return Malformed(absl::StrCat("says ", length, " bytes, has ", record.size()));
  const ByteSpan body = record.first(record.size() - Sha256::kSize);
  const Sha256 sum = Sha256Of(body);
  if (std::memcmp(sum.bytes.data(), record.data() + body.size(), Sha256::kSize) != 0)
    return Malformed("fingerprint does not match its bytes");
  return absl::OkStatus();
}

}  // namespace

std::vector<uint8_t> Layout::EncodeBody() const {
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kMagic)));
  w.Put(kVersion);
  w.Put(uint16_t{0});
  w.Put(uint32_t{0});  // total length, patched below
  w.Put(static_cast<uint32_t>(kBlockTokens));
  w.Put(static_cast<uint32_t>(kPartAlign));
  w.Put(static_cast<uint32_t>(kSlotAlign));
  w.Put(static_cast<uint32_t>(spec_.parts.size()));
  w.Put(static_cast<uint32_t>(spec_.groups.size()));
  w.Put(spec_.numerics_tag);
  w.Put(slot_bytes_);
  w.PutString(spec_.extra);
  for (const StatePart& p : spec_.parts) PutPart(&w, p);
  for (const KvGroup& g : spec_.groups) PutGroup(&w, g);
  std::vector<uint8_t> body = w.Take();
  const auto length = static_cast<uint32_t>(body.size() + Sha256::kSize);
  std::memcpy(body.data() + kLengthAt, &length, sizeof(length));
  return body;
}

std::vector<uint8_t> Layout::Encode() const {
  std::vector<uint8_t> record = EncodeBody();
  record.insert(record.end(), fingerprint_.bytes.begin(), fingerprint_.bytes.end());
  return record;
}

StatusOr<Layout> Layout::Decode(ByteSpan record) {
  BATON_RETURN_IF_ERROR(CheckEnvelope(record));
  ByteReader r(record.first(record.size() - Sha256::kSize));
  r.GetRaw(kLengthAt + 4);
  const uint32_t block_tokens = r.Get<uint32_t>();
  const uint32_t part_align = r.Get<uint32_t>();
  const uint32_t slot_align = r.Get<uint32_t>();
  if (block_tokens != kBlockTokens || part_align != kPartAlign || slot_align != kSlotAlign)
    return Malformed(absl::StrCat("block_tokens ", block_tokens, ", alignments ", part_align,
                                  " and ", slot_align, "; expected ", kBlockTokens, ", ",
                                  kPartAlign, " and ", kSlotAlign));
  const uint32_t part_count = r.Get<uint32_t>();
  const uint32_t group_count = r.Get<uint32_t>();
  if (part_count > kMaxParts || group_count > kMaxGroups)
    return Malformed(absl::StrCat(part_count, " parts and ", group_count, " groups, at most ",
                                  kMaxParts, " and ", kMaxGroups));
  LayoutSpec spec;
  spec.numerics_tag = r.Get<Sha256>();
  const uint64_t slot_bytes = r.Get<uint64_t>();
  spec.extra = r.GetString(kMaxExtra);
  for (uint32_t i = 0; r.ok() && i < part_count; ++i) spec.parts.push_back(GetPart(&r));
  for (uint32_t i = 0; r.ok() && i < group_count; ++i) spec.groups.push_back(GetGroup(&r));
  if (!r.done()) return Malformed("counts do not agree with its length");

  const std::vector<StatePart> parts = spec.parts;
  const std::vector<KvGroup> groups = spec.groups;
  StatusOr<Layout> layout = Build(std::move(spec));
  if (!layout.ok()) return Malformed(std::string(layout.status().message()));
  if (layout->parts() != parts || layout->groups() != groups || layout->slot_bytes() != slot_bytes)
    return Malformed("offsets or sizes are not those that follow from its shapes");
  return layout;
}

}  // namespace baton
