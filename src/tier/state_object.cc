#include "tier/state_object.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace baton {
namespace {

constexpr char kMagic[4] = {'B', 'O', 'B', 'J'};
constexpr size_t kReservedTail = 56;
constexpr size_t kPartBytes = 24;
constexpr uint64_t kMaxBoundary = uint64_t{1} << 40;
constexpr std::string_view kBundleSuffix = ".bundle";
constexpr std::string_view kSegmentSuffix = ".segment";

Status Malformed(std::string_view what) {
  return Reject(Reason::kMalformed, absl::StrCat("state object: ", std::string(what)));
}

constexpr uint64_t RoundUp(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

struct Counts {
  uint32_t seal_bytes = 0;
  uint32_t digests = 0;
  uint32_t segments = 0;
  uint32_t parts = 0;
  bool rest_digests = false;

  // 32-bit counts times small constants: no overflow in 64 bits.
  uint64_t HeaderBytes() const {
    return kObjectFixedBytes + seal_bytes + uint64_t{Digest128::kSize} * digests +
           uint64_t{Sha256::kSize} * segments + uint64_t{kPartBytes} * parts +
           (rest_digests ? uint64_t{Digest128::kSize} * parts : 0) + Sha256::kSize;
  }
};

Status CheckTable(const ObjectHeader& h) {
  uint64_t end = 0;
  for (const ObjectPart& part : h.parts) {
    if (part.offset % Layout::kPartAlign != 0 || part.offset < end || part.bytes == 0 ||
        part.offset > h.payload_bytes || part.bytes > h.payload_bytes - part.offset)
      return Malformed(absl::StrCat("part 0x", absl::Hex(part.key.value), " at ", part.offset, "+",
                                    part.bytes, ", expected from ", end, " within ",
                                    h.payload_bytes, " bytes of payload"));
    end = part.offset + part.bytes;
  }
  return absl::OkStatus();
}

Status CheckBundle(const ObjectHeader& h) {
  if (h.group != 0) return Malformed("a bundle with a group");
  if (h.seal.identity != h.identity)
    return Malformed(absl::StrCat("header of ", h.identity.ToString(), ", seal of ",
                                  h.seal.identity.ToString()));
  if (h.seal.algorithm != h.algorithm) return Malformed("seal of another digest algorithm");
  if (h.seal.block_count != h.block_digests.size())
    return Malformed(absl::StrCat(h.block_digests.size(), " block digests, sealed ",
                                  h.seal.block_count, " blocks"));
  return absl::OkStatus();
}

Status CheckSegment(const ObjectHeader& h) {
  if (h.identity.boundary % kSegmentTokens != 0)
    return Malformed(absl::StrCat("a segment that ends at token ", h.identity.boundary,
                                  ", expected a multiple of ", kSegmentTokens));
  if (h.parts.size() != kSegmentBlocks || h.block_digests.size() != kSegmentBlocks ||
      !h.segments.empty() || !h.state_id.is_zero() || h.encoding != RestEncoding::kSame)
    return Malformed(absl::StrCat("a segment of ", h.parts.size(), " parts and ",
                                  h.block_digests.size(), " digests, expected ", kSegmentBlocks,
                                  " and nothing of a bundle"));
  return absl::OkStatus();
}

// `r` stands behind magic and version.
StatusOr<Counts> ReadFixed(ByteReader r, ObjectHeader* h, Sha256* key) {
  const auto kind = r.Get<uint8_t>();
  const auto encoding = r.Get<uint8_t>();
  const auto header_bytes = r.Get<uint64_t>();
  h->payload_bytes = r.Get<uint64_t>();
  const auto algorithm = r.Get<uint8_t>();
  const ByteSpan reserved = r.GetRaw(3);
  h->group = r.Get<uint32_t>();
  Counts counts;
  counts.seal_bytes = r.Get<uint32_t>();
  counts.digests = r.Get<uint32_t>();
  counts.segments = r.Get<uint32_t>();
  counts.parts = r.Get<uint32_t>();
  h->identity.model = r.Get<Sha256>();
  h->identity.layout = r.Get<Sha256>();
  h->identity.scope = r.Get<Sha256>();
  h->identity.prefix = r.Get<Sha256>();
  h->identity.boundary = r.Get<uint64_t>();
  *key = r.Get<Sha256>();
  h->state_id = r.Get<StateId>();
  const ByteSpan tail = r.GetRaw(kReservedTail);
  const auto zero = [](std::byte b) { return b == std::byte{0}; };
  if (!r.ok()) return Malformed("too short");
  if (kind != 1 && kind != 2) return Malformed(absl::StrCat("kind ", kind, ", expected 1 or 2"));
  if (encoding > static_cast<uint8_t>(RestEncoding::kInt8))
    return Malformed(absl::StrCat("unknown encoding ", encoding));
  if (algorithm != 1 && algorithm != 2)
    return Reject(Reason::kDigestAlgorithm,
                  absl::StrCat("state object: unknown digest algorithm ", algorithm));
  if (!std::all_of(reserved.begin(), reserved.end(), zero) ||
      !std::all_of(tail.begin(), tail.end(), zero))
    return Malformed("reserved bytes are not zero");
  if (h->payload_bytes > kMaxObjectPayloadBytes)
    return Malformed(absl::StrCat("payload of ", h->payload_bytes, " bytes"));
  if (h->identity.boundary == 0 || h->identity.boundary > kMaxBoundary ||
      h->identity.boundary % static_cast<uint64_t>(kBlockTokens) != 0)
    return Malformed(absl::StrCat("boundary ", h->identity.boundary, " is not on the grid"));
  h->kind = static_cast<ObjectKind>(kind);
  h->encoding = static_cast<RestEncoding>(encoding);
  h->algorithm = static_cast<DigestAlgorithm>(algorithm);
  counts.rest_digests = h->encoding != RestEncoding::kSame;
  if (counts.HeaderBytes() != header_bytes)
    return Malformed(absl::StrCat("counts make ", counts.HeaderBytes(), " bytes of header, says ",
                                  header_bytes));
  if ((counts.seal_bytes != 0) != (h->kind == ObjectKind::kBundle))
    return Malformed("a bundle has a seal, a segment has none");
  return counts;
}

// Counts agree with the record's length, so what is allocated is no more than was read.
void ReadLists(const Counts& counts, ByteReader* r, ObjectHeader* h) {
  h->block_digests.resize(counts.digests);
  for (Digest128& d : h->block_digests) d = r->Get<Digest128>();
  h->segments.resize(counts.segments);
  for (Sha256& s : h->segments) s = r->Get<Sha256>();
  h->parts.resize(counts.parts);
  for (ObjectPart& part : h->parts) {
    part.key = PartKey(r->Get<uint64_t>());
    part.offset = r->Get<uint64_t>();
    part.bytes = r->Get<uint64_t>();
  }
  if (counts.rest_digests) h->rest_digests.resize(counts.parts);
  for (Digest128& d : h->rest_digests) d = r->Get<Digest128>();
}

}  // namespace

std::string_view RestEncodingName(RestEncoding encoding) {
  switch (encoding) {
    case RestEncoding::kSame:
      return "same";
    case RestEncoding::kBF16:
      return "bf16";
    case RestEncoding::kF16:
      return "f16";
    case RestEncoding::kInt8:
      return "int8";
  }
  return "unknown";
}

StatusOr<RestEncoding> ParseRestEncoding(std::string_view name) {
  for (const RestEncoding e :
       {RestEncoding::kSame, RestEncoding::kBF16, RestEncoding::kF16, RestEncoding::kInt8})
    if (RestEncodingName(e) == name) return e;
  return absl::InvalidArgumentError(
      absl::StrCat("at-rest dtype '", std::string(name), "': expected same, bf16, f16 or int8"));
}

std::string ObjectName::FileName() const {
  return absl::StrCat(key.Hex(),
                      std::string(kind == ObjectKind::kBundle ? kBundleSuffix : kSegmentSuffix));
}

std::optional<ObjectName> ObjectName::FromFileName(std::string_view name) {
  constexpr size_t kHex = 2 * Sha256::kSize;
  if (name.size() < kHex) return std::nullopt;
  ObjectName out;
  const std::string_view suffix = name.substr(kHex);
  if (suffix == kSegmentSuffix)
    out.kind = ObjectKind::kSegment;
  else if (suffix != kBundleSuffix)
    return std::nullopt;
  for (size_t i = 0; i < kHex; ++i) {
    const char c = name[i];
    const bool digit = c >= '0' && c <= '9';
    if (!digit && !(c >= 'a' && c <= 'f')) return std::nullopt;
    const auto value = static_cast<uint8_t>(digit ? c - '0' : c - 'a' + 10);
    out.key.bytes[i / 2] = static_cast<uint8_t>(out.key.bytes[i / 2] << 4 | value);
  }
  return out;
}

Sha256 SegmentKey(const ContentIdentity& end, size_t group) {
  static constexpr char kTag[] = "baton.segment";  // its zero byte is hashed too
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kTag)));
  w.Put(end.Key());
  w.Put(static_cast<uint32_t>(group));
  return Sha256Of(AsBytes(w.data()));
}

