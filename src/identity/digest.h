// Part digests: 128 bits over a part's bytes, seeded with what the part is, so that an intact
// payload of another layer, request, boundary or model fails exactly like a damaged one. The same
// pass says whether every element is finite. docs/format/seal.md defines every byte that is hashed.
//
// XXH3-128 detects accidents at memory speed; keyed BLAKE2b also resists forgery, for transports
// that are not trusted. There is no "none": an absent digest is an error.
//
// Thread rule: a Digester is immutable and may be shared; a DigestStream belongs to one thread.
#ifndef BATON_IDENTITY_DIGEST_H_
#define BATON_IDENTITY_DIGEST_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/copy_digest.h"
#include "identity/finite.h"
#include "identity/layout.h"

namespace baton {

enum class DigestAlgorithm : uint8_t { kXxh3_128 = 1, kBlake2b = 2 };

// "xxh3-128", "blake2b".
std::string_view DigestAlgorithmName(DigestAlgorithm algorithm);
// The inverse; fails with Reason::kDigestAlgorithm on any other name, "none" included.
StatusOr<DigestAlgorithm> ParseDigestAlgorithm(std::string_view name);

struct PartDigest {
  Digest128 digest;
  bool finite = false;  // only whole elements, none NaN or infinite

  friend bool operator==(const PartDigest&, const PartDigest&) = default;
};

// What a part is, hashed: the seed of its digest. `dtype` steers the finite check.
struct DigestSeed {
  Sha256 value;
  ElementType dtype = ElementType::kF32;
};

// Of one state part of the bundle whose content key is `content_key`.
DigestSeed StateSeed(const Sha256& content_key, const StatePart& part);
// Of one KV block. `end_key` is the content key at the block's OWN end (IdentityBase::AtBlockEnd),
// so a block is digested once in its life and blocks of one sequence cannot be swapped. A partial
// last block uses the key at its boundary.
DigestSeed BlockSeed(const Sha256& end_key, size_t group_index, const KvGroup& group);

// Incremental form. How the bytes are split over calls does not matter.
class DigestStream {
 public:
  DigestStream(DigestStream&&) noexcept;
  DigestStream& operator=(DigestStream&&) noexcept;
  ~DigestStream();

  void Update(ByteSpan bytes);
  // Copies src to dst and digests the bytes on the way: each is read from src once, so the digest
  // is of what was written (copy_digest.h says what it does not prove). InvalidArgument, and
  // nothing is written, if the sizes differ or the ranges overlap.
  Status CopyUpdate(MutableByteSpan dst, ByteSpan src, CopyTarget target = CopyTarget::kWarm);
  // Call once.
  PartDigest Finish();

 private:
  friend class Digester;
  struct Impl;
  explicit DigestStream(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

class Digester {
 public:
  // XXH3-128.
  Digester();
  // `key` is empty for XXH3-128 and 16..64 bytes for BLAKE2b; else kInvalidArgument.
  static StatusOr<Digester> Create(DigestAlgorithm algorithm, ByteSpan key);

  DigestAlgorithm algorithm() const { return algorithm_; }

  PartDigest Digest(const DigestSeed& seed, ByteSpan bytes) const;
  // `bytes` is the part's own range of the slot: part.bytes long.
  PartDigest StateDigest(const Sha256& content_key, const StatePart& part, ByteSpan bytes) const {
    return Digest(StateSeed(content_key, part), bytes);
  }
  // `bytes` is one block: group.block_bytes long.
  PartDigest BlockDigest(const Sha256& end_key,
                         size_t group_index,
                         const KvGroup& group,
                         ByteSpan bytes) const {
    return Digest(BlockSeed(end_key, group_index, group), bytes);
  }
  DigestStream Stream(const DigestSeed& seed) const;
  // DigestStream::CopyUpdate of a whole part.
  StatusOr<PartDigest> CopyDigest(const DigestSeed& seed,
                                  MutableByteSpan dst,
                                  ByteSpan src,
                                  CopyTarget target) const;

  // One digest over all block digests of a bundle: group after group, blocks ascending. Defined for
  // an empty list too (a layout without attention).
  Digest128 BlockRoot(std::span<const Digest128> digests) const;

 private:
  DigestAlgorithm algorithm_ = DigestAlgorithm::kXxh3_128;
  std::vector<uint8_t> key_;
};

}  // namespace baton

#endif  // BATON_IDENTITY_DIGEST_H_
