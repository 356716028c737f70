// AVX2 and AVX-512. Functions carry their target by attribute, not by a compiler flag for the file,
// so that no inline function of a header is compiled here for a CPU that may be absent.
//
// What bounds the loop is memory: a stripe costs some 20 instructions, against 64 bytes in and 64
// bytes out. Hence one load, and prefetches across page borders, where the hardware stops.
#include "identity/copy_digest_kernels.h"

#if defined(__x86_64__)
// The headers of g++ 12 leave the merge operand of unmasked intrinsics unset and are warned about.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>

namespace baton::digest_internal {
namespace {

#define BATON_AVX2 __attribute__((target("avx2"), always_inline)) inline
#define BATON_AVX512 __attribute__((target("avx512f,avx512bw"), always_inline)) inline

// Bytes ahead of the load; measured best of 256..4096 (bench/digest).
constexpr size_t kAhead = 1024;

// --- AVX2: accumulators in two registers, a stripe in two halves.

struct Avx2State {
  __m256i acc[2];
  __m256i
      last[2];  // the last stripe: reading it back from a cold destination would be a round trip
  __m256i found;
  __m256i mask;
  __m256i one;
};

template <Store kStore, bool kWide>
BATON_AVX2 void HalfAvx2(
    Avx2State* st, int half, const std::byte* src, std::byte* dst, const std::byte* secret) {
  __m256i d = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src + 32 * half));
  asm volatile("" : "+x"(d));  // no second load of the source, whatever the register pressure
  st->last[half] = d;
  if constexpr (kStore == Store::kPlain)
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(dst + 32 * half), d);
  if constexpr (kStore == Store::kStream)
    _mm256_stream_si256(reinterpret_cast<__m256i*>(dst + 32 * half), d);
  const __m256i s = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(secret + 32 * half));
  const __m256i key = _mm256_xor_si256(d, s);
  const __m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
  const __m256i swapped = _mm256_shuffle_epi32(d, _MM_SHUFFLE(1, 0, 3, 2));
  st->acc[half] = _mm256_add_epi64(st->acc[half], _mm256_add_epi64(product, swapped));
  const __m256i x = _mm256_and_si256(d, st->mask);
  st->found = _mm256_or_si256(st->found,
                              kWide ? _mm256_add_epi32(x, st->one) : _mm256_add_epi16(x, st->one));
}

BATON_AVX2 void ScrambleAvx2(Avx2State* st) {
  const auto* secret = reinterpret_cast<const std::byte*>(kSecret) + kSecretBytes - kStripeBytes;
  const __m256i prime = _mm256_set1_epi32(static_cast<int>(kPrime32_1));
  for (int half = 0; half < 2; ++half) {
    __m256i a = st->acc[half];
    a = _mm256_xor_si256(a, _mm256_srli_epi64(a, 47));
    a = _mm256_xor_si256(a,
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(secret + 32 * half)));
    const __m256i low = _mm256_mul_epu32(a, prime);
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), prime);
    st->acc[half] = _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
  }
}

template <Store kStore, bool kWide>
__attribute__((target("avx2"))) bool RunAvx2(uint64_t* acc,
                                             const StripeRun& run,
                                             const ScanPattern& scan) {
  Avx2State st;
  auto* const accumulators = reinterpret_cast<__m256i*>(acc);
  st.acc[0] = _mm256_load_si256(accumulators);
  st.acc[1] = _mm256_load_si256(accumulators + 1);
  st.last[0] = st.last[1] = st.found = _mm256_setzero_si256();
  st.mask = _mm256_set1_epi64x(static_cast<int64_t>(scan.mask));
  st.one = _mm256_set1_epi64x(static_cast<int64_t>(scan.one));
  const auto* const secret = reinterpret_cast<const std::byte*>(kSecret);
  const std::byte* src = run.src;
  std::byte* dst = run.dst;
  uint32_t stripe = run.stripe;
  for (size_t left = run.count; left != 0;) {
    const size_t n = left < kStripesPerBlock - stripe ? left : kStripesPerBlock - stripe;
    for (size_t i = 0; i < n; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(src) + kAhead, _MM_HINT_T0);
      HalfAvx2<kStore, kWide>(&st, 0, src, dst, secret + 8 * (stripe + i));
      HalfAvx2<kStore, kWide>(&st, 1, src, dst, secret + 8 * (stripe + i));
      src += kStripeBytes;
      if constexpr (kStore != Store::kNone) dst += kStripeBytes;
    }
    left -= n;
    stripe += static_cast<uint32_t>(n);
    if (stripe == kStripesPerBlock) {
      ScrambleAvx2(&st);
      stripe = 0;
    }
  }
  _mm256_store_si256(accumulators, st.acc[0]);
  _mm256_store_si256(accumulators + 1, st.acc[1]);
  auto* const last = reinterpret_cast<__m256i*>(run.last);
  _mm256_storeu_si256(last, st.last[0]);
  _mm256_storeu_si256(last + 1, st.last[1]);
  const __m256i signs = _mm256_set1_epi64x(static_cast<int64_t>(scan.signs));
  return _mm256_testz_si256(st.found, signs) == 0;
}

// --- AVX-512: one register each.

struct Avx512State {
  __m512i acc;
  __m512i last;
  __m512i found;
  __m512i mask;
  __m512i one;
};