void ObjectHeader::AddPart(PartKey key, uint64_t bytes) {
  const uint64_t offset = RoundUp(payload_bytes, Layout::kPartAlign);
  parts.push_back({key, offset, bytes});
  payload_bytes = offset + bytes;
}

const ObjectPart* ObjectHeader::FindPart(PartKey key) const {
  for (const ObjectPart& part : parts)
    if (part.key == key) return &part;
  return nullptr;
}

ObjectName ObjectHeader::Name() const {
  return {kind, kind == ObjectKind::kBundle ? identity.Key() : SegmentKey(identity, group)};
}

uint64_t ObjectHeader::HeaderBytes() const {
  Counts counts;
  if (kind == ObjectKind::kBundle)
    counts.seal_bytes = static_cast<uint32_t>(272 + Digest128::kSize * seal.state_digests.size());
  counts.digests = static_cast<uint32_t>(block_digests.size());
  counts.segments = static_cast<uint32_t>(segments.size());
  counts.parts = static_cast<uint32_t>(parts.size());
  counts.rest_digests = encoding != RestEncoding::kSame;
  return counts.HeaderBytes();
}

uint64_t ObjectHeader::PayloadOffset() const { return RoundUp(HeaderBytes(), kObjectAlign); }

uint64_t ObjectHeader::ObjectBytes() const {
  return PayloadOffset() + RoundUp(payload_bytes, kObjectAlign);
}

