// XXH3-128 hashes, scans for non-finite elements and copies in one loop (copy_digest.h). BLAKE2b is
// the library's: it goes in pieces that stay in L1, each copied, hashed and scanned before the
// next, because a part that fits no cache would otherwise be read from memory three times.
#include "identity/digest.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"

namespace baton {
namespace {

constexpr size_t kPiece = 16 << 10;

constexpr std::string_view kStateTag("baton.state-part\0", 17);
constexpr std::string_view kBlockTag("baton.kv-block\0", 15);
constexpr std::string_view kRootTag("baton.block-root\0", 17);

ByteSpan View(std::string_view s) { return std::as_bytes(std::span(s.data(), s.size())); }

}  // namespace

std::string_view DigestAlgorithmName(DigestAlgorithm algorithm) {
  switch (algorithm) {
    case DigestAlgorithm::kXxh3_128:
      return "xxh3-128";
    case DigestAlgorithm::kBlake2b:
      return "blake2b";
  }
  return "unknown";
}

StatusOr<DigestAlgorithm> ParseDigestAlgorithm(std::string_view name) {
  for (DigestAlgorithm a : {DigestAlgorithm::kXxh3_128, DigestAlgorithm::kBlake2b})
    if (name == DigestAlgorithmName(a)) return a;
  return Reject(Reason::kDigestAlgorithm,
                absl::StrCat("digest algorithm: expected xxh3-128 or blake2b, found '",
                             std::string(name.substr(0, 64)), "'; digests cannot be switched off"));
}

DigestSeed StateSeed(const Sha256& content_key, const StatePart& part) {
  ByteWriter w;
  w.PutRaw(View(kStateTag));
  w.Put(content_key);
  w.Put(part.layer);
  w.PutString(part.component);
  return {Sha256Of(AsBytes(w.data())), part.dtype};
}

DigestSeed BlockSeed(const Sha256& end_key, size_t group_index, const KvGroup& group) {
  ByteWriter w;
  w.PutRaw(View(kBlockTag));
  w.Put(end_key);
  w.Put(static_cast<uint32_t>(group_index));
  return {Sha256Of(AsBytes(w.data())), group.dtype};
}

namespace {

// Seed | bytes by BLAKE2b, with the scan that Xxh3Stream has built in.
class BlakeStream {
 public:
  BlakeStream(const DigestSeed& seed, std::span<const uint8_t> key) : dtype_(seed.dtype) {
    BATON_CHECK(
        crypto_generichash_blake2b_init(&blake_, key.data(), key.size(), Digest128::kSize) == 0);
    Hash(AsBytes(seed.value.bytes));
  }

  void Update(ByteSpan bytes) {
    for (size_t i = 0; i < bytes.size(); i += kPiece)
      Piece(bytes.subspan(i, std::min(kPiece, bytes.size() - i)));
  }
  // Digests what is read back from dst.
  void CopyUpdate(MutableByteSpan dst, ByteSpan src) {
    for (size_t i = 0; i < src.size(); i += kPiece) {
      const size_t n = std::min(kPiece, src.size() - i);
      std::memcpy(dst.data() + i, src.data() + i, n);
      Piece(dst.subspan(i, n));
    }
  }
  void Hash(ByteSpan bytes) {
    crypto_generichash_blake2b_update(&blake_, reinterpret_cast<const unsigned char*>(bytes.data()),
                                      bytes.size());
  }
  bool finite() const { return finite_ && carried_ == 0; }
  Digest128 Finish() {
    Digest128 out;
    crypto_generichash_blake2b_final(&blake_, out.bytes.data(), Digest128::kSize);
    return out;
  }

 private:
  void Piece(ByteSpan bytes) {
    Hash(bytes);
    Scan(bytes);
  }
  void Scan(ByteSpan bytes) {
    const size_t element = ElementBytes(dtype_);
    if (carried_ != 0) {
      const size_t take = std::min(element - carried_, bytes.size());
      std::memcpy(carry_ + carried_, bytes.data(), take);
      carried_ += take;
      bytes = bytes.subspan(take);
      if (carried_ < element) return;
      finite_ &= AllFinite(dtype_, ByteSpan(carry_, element));
      carried_ = 0;
    }
    const size_t rest = bytes.size() % element;
    finite_ &= AllFinite(dtype_, bytes.first(bytes.size() - rest));
    if (rest != 0) std::memcpy(carry_, bytes.data() + bytes.size() - rest, rest);
    carried_ = rest;
  }