template <Store kStore>
BATON_AVX512 void Store512(std::byte* dst, __m512i d) {
  if constexpr (kStore == Store::kPlain) _mm512_storeu_si512(dst, d);
  // The seed in front of a part shifts stripes by half a line: two halves, which meet their other
  // half in the write-combining buffer.
  if constexpr (kStore == Store::kStream) {
    auto* const out = reinterpret_cast<__m256i*>(dst);
    _mm256_stream_si256(out, _mm512_castsi512_si256(d));
    _mm256_stream_si256(out + 1, _mm512_extracti64x4_epi64(d, 1));
  }
}

template <Store kStore, bool kWide>
BATON_AVX512 void StripeAvx512(Avx512State* st,
                               const std::byte* src,
                               std::byte* dst,
                               const std::byte* secret) {
  __m512i d = _mm512_loadu_si512(src);
  asm volatile("" : "+v"(d));
  st->last = d;
  Store512<kStore>(dst, d);
  const __m512i key = _mm512_xor_si512(d, _mm512_loadu_si512(secret));
  const __m512i product = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));
  const __m512i swapped = _mm512_shuffle_epi32(d, static_cast<_MM_PERM_ENUM>(0x4E));
  st->acc = _mm512_add_epi64(st->acc, _mm512_add_epi64(product, swapped));
  const __m512i x = _mm512_and_si512(d, st->mask);
  st->found = _mm512_or_si512(st->found,
                              kWide ? _mm512_add_epi32(x, st->one) : _mm512_add_epi16(x, st->one));
}

BATON_AVX512 void ScrambleAvx512(Avx512State* st) {
  const auto* secret = reinterpret_cast<const std::byte*>(kSecret) + kSecretBytes - kStripeBytes;
  const __m512i prime = _mm512_set1_epi32(static_cast<int>(kPrime32_1));
  __m512i a = st->acc;
  a = _mm512_xor_si512(a, _mm512_srli_epi64(a, 47));
  a = _mm512_xor_si512(a, _mm512_loadu_si512(secret));
  const __m512i low = _mm512_mul_epu32(a, prime);
  const __m512i high = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), prime);
  st->acc = _mm512_add_epi64(low, _mm512_slli_epi64(high, 32));
}

template <Store kStore, bool kWide>
__attribute__((target("avx512f,avx512bw"))) bool RunAvx512(uint64_t* acc,
                                                           const StripeRun& run,
                                                           const ScanPattern& scan) {
  Avx512State st;
  st.acc = _mm512_load_si512(acc);
  st.last = st.found = _mm512_setzero_si512();
  st.mask = _mm512_set1_epi64(static_cast<int64_t>(scan.mask));
  st.one = _mm512_set1_epi64(static_cast<int64_t>(scan.one));
  const auto* const secret = reinterpret_cast<const std::byte*>(kSecret);
  const std::byte* src = run.src;
  std::byte* dst = run.dst;
  uint32_t stripe = run.stripe;
  for (size_t left = run.count; left != 0;) {
    const size_t n = left < kStripesPerBlock - stripe ? left : kStripesPerBlock - stripe;
    for (size_t i = 0; i < n; ++i) {
      _mm_prefetch(reinterpret_cast<const char*>(src) + kAhead, _MM_HINT_T0);
      StripeAvx512<kStore, kWide>(&st, src, dst, secret + 8 * (stripe + i));
      src += kStripeBytes;
      if constexpr (kStore != Store::kNone) dst += kStripeBytes;
    }
    left -= n;
    stripe += static_cast<uint32_t>(n);
    if (stripe == kStripesPerBlock) {
      ScrambleAvx512(&st);
      stripe = 0;
    }
  }
  _mm512_store_si512(acc, st.acc);
  _mm512_storeu_si512(run.last, st.last);
  const __m512i signs = _mm512_set1_epi64(static_cast<int64_t>(scan.signs));
  return _mm512_test_epi64_mask(st.found, signs) != 0;
}

}  // namespace

void StreamBytes(std::byte* dst, const std::byte* src, size_t bytes) {
  if (reinterpret_cast<uintptr_t>(dst) % 16 == 0) {
    for (; bytes >= 16; bytes -= 16, dst += 16, src += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(dst),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(src)));
  }
  if (bytes != 0) __builtin_memcpy(dst, src, bytes);
}

void StreamFence() { _mm_sfence(); }

bool StripesAvx2(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan) {
  bool found = false;
  switch (store) {
    case Store::kNone:
      found = scan.wide ? RunAvx2<Store::kNone, true>(acc, run, scan)
                        : RunAvx2<Store::kNone, false>(acc, run, scan);
      break;
    case Store::kPlain:
      found = scan.wide ? RunAvx2<Store::kPlain, true>(acc, run, scan)
                        : RunAvx2<Store::kPlain, false>(acc, run, scan);
      break;
    case Store::kStream:
      found = scan.wide ? RunAvx2<Store::kStream, true>(acc, run, scan)
                        : RunAvx2<Store::kStream, false>(acc, run, scan);
      break;
  }
  return found;
}

bool StripesAvx512(uint64_t* acc, const StripeRun& run, Store store, const ScanPattern& scan) {
  bool found = false;
  switch (store) {
    case Store::kNone:
      found = scan.wide ? RunAvx512<Store::kNone, true>(acc, run, scan)
                        : RunAvx512<Store::kNone, false>(acc, run, scan);
      break;
    case Store::kPlain:
      found = scan.wide ? RunAvx512<Store::kPlain, true>(acc, run, scan)
                        : RunAvx512<Store::kPlain, false>(acc, run, scan);
      break;
    case Store::kStream:
      found = scan.wide ? RunAvx512<Store::kStream, true>(acc, run, scan)
                        : RunAvx512<Store::kStream, false>(acc, run, scan);
      break;
  }
  return found;
}

}  // namespace baton::digest_internal
#endif