std::vector<uint8_t> EncodeObjectHeader(const ObjectHeader& h) {
  const std::vector<uint8_t> seal =
      h.kind == ObjectKind::kBundle ? EncodeSeal(h.seal) : std::vector<uint8_t>();
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kMagic)));
  w.Put(kObjectVersion);
  w.Put(static_cast<uint8_t>(h.kind));
  w.Put(static_cast<uint8_t>(h.encoding));
  w.Put(h.HeaderBytes());
  w.Put(h.payload_bytes);
  w.Put(static_cast<uint8_t>(h.algorithm));
  for (int i = 0; i < 3; ++i) w.Put(uint8_t{0});
  w.Put(h.group);
  w.Put(static_cast<uint32_t>(seal.size()));
  w.Put(static_cast<uint32_t>(h.block_digests.size()));
  w.Put(static_cast<uint32_t>(h.segments.size()));
  w.Put(static_cast<uint32_t>(h.parts.size()));
  w.Put(h.identity.model);
  w.Put(h.identity.layout);
  w.Put(h.identity.scope);
  w.Put(h.identity.prefix);
  w.Put(h.identity.boundary);
  w.Put(h.Name().key);
  w.Put(h.state_id);
  for (size_t i = 0; i < kReservedTail; ++i) w.Put(uint8_t{0});
  w.PutRaw(AsBytes(seal));
  for (const Digest128& d : h.block_digests) w.Put(d);
  for (const Sha256& s : h.segments) w.Put(s);
  for (const ObjectPart& part : h.parts) {
    w.Put(part.key);
    w.Put(part.offset);
    w.Put(part.bytes);
  }
  for (const Digest128& d : h.rest_digests) w.Put(d);
  w.Put(Sha256Of(AsBytes(w.data())));
  std::vector<uint8_t> out = w.Take();
  out.resize(RoundUp(out.size(), kObjectAlign));
  return out;
}

StatusOr<uint64_t> PeekObjectHeaderBytes(ByteSpan start) {
  if (start.size() < kObjectFixedBytes)
    return Malformed(absl::StrCat(start.size(), " bytes, expected at least ", kObjectFixedBytes));
  if (std::memcmp(start.data(), kMagic, sizeof(kMagic)) != 0)
    return Malformed("does not start with BOBJ");
  ByteReader r(start.subspan(sizeof(kMagic)));
  const auto version = r.Get<uint16_t>();
  if (version != kObjectVersion)
    return Reject(
        Reason::kProtocolVersion,
        absl::StrCat("state object: version ", version, ", this build reads ", kObjectVersion,
                     "; it stays unused until a build that reads it runs"));
  r.Get<uint16_t>();  // kind and encoding
  const auto bytes = r.Get<uint64_t>();
  if (bytes < kObjectFixedBytes + Sha256::kSize || bytes > kMaxObjectHeaderBytes)
    return Malformed(absl::StrCat("header of ", bytes, " bytes"));
  return bytes;
}

StatusOr<ObjectHeader> DecodeObjectHeader(ByteSpan record) {
  BATON_ASSIGN_OR_RETURN(const uint64_t bytes, PeekObjectHeaderBytes(record));
  if (record.size() < bytes)
    return Malformed(absl::StrCat("header of ", bytes, " bytes, ", record.size(), " there"));
  const ByteSpan body = record.first(bytes - Sha256::kSize);
  ObjectHeader h;
  Sha256 key;
  BATON_ASSIGN_OR_RETURN(const Counts counts, ReadFixed(ByteReader(body.subspan(6)), &h, &key));
  const Sha256 sum = Sha256Of(body);
  if (std::memcmp(sum.bytes.data(), record.data() + body.size(), Sha256::kSize) != 0)
    return Malformed("checksum does not match its bytes");
  ByteReader r(body.subspan(kObjectFixedBytes));
  if (counts.seal_bytes != 0) {
    BATON_ASSIGN_OR_RETURN(h.seal, DecodeSeal(r.GetRaw(counts.seal_bytes)));
  }
  ReadLists(counts, &r, &h);
  if (!r.done()) return Malformed("lists do not fill the header");
  for (const Digest128& d : h.block_digests)
    if (d.is_zero())
      return Reject(Reason::kDigestAlgorithm, "state object: a block digest is absent");
  BATON_RETURN_IF_ERROR(CheckTable(h));
  BATON_RETURN_IF_ERROR(h.kind == ObjectKind::kBundle ? CheckBundle(h) : CheckSegment(h));
  if (key != h.Name().key)
    return Malformed(absl::StrCat("key ", key.Hex(), ", its identity makes ", h.Name().key.Hex()));
  return h;
}

}  // namespace baton
