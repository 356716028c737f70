// The seal record, docs/format/seal.md.
#include "identity/seal.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace baton {
namespace {

constexpr char kMagic[4] = {'B', 'S', 'E', 'L'};
constexpr size_t kFixedBytes = 240;  // everything before the state digests
// No sequence is longer; keeps products of block counts far from overflow.
constexpr uint64_t kMaxBoundary = uint64_t{1} << 40;

static_assert(kMaxSealBytes == kFixedBytes + Digest128::kSize * Layout::kMaxParts + Sha256::kSize);

Status Malformed(std::string_view what) {
  return Reject(Reason::kMalformed, absl::StrCat("seal: ", std::string(what)));
}

// Magic, version, length and checksum: what must hold before any other field is looked at.
Status CheckEnvelope(ByteSpan record) {
  if (record.size() < kFixedBytes + Sha256::kSize || record.size() > kMaxSealBytes)
    return Malformed(absl::StrCat(record.size(), " bytes, expected ", kFixedBytes + Sha256::kSize,
                                  "..", kMaxSealBytes));
  if (std::memcmp(record.data(), kMagic, sizeof(kMagic)) != 0)
    return Malformed("does not start with BSEL");
  ByteReader r(record.subspan(sizeof(kMagic)));
  const uint16_t version = r.Get<uint16_t>();
  if (version != kSealVersion)
    return Reject(Reason::kProtocolVersion,
                  absl::StrCat("seal: version ", version, ", this build reads ", kSealVersion,
                               "; run the same release on both sides"));
  r.Get<uint16_t>();  // algorithm and reserved byte, read later
  const uint32_t length = r.Get<uint32_t>();
  if (length != record.size())
    return Malformed(absl::StrCat("says ", length, " bytes, has ", record.size()));
  const ByteSpan body = record.first(record.size() - Sha256::kSize);
  const Sha256 sum = Sha256Of(body);
  if (std::memcmp(sum.bytes.data(), record.data() + body.size(), Sha256::kSize) != 0)
    return Malformed("checksum does not match its bytes");
  return absl::OkStatus();
}

Status CheckFields(const Seal& seal) {
  if (seal.state_id.is_zero()) return Malformed("state-id is zero");
  if (seal.identity.boundary > kMaxBoundary)
    return Malformed(absl::StrCat("boundary ", seal.identity.boundary, ", at most ", kMaxBoundary));
  for (size_t i = 0; i < seal.state_digests.size(); ++i)
    if (seal.state_digests[i].is_zero())
      return Reject(Reason::kDigestAlgorithm,
                    absl::StrCat("seal ", seal.state_id.Hex(), ": digest of state part ", i,
                                 " is absent; switch digests on at the peer"));
  if (seal.block_root.is_zero())
    return Reject(Reason::kDigestAlgorithm,
                  absl::StrCat("seal ", seal.state_id.Hex(),
                               ": block root is absent; switch digests on at the peer"));
  return absl::OkStatus();
}

}  // namespace

std::vector<uint8_t> EncodeSeal(const Seal& seal) {
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kMagic)));
  w.Put(kSealVersion);
  w.Put(static_cast<uint8_t>(seal.algorithm));
  w.Put(uint8_t{0});
  w.Put(static_cast<uint32_t>(kFixedBytes + Digest128::kSize * seal.state_digests.size() +
                              Sha256::kSize));
  w.Put(static_cast<uint32_t>(seal.state_digests.size()));
  w.Put(seal.block_count);
  w.Put(uint32_t{0});
  w.Put(seal.identity.model);
  w.Put(seal.identity.layout);
  w.Put(seal.identity.scope);
  w.Put(seal.identity.prefix);
  w.Put(seal.identity.boundary);
  w.Put(seal.state_id);
  w.Put(seal.parent);
  w.Put(seal.producer);
  w.Put(seal.epoch);
  w.Put(seal.block_root);
  for (const Digest128& d : seal.state_digests) w.Put(d);
  w.Put(Sha256Of(AsBytes(w.data())));
  return w.Take();
}

StatusOr<Seal> DecodeSeal(ByteSpan record) {
  BATON_RETURN_IF_ERROR(CheckEnvelope(record));
  ByteReader r(record.first(record.size() - Sha256::kSize));
  r.GetRaw(sizeof(kMagic) + sizeof(kSealVersion));
  const uint8_t algorithm = r.Get<uint8_t>();
  if (r.Get<uint8_t>() != 0) return Malformed("reserved byte at 7 is not zero");
  r.Get<uint32_t>();  // length, checked
  const uint32_t state_count = r.Get<uint32_t>();
  Seal seal;
  seal.block_count = r.Get<uint32_t>();
  if (r.Get<uint32_t>() != 0) return Malformed("reserved bytes at 20 are not zero");
  if (algorithm != static_cast<uint8_t>(DigestAlgorithm::kXxh3_128) &&
      algorithm != static_cast<uint8_t>(DigestAlgorithm::kBlake2b))
    return Reject(Reason::kDigestAlgorithm,
                  absl::StrCat("seal: digest algorithm ", algorithm,
                               " is not one of 1 (xxh3-128), 2 (blake2b)"));
  seal.algorithm = static_cast<DigestAlgorithm>(algorithm);
  if (record.size() != kFixedBytes + Digest128::kSize * uint64_t{state_count} + Sha256::kSize)
    return Malformed(
        absl::StrCat(state_count, " state parts do not fit its ", record.size(), " bytes"));
  seal.identity.model = r.Get<Sha256>();
  seal.identity.layout = r.Get<Sha256>();
  seal.identity.scope = r.Get<Sha256>();
  seal.identity.prefix = r.Get<Sha256>();
  seal.identity.boundary = r.Get<uint64_t>();
  seal.state_id = r.Get<StateId>();
  seal.parent = r.Get<StateId>();
  seal.producer = r.Get<NodeId>();
  seal.epoch = r.Get<Epoch>();
  seal.block_root = r.Get<Digest128>();
  seal.state_digests.reserve(state_count);
  for (uint32_t i = 0; i < state_count; ++i) seal.state_digests.push_back(r.Get<Digest128>());
  if (!r.done()) return Malformed("counts do not agree with its length");
  BATON_RETURN_IF_ERROR(CheckFields(seal));
  return seal;
}

Status MatchSealToLayout(const Seal& seal, const Layout& layout) {
  const std::string name = absl::StrCat("seal ", seal.state_id.Hex());
  if (seal.identity.layout != layout.fingerprint())
    return Reject(Reason::kLayoutMismatch,
                  absl::StrCat(name, ": layout: expected ", layout.fingerprint().Hex(), ", found ",
                               seal.identity.layout.Hex()));
  const auto compare = [&](std::string_view what, uint64_t expected, uint64_t found) -> Status {
    if (expected == found) return absl::OkStatus();
    return Reject(
        found < expected ? Reason::kMissingPart : Reason::kUnknownPart,
        absl::StrCat(name, ": ", std::string(what), ": expected ", expected, ", found ", found));
  };
  BATON_RETURN_IF_ERROR(compare("state parts", layout.StatePartCount(), seal.state_digests.size()));
  return compare("KV blocks", layout.TotalBlocks(seal.identity.boundary), seal.block_count);
}

}  // namespace baton
