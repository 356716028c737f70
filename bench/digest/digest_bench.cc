// Question: what does proving a part cost, against the cheapest thing that could be done with the
// same bytes? One run, one thread, best of several rounds, each variant interleaved with the
// others:
//   xxh3       plain one-shot XXH3-128, no seed, no finite check
//   baton      identity-seeded digest with the finite check in the same pass (Digester)
//   two-pass   the same result by a digest over the whole part, then a scan over the whole part
//   copy       memcpy of the part
//   copy+dig   DigestStream::CopyUpdate: copy and digest of what was written
//   blake2b    keyed BLAKE2b, for transports that are not trusted
// The result is checked: baton == two-pass, and baton's digest == XXH3-128(seed | bytes).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "identity/digest.h"
#include "identity/prefix_chain.h"
#include "identity/xxh.h"

namespace baton {
namespace {

struct Variant {
  const char* name;
  std::function<void()> run;
  double best_s = 1e9;
};

void Measure(std::vector<Variant>* variants, size_t bytes) {
  const MonotonicClock clock;
  const size_t repeats = std::max<size_t>(1, (size_t{32} << 20) / bytes);
  for (int round = 0; round < 9; ++round) {
    for (Variant& v : *variants) {
      const Instant start = clock.Now();
      for (size_t i = 0; i < repeats; ++i) v.run();
      v.best_s = std::min(v.best_s, Seconds(clock.Now() - start) / static_cast<double>(repeats));
    }
  }
}

int Run(size_t bytes) {
  std::vector<float> part(bytes / sizeof(float));
  SplitMix64 rng(bytes);
  for (float& x : part) x = static_cast<float>(rng.Uniform() - 0.5);
  std::vector<std::byte> dst(bytes);
  const ByteSpan src = AsBytes(part);

  StatePart what;
  what.component = "ssm";
  const DigestSeed seed = StateSeed(Sha256(), what);
  const Digester digester;
  const std::string key(32, 'k');
  const Digester keyed = *Digester::Create(DigestAlgorithm::kBlake2b, AsBytes(key));

  PartDigest one;
  PartDigest two;
  volatile uint64_t sink = 0;
  std::vector<Variant> variants = {
      {"xxh3", [&] { sink = sink + XXH3_128bits(src.data(), src.size()).low64; }},
      {"baton", [&] { one = digester.Digest(seed, src); }},
      {"two-pass",
       [&] {
         XXH3_state_t* state = XXH3_createState();
         XXH3_128bits_reset(state);
         XXH3_128bits_update(state, seed.value.bytes.data(), Sha256::kSize);
         XXH3_128bits_update(state, src.data(), src.size());
         two.digest = CanonicalXxh(XXH3_128bits_digest(state));
         XXH3_freeState(state);
         two.finite = AllFinite(ElementType::kF32, src);
       }},
      {"copy", [&] { std::memcpy(dst.data(), src.data(), src.size()); }},
      {"copy+dig",
       [&] {
         DigestStream stream = digester.Stream(seed);
         stream.CopyUpdate(dst, src).IgnoreError();
         one = stream.Finish();
       }},
      {"blake2b", [&] { sink = sink + keyed.Digest(seed, src).digest.bytes[0]; }},
  };
  Measure(&variants, bytes);
  if (!(one == two) || !one.finite) {
    std::fprintf(stderr, "digest_bench: results differ at %zu bytes\n", bytes);
    return 1;
  }
  std::printf("%9.2f MiB ", static_cast<double>(bytes) / (1 << 20));
  for (const Variant& v : variants)
    std::printf(" %s %.1f", v.name, static_cast<double>(bytes) / v.best_s / 1e9);
  std::printf("  GB/s; baton/xxh3 %.2f, copy+dig/copy %.2f\n",
              variants[0].best_s / variants[1].best_s, variants[3].best_s / variants[4].best_s);
  return 0;
}

void RunChain() {
  const MonotonicClock clock;
  std::vector<TokenId> tokens(64 * 1024);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i);
  double best_s = 1e9;
  for (int round = 0; round < 9; ++round) {
    const Instant start = clock.Now();
    const Sha256 hash = PrefixChain::HashOf(ScopeOf("tenant"), tokens);
    best_s = std::min(best_s, Seconds(clock.Now() - start));
    if (hash.is_zero()) std::abort();
  }
  std::printf("prefix chain: %.2f us per block of %d tokens\n",
              best_s * 1e6 / (static_cast<double>(tokens.size()) / kBlockTokens),
              static_cast<int>(kBlockTokens));
}

}  // namespace
}  // namespace baton

int main() {
  for (size_t kib : {16, 256, 1024, 16 * 1024, 96 * 1024})
    if (const int rc = baton::Run(kib * 1024); rc != 0) return rc;
  baton::RunChain();
  return 0;
}
