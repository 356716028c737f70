#include "identity/copy_digest.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "absl/strings/str_cat.h"
#include "identity/copy_digest_kernels.h"
#include "identity/element_f8.h"
#include "identity/finite.h"
#include "identity/xxh.h"

namespace baton {
namespace {

using digest_internal::kPrime32_1;
using digest_internal::kSecret;
using digest_internal::kSecretBytes;
using digest_internal::kStripesPerBlock;
using digest_internal::ScanPattern;
using digest_internal::Store;

constexpr uint64_t kPrime64_1 = 0x9E3779B185EBCA87u;
constexpr uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4Fu;
constexpr uint64_t kPrime64_3 = 0x165667B19E3779F9u;
constexpr uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63u;
constexpr uint64_t kPrime64_5 = 0x27D4EB2F165667C5u;
constexpr uint32_t kPrime32_2 = 0x85EBCA77u;
constexpr uint32_t kPrime32_3 = 0xC2B2AE3Du;
constexpr uint64_t kAvalanche = 0x165667919E3779F9u;

// Longest input with a formula of its own; the library computes those.
constexpr uint64_t kShortMax = 240;
// Source bytes fetched before the first is used.
constexpr size_t kFirstFetch = 2048;
// Places within the secret, in bytes, that the specification names.
constexpr size_t kLastStripeSecret = kSecretBytes - 64 - 7;
constexpr size_t kLowMergeSecret = 11;
constexpr size_t kHighMergeSecret = kSecretBytes - 64 - 11;

const std::byte* Secret(size_t offset) {
  return reinterpret_cast<const std::byte*>(kSecret) + offset;
}

uint64_t Load64(const std::byte* p) {
  uint64_t x;
  std::memcpy(&x, p, sizeof x);
  return x;
}

uint64_t FoldedProduct(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t Merge(const uint64_t* acc, const std::byte* secret, uint64_t start) {
  uint64_t h = start;
  for (size_t i = 0; i < 8; i += 2)
    h += FoldedProduct(acc[i] ^ Load64(secret + 8 * i), acc[i + 1] ^ Load64(secret + 8 * i + 8));
  h ^= h >> 37;
  h *= kAvalanche;
  return h ^ (h >> 32);
}

ScanPattern PatternOf(ElementType dtype) {
  if (dtype == kElementF8E4M3)
    return {false, 0x7f7f7f7f7f7f7f7fu, 0x0101010101010101u, 0x8080808080808080u};
  switch (dtype) {
    case ElementType::kF32:
      return {true, 0x7f8000007f800000u, 0x0080000000800000u, 0x8000000080000000u};
    case ElementType::kBF16:
      return {false, 0x7f807f807f807f80u, 0x0080008000800080u, 0x8000800080008000u};
    case ElementType::kF16:
      return {false, 0x7c007c007c007c00u, 0x0400040004000400u, 0x8000800080008000u};
  }
  return {};
}

digest_internal::StripesFn FunctionOf(DigestKernel kernel) {
#if defined(__x86_64__)
  if (kernel == DigestKernel::kAvx512) return digest_internal::StripesAvx512;
  if (kernel == DigestKernel::kAvx2) return digest_internal::StripesAvx2;
#endif
  return digest_internal::StripesPortable;
}

}  // namespace

bool DigestKernelRuns(DigestKernel kernel) {
#if defined(__x86_64__)
  if (kernel == DigestKernel::kAvx512)
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
  if (kernel == DigestKernel::kAvx2) return __builtin_cpu_supports("avx2");
#endif
  return kernel == DigestKernel::kPortable;
}

DigestKernel BestDigestKernel() {
  static const DigestKernel best = DigestKernelRuns(DigestKernel::kAvx512) ? DigestKernel::kAvx512
                                   : DigestKernelRuns(DigestKernel::kAvx2)
                                       ? DigestKernel::kAvx2
                                       : DigestKernel::kPortable;
  return best;
}

std::string_view DigestKernelName(DigestKernel kernel) {
  switch (kernel) {
    case DigestKernel::kPortable:
      return "portable";
    case DigestKernel::kAvx2:
      return "avx2";
    case DigestKernel::kAvx512:
      return "avx512";
  }
  return "unknown";
}

Status CheckCopy(MutableByteSpan dst, ByteSpan src) {
  if (dst.size() != src.size())
    return absl::InvalidArgumentError(
        absl::StrCat("copy: ", src.size(), " bytes into ", dst.size(),
                     "; source and destination must be equally long"));
  const std::less<const std::byte*> before;
  if (before(dst.data(), src.data() + src.size()) && before(src.data(), dst.data() + dst.size()))
    return absl::InvalidArgumentError(absl::StrCat(
        "copy: source and destination of ", src.size(),
        " bytes overlap; the digest would be of bytes that the copy itself overwrites"));
  return absl::OkStatus();
}

Xxh3Stream::Xxh3Stream(ElementType dtype, size_t unscanned, DigestKernel kernel)
    : acc_{kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
           kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1},
      dtype_(dtype),
      unscanned_(static_cast<uint8_t>(unscanned)),
      kernel_(kernel) {
  BATON_CHECK(unscanned == 0 || unscanned == 32);
  BATON_CHECK(DigestKernelRuns(kernel));
}

void Xxh3Stream::CopyUpdate(MutableByteSpan dst, ByteSpan src, CopyTarget target) {
  Run(dst.data(), src, target);
  if (target == CopyTarget::kCold) digest_internal::StreamFence();
}

Digest128 Xxh3Stream::CopyFinish(MutableByteSpan dst, ByteSpan src, CopyTarget target) {
  Run(dst.data(), src, target);
  const Digest128 digest = Finish();
  if (target == CopyTarget::kCold) digest_internal::StreamFence();
  return digest;
}

// A stripe is hashed only when a byte beyond it has come: the last one is hashed differently.
void Xxh3Stream::Run(std::byte* dst, ByteSpan src, CopyTarget target) {
  const std::byte* from = src.data();
  size_t left = src.size();
  // The loops fetch ahead of themselves; this is for their start, a tenth of the time of 16 KiB.
  if (left > kBuffer)
    for (size_t i = 0; i < std::min(left, kFirstFetch); i += kStripe) __builtin_prefetch(from + i);
  // Copies through the buffer, so that what is hashed later is what was written.
  const auto buffer = [&](size_t n) {
    if (n == 0) return;
    std::memcpy(buffer_ + buffered_, from, n);
    if (dst != nullptr) {
      if (target == CopyTarget::kCold)
        digest_internal::StreamBytes(dst, buffer_ + buffered_, n);
      else
        std::memcpy(dst, buffer_ + buffered_, n);
      dst += n;
    }
    buffered_ += n;
    from += n;
    left -= n;
  };
  const size_t room = bytes_ == 0 ? kBuffer : kStripe;
  if (left <= room - std::min(buffered_, room)) return buffer(left);
  buffer(room - buffered_);
  FlushBuffer();
  if (const size_t count = (left - 1) / kStripe; count != 0) {
    Stripes(dst, from, count, target);
    from += count * kStripe;
    left -= count * kStripe;
    if (dst != nullptr) dst += count * kStripe;
  }
  buffer(left);
}

void Xxh3Stream::FlushBuffer() {
  const size_t count = buffered_ / kStripe;
  if (bytes_ == 0 && unscanned_ != 0) {
    // The seed fills half of the first stripe and is no element: the other half is scanned here,
    // the stripe itself hashed with a pattern that finds nothing.
    finite_ &= AllFinite(dtype_, ByteSpan(buffer_).subspan(unscanned_, kStripe - unscanned_));
    FunctionOf(kernel_)(acc_, {buffer_, nullptr, 1, 0, last_}, Store::kNone, ScanPattern());
    bytes_ = kStripe;
    stripe_ = 1;
    Stripes(nullptr, buffer_ + kStripe, count - 1, CopyTarget::kWarm);
  } else {
    Stripes(nullptr, buffer_, count, CopyTarget::kWarm);
  }
  buffered_ = 0;
}

void Xxh3Stream::Stripes(std::byte* dst, const std::byte* src, size_t count, CopyTarget target) {
  if (count == 0) return;
  Store store = Store::kPlain;
  if (dst == nullptr)
    store = Store::kNone;
  else if (target == CopyTarget::kCold && reinterpret_cast<uintptr_t>(dst) % 32 == 0)
    store = Store::kStream;
  const bool found =
      FunctionOf(kernel_)(acc_, {src, dst, count, stripe_, last_}, store, PatternOf(dtype_));
  finite_ &= !found;
  bytes_ += count * kStripe;
  stripe_ = static_cast<uint32_t>((stripe_ + count) % kStripesPerBlock);
}

bool Xxh3Stream::finite() const {
  const size_t skip = bytes_ == 0 ? std::min<size_t>(unscanned_, buffered_) : 0;
  return finite_ && AllFinite(dtype_, ByteSpan(buffer_).subspan(skip, buffered_ - skip));
}

Digest128 Xxh3Stream::Finish() {
  const uint64_t total = bytes_ + buffered_;
  if (total <= kShortMax) {
    BATON_CHECK(bytes_ == 0);
    return CanonicalXxh(XXH3_128bits(buffer_, buffered_));
  }
  // Up to 256 bytes may wait in the buffer; all but the last one..64 are ordinary stripes.
  const size_t whole = (buffered_ - 1) / kStripe;
  const std::byte* tail = buffer_ + whole * kStripe;
  const size_t tail_bytes = buffered_ - whole * kStripe;
  const auto stripes = FunctionOf(kernel_);
  if (whole != 0) stripes(acc_, {buffer_, nullptr, whole, stripe_, last_}, Store::kNone, {});
  // The last 64 bytes of the stream, whether or not they are a stripe, with a secret of their own.
  std::byte end[kStripe];
  std::memcpy(end, last_ + tail_bytes, kStripe - tail_bytes);
  std::memcpy(end + kStripe - tail_bytes, tail, tail_bytes);
  for (size_t i = 0; i < 8; ++i) {
    const uint64_t word = Load64(end + 8 * i);
    const uint64_t key = word ^ Load64(Secret(kLastStripeSecret + 8 * i));
    acc_[i ^ 1] += word;
    acc_[i] += (key & 0xffffffffu) * (key >> 32);
  }
  const uint64_t low = Merge(acc_, Secret(kLowMergeSecret), total * kPrime64_1);
  const uint64_t high = Merge(acc_, Secret(kHighMergeSecret), ~(total * kPrime64_2));
  return CanonicalXxh(XXH128_hash_t{low, high});
}

}  // namespace baton
