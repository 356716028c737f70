// The record at the head of a tier's object: docs/format/state_object.md, every byte. It says what
// an object claims to be and where its parts lie. The reader bounds everything before it allocates
// and believes nothing: what the claim is worth is decided by handoff/verify.h. It reads no files
// and knows no payload. Thread rule: plain values and free functions.
#ifndef BATON_TIER_STATE_OBJECT_H_
#define BATON_TIER_STATE_OBJECT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/types.h"
#include "connector/connector.h"
#include "identity/content_identity.h"
#include "identity/digest.h"
#include "identity/seal.h"

namespace baton {

inline constexpr uint16_t kObjectVersion = 1;
inline constexpr uint64_t kSegmentBlocks = 16;
inline constexpr uint64_t kSegmentTokens = kSegmentBlocks * static_cast<uint64_t>(kBlockTokens);
inline constexpr uint64_t kObjectAlign = 4096;  // of payload and file length
inline constexpr size_t kObjectFixedBytes = 288;
inline constexpr uint64_t kMaxObjectHeaderBytes = uint64_t{1} << 28;
inline constexpr uint64_t kMaxObjectPayloadBytes = uint64_t{1} << 44;

enum class ObjectKind : uint8_t { kBundle = 1, kSegment = 2 };

// How F32 state parts rest. Only kSame comes back bit for bit.
enum class RestEncoding : uint8_t { kSame = 0, kBF16 = 1, kF16 = 2, kInt8 = 3 };
// "same", "bf16", "f16", "int8".
std::string_view RestEncodingName(RestEncoding encoding);
// The inverse; InvalidArgument naming the choices.
StatusOr<RestEncoding> ParseRestEncoding(std::string_view name);

// What an object is found by.
struct ObjectName {
  ObjectKind kind = ObjectKind::kBundle;
  Sha256 key;

  // "<64 hex digits>.bundle" or ".segment".
  std::string FileName() const;
  // The inverse; nullopt for every other name.
  static std::optional<ObjectName> FromFileName(std::string_view name);
  friend bool operator==(const ObjectName&, const ObjectName&) = default;
  template <class H>
  friend H AbslHashValue(H h, const ObjectName& n) {
    return H::combine(std::move(h), n.kind, n.key);
  }
};

// `end` is the content identity at the segment's own end.
Sha256 SegmentKey(const ContentIdentity& end, size_t group);

struct ObjectPart {
  PartKey key;
  uint64_t offset = 0;  // from the payload's start, a multiple of Layout::kPartAlign
  uint64_t bytes = 0;   // at rest

  friend bool operator==(const ObjectPart&, const ObjectPart&) = default;
};

struct ObjectHeader {
  ObjectKind kind = ObjectKind::kBundle;
  RestEncoding encoding = RestEncoding::kSame;
  DigestAlgorithm algorithm = DigestAlgorithm::kXxh3_128;
  uint32_t group = 0;        // of a segment
  ContentIdentity identity;  // of the bundle, or at the segment's end
  StateId state_id;          // of a bundle
  Seal seal;                 // of a bundle
  std::vector<Digest128> block_digests;
  std::vector<Sha256> segments;  // keys of the segments a bundle needs
  std::vector<ObjectPart> parts;
  std::vector<Digest128> rest_digests;  // one per part unless encoding is kSame
  uint64_t payload_bytes = 0;

  // Appends a part behind those there are, and sets payload_bytes.
  void AddPart(PartKey key, uint64_t bytes);
  const ObjectPart* FindPart(PartKey key) const;

  ObjectName Name() const;
  uint64_t HeaderBytes() const;    // checksum included, padding not
  uint64_t PayloadOffset() const;  // HeaderBytes up to kObjectAlign
  uint64_t ObjectBytes() const;    // of the whole object, a multiple of kObjectAlign

  friend bool operator==(const ObjectHeader&, const ObjectHeader&) = default;
};

// The record with its padding: PayloadOffset() bytes. A header that breaks the format's bounds is a
// programmer's error that DecodeObjectHeader of the result would report.
std::vector<uint8_t> EncodeObjectHeader(const ObjectHeader& header);

// From the first kObjectFixedBytes of an object: HeaderBytes() of the whole, within bounds.
// kMalformed, or kProtocolVersion for a version this build does not know.
StatusOr<uint64_t> PeekObjectHeaderBytes(ByteSpan start);

// `record` has at least HeaderBytes() bytes; what follows is not looked at. Fails with kMalformed,
// kProtocolVersion or kDigestAlgorithm.
StatusOr<ObjectHeader> DecodeObjectHeader(ByteSpan record);

}  // namespace baton

#endif  // BATON_TIER_STATE_OBJECT_H_
