#include "synthetic.h"

#include <cmath>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "divergence.h"
#include "rounding.h"

namespace baton::bench {
namespace {

constexpr int64_t kN = 128, kP = 64, kChunk = 256;

// About normal: the sum of twelve uniforms.
float Normal(SplitMix64* rng) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += rng->Uniform();
  return static_cast<float>(sum);
}

struct Chunk {
  std::vector<float> x, b, c, y;
  std::vector<float> dt, decay;
};

// The side to which each input leans.
struct Means {
  std::vector<float> x, b;
};

void Fill(SplitMix64* rng, const Means& means, double decay, Chunk* chunk) {
  chunk->x.resize(kChunk * kP);
  chunk->b.resize(kChunk * kN);
  chunk->c.resize(kChunk * kN);
  chunk->y.resize(kChunk * kP);
  for (size_t i = 0; i < chunk->x.size(); ++i) chunk->x[i] = means.x[i % kP] + Normal(rng);
  for (size_t i = 0; i < chunk->b.size(); ++i) chunk->b[i] = means.b[i % kN] + Normal(rng);
  for (float& v : chunk->c) v = Normal(rng);
  chunk->dt.assign(kChunk, static_cast<float>(1 - decay));
  chunk->decay.assign(kChunk, static_cast<float>(decay));
}

}  // namespace

void RunSynthetic(double decay, int64_t tokens, int64_t rest_every) {
  const std::vector<Policy> policies = AllPolicies(rest_every);
  std::vector<std::vector<float>> states(policies.size(), std::vector<float>(kN * kP));
  std::vector<std::pair<std::string, Divergence>> runs;
  for (size_t i = 1; i < policies.size(); ++i) runs.emplace_back(Name(policies[i]), Divergence());
  SplitMix64 rng(11);
  Means means;
  for (int64_t i = 0; i < kP; ++i) means.x.push_back(0.5f * Normal(&rng));
  for (int64_t i = 0; i < kN; ++i) means.b.push_back(0.5f * Normal(&rng));
  Chunk chunk;
  std::vector<float> truth;
  double squares = 0;
  for (int64_t from = 0; from < tokens; from += kChunk) {
    Fill(&rng, means, decay, &chunk);
    for (size_t i = 0; i < policies.size(); ++i) {
      BeginCall(policies[i], from, reinterpret_cast<const std::byte*>(states[i].data()));
      RoundingKernels().mamba2({.state = states[i].data(),
                                .n_state = kN,
                                .head_dim = kP,
                                .tokens = kChunk,
                                .x = chunk.x.data(),
                                .ldx = kP,
                                .b = chunk.b.data(),
                                .c = chunk.c.data(),
                                .ldbc = kN,
                                .dt = chunk.dt.data(),
                                .decay = chunk.decay.data(),
                                .lddt = 1,
                                .d = 0,
                                .y = chunk.y.data(),
                                .ldy = kP});
      if (i == 0) {
        truth = chunk.y;
        squares = 0;
        for (const float v : truth) squares += static_cast<double>(v) * v;
      }
      const auto scale = static_cast<float>(3 / std::sqrt(squares / (kChunk * kP)));
      for (float& v : chunk.y) v *= scale;
      if (i == 0) {
        truth = chunk.y;
        continue;
      }
      for (int64_t t = 0; t < kChunk; ++t)
        runs[i - 1].second.Add(from + t, std::span(truth).subspan(t * kP, kP),
                               std::span(chunk.y).subspan(t * kP, kP));
    }
  }
  std::printf("\nsynthetic recurrence, decay %.6g (half-life %.0f tokens)\n", decay,
              std::log(0.5) / std::log(decay));
  PrintDivergence(runs);
}

}  // namespace baton::bench