  crypto_generichash_blake2b_state blake_;  // over-aligned by its own type
  ElementType dtype_;
  bool finite_ = true;
  size_t carried_ = 0;  // bytes of an element cut in two by the caller's pieces
  std::byte carry_[4];
};

Xxh3Stream SeededXxh(const DigestSeed& seed) {
  Xxh3Stream stream(seed.dtype, Sha256::kSize);
  stream.Update(AsBytes(seed.value.bytes));
  return stream;
}

template <class Stream>
PartDigest FinishStream(Stream& stream) {
  const bool finite = stream.finite();
  return {stream.Finish(), finite};
}

}  // namespace

struct DigestStream::Impl {
  std::variant<Xxh3Stream, BlakeStream> stream;
};

DigestStream::DigestStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DigestStream::DigestStream(DigestStream&&) noexcept = default;
DigestStream& DigestStream::operator=(DigestStream&&) noexcept = default;
DigestStream::~DigestStream() = default;

void DigestStream::Update(ByteSpan bytes) {
  std::visit([&](auto& stream) { stream.Update(bytes); }, impl_->stream);
}

Status DigestStream::CopyUpdate(MutableByteSpan dst, ByteSpan src, CopyTarget target) {
  BATON_RETURN_IF_ERROR(CheckCopy(dst, src));
  if (auto* xxh = std::get_if<Xxh3Stream>(&impl_->stream))
    xxh->CopyUpdate(dst, src, target);
  else
    std::get<BlakeStream>(impl_->stream).CopyUpdate(dst, src);
  return absl::OkStatus();
}

PartDigest DigestStream::Finish() {
  return std::visit([](auto& stream) { return FinishStream(stream); }, impl_->stream);
}

Digester::Digester() = default;

StatusOr<Digester> Digester::Create(DigestAlgorithm algorithm, ByteSpan key) {
  Digester d;
  d.algorithm_ = algorithm;
  if (algorithm == DigestAlgorithm::kXxh3_128) {
    if (!key.empty())
      return absl::InvalidArgumentError(
          "digest: xxh3-128 takes no key; choose blake2b for a keyed digest");
    return d;
  }
  if (algorithm != DigestAlgorithm::kBlake2b)
    return absl::InvalidArgumentError(
        absl::StrCat("digest: unknown algorithm ", static_cast<int>(algorithm)));
  if (key.size() < 16 || key.size() > crypto_generichash_blake2b_KEYBYTES_MAX)
    return absl::InvalidArgumentError(
        absl::StrCat("digest: blake2b key has ", key.size(), " bytes, expected 16..64"));
  if (sodium_init() < 0) return absl::InternalError("digest: libsodium cannot start");
  const auto* p = reinterpret_cast<const uint8_t*>(key.data());
  d.key_.assign(p, p + key.size());
  return d;
}

DigestStream Digester::Stream(const DigestSeed& seed) const {
  using Impl = DigestStream::Impl;
  return DigestStream(algorithm_ == DigestAlgorithm::kXxh3_128
                          ? std::make_unique<Impl>(Impl{SeededXxh(seed)})
                          : std::make_unique<Impl>(Impl{BlakeStream(seed, key_)}));
}

// The whole-part forms keep their stream on the stack: parts are many and often small.
PartDigest Digester::Digest(const DigestSeed& seed, ByteSpan bytes) const {
  if (algorithm_ == DigestAlgorithm::kXxh3_128) {
    Xxh3Stream stream = SeededXxh(seed);
    stream.Update(bytes);
    return FinishStream(stream);
  }
  BlakeStream stream(seed, key_);
  stream.Update(bytes);
  return FinishStream(stream);
}

StatusOr<PartDigest> Digester::CopyDigest(const DigestSeed& seed,
                                          MutableByteSpan dst,
                                          ByteSpan src,
                                          CopyTarget target) const {
  BATON_RETURN_IF_ERROR(CheckCopy(dst, src));
  if (algorithm_ == DigestAlgorithm::kXxh3_128) {
    Xxh3Stream stream = SeededXxh(seed);
    const Digest128 digest = stream.CopyFinish(dst, src, target);
    return PartDigest{digest, stream.finite()};
  }
  BlakeStream stream(seed, key_);
  stream.CopyUpdate(dst, src);
  return FinishStream(stream);
}

Digest128 Digester::BlockRoot(std::span<const Digest128> digests) const {
  ByteWriter w;
  w.PutRaw(View(kRootTag));
  w.Put(static_cast<uint64_t>(digests.size()));
  const DigestSeed seed = {Sha256Of(AsBytes(w.data())), ElementType::kF32};
  static_assert(sizeof(Digest128) == Digest128::kSize);
  // These are not elements: what the scan finds is not looked at.
  return Digest(seed, std::as_bytes(digests)).digest;
}

}  // namespace baton
