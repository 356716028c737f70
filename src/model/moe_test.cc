// Routed experts: every router against its definition in double, and the gathered run against one
// row at a time (bit for bit) and against the plain sum over experts (within rounding).
#include <cmath>
#include <cstring>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/mlp.h"

namespace baton::model {
namespace {

using testing::ElementsAre;

constexpr int64_t kHidden = 40, kRows = 23;

class Random {
 public:
  std::vector<float> Vector(int64_t n, double scale) {
    std::vector<float> v(static_cast<size_t>(n));
    for (float& x : v) x = static_cast<float>((2 * rng_.Uniform() - 1) * scale);
    return v;
  }

 private:
  SplitMix64 rng_{17};
};

// A matrix and its elements.
struct Matrix {
  std::vector<float> w;
  int64_t cols;
  std::vector<double> operator*(const std::vector<double>& x) const {
    std::vector<double> y(w.size() / cols);
    for (size_t r = 0; r < y.size(); ++r)
      for (int64_t k = 0; k < cols; ++k) y[r] += static_cast<double>(w[r * cols + k]) * x[k];
    return y;
  }
};

struct PlainExpert {
  Matrix gate, up, down;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

std::vector<double> RunPlain(const PlainExpert& e, bool gated, const std::vector<double>& x) {
  std::vector<double> up = e.up * x;
  const std::vector<double> gate = gated ? e.gate * x : up;
  for (size_t i = 0; i < up.size(); ++i)
    up[i] = gated ? gate[i] * Sigmoid(gate[i]) * up[i] : std::pow(std::max(up[i], 0.0), 2);
  return e.down * up;
}

// The same block twice: as the model runs it and as plain matrices.
class Block {
 public:
  explicit Block(const MoeConfig& config) : c_(config) {
    const int64_t width = c_.latent > 0 ? c_.latent : kHidden;
    router_ = Bind(c_.experts, kHidden, &weights_.router, 4.0);
    if (c_.correction) weights_.correction = random_.Vector(c_.experts, 0.5);
    weights_.experts.resize(c_.experts);
    for (MlpWeights& e : weights_.experts) experts_.push_back(BindExpert(width, c_.width, &e));
    if (c_.latent > 0) {
      in_ = Bind(c_.latent, kHidden, &weights_.latent_in, 1.0);
      out_ = Bind(kHidden, c_.latent, &weights_.latent_out, 1.0);
    }
    if (c_.shared_width > 0)
      shared_ = BindExpert(kHidden, c_.shared_width, &weights_.shared.emplace());
    if (c_.shared_gate) shared_gate_ = Bind(1, kHidden, &weights_.shared_gate, 4.0);
    x_ = random_.Vector(kRows * kHidden, 1);
    y_ = random_.Vector(kRows * kHidden, 1);
  }

  // y after AddMoe, `cut` rows at a time.
  std::vector<float> Run(const kernel::Kernels& kernels, int threads, int64_t cut) {
    ThreadPool pool(threads);
    Workspace workspace;
    std::vector<float> y = y_;
    for (int64_t r = 0; r < kRows; r += cut) {
      const int64_t rows = std::min(cut, kRows - r);
      const Step step(kernels, threads > 1 ? &pool : nullptr, workspace.impl());
      EXPECT_TRUE(workspace.impl()->arena.Reserve(MoeScratch(c_, kHidden, rows)).ok());
      AddMoe(step, c_, weights_, Rows{x_.data() + r * kHidden, kHidden},
             Rows{y.data() + r * kHidden, kHidden}, rows);
      EXPECT_EQ(workspace.impl()->arena.used(), 0);
    }
    return y;
  }

  std::vector<double> Plain() const {
    std::vector<double> y(y_.begin(), y_.end());
    for (int64_t r = 0; r < kRows; ++r) {
      const std::vector<double> x(x_.begin() + r * kHidden, x_.begin() + (r + 1) * kHidden);
      std::vector<double> sum(c_.latent > 0 ? c_.latent : kHidden);
      const std::vector<double> in = c_.latent > 0 ? in_ * x : x;
      const std::vector<double> share = Shares(router_ * x);
      for (int64_t e = 0; e < c_.experts; ++e) {
        if (share[e] == 0) continue;
        const std::vector<double> out = RunPlain(experts_[e], c_.gated, in);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += share[e] * out[i];
      }
      if (c_.latent > 0) sum = out_ * sum;
      if (c_.shared_width > 0) {
        const std::vector<double> out = RunPlain(shared_, c_.gated, x);
        const double gate = c_.shared_gate ? Sigmoid((shared_gate_ * x)[0]) : 1;
        for (int64_t i = 0; i < kHidden; ++i) sum[i] += gate * out[i];
      }
      for (int64_t i = 0; i < kHidden; ++i) y[r * kHidden + i] += sum[i];
    }
    return y;
  }

 private:
  Matrix Bind(int64_t rows, int64_t cols, Linear* to, double scale) {
    Matrix m{random_.Vector(rows * cols, scale / std::sqrt(static_cast<double>(cols))), cols};
    to->w = *kernel::PackedMatrix::Pack(m.w.data(), kernel::DType::kF32, rows, cols, cols, nullptr);
    return m;
  }
  PlainExpert BindExpert(int64_t hidden, int64_t width, MlpWeights* to) {
    PlainExpert e;
    if (c_.gated) e.gate = Bind(width, hidden, &to->gate, 2);
    e.up = Bind(width, hidden, &to->up, 2);
    e.down = Bind(hidden, width, &to->down, 2);
    return e;
  }

  // The share of every expert, 0 if not chosen.
  std::vector<double> Shares(std::vector<double> logits) const {
    const auto softmax = [](std::vector<double> v) {
      double sum = 0;
      for (double& x : v) sum += x = std::exp(x);
      for (double& x : v) x /= sum;
      return v;
    };
    std::vector<double> share = logits;
    if (c_.router == Router::kSoftmax) share = softmax(logits);
    if (c_.router == Router::kSigmoid)
      for (double& s : share) s = Sigmoid(s);
    std::vector<double> score = share;
    for (size_t e = 0; e < weights_.correction.size(); ++e) score[e] += weights_.correction[e];
    const std::vector<bool> chosen = Choose(score);
    for (int64_t e = 0; e < c_.experts; ++e)
      if (!chosen[e]) share[e] = c_.router == Router::kTopKSoftmax ? -INFINITY : 0;
    if (c_.router == Router::kTopKSoftmax) share = softmax(share);
    const double sum = std::accumulate(share.begin(), share.end(), 0.0) + c_.renormalise_eps;
    for (double& s : share) s *= c_.scale / (c_.renormalise ? sum : 1);
    return share;
  }
  std::vector<bool> Choose(std::vector<double> score) const {
    const int64_t size = c_.experts / c_.groups;
    std::vector<std::pair<double, int64_t>> order;
    for (int64_t g = 0; g < c_.groups; ++g) {
      std::vector<double> best(score.begin() + g * size, score.begin() + (g + 1) * size);
      std::sort(best.begin(), best.end(), std::greater<>());
      order.emplace_back(-best[0] - (size > 1 ? best[1] : 0), g);
    }
    std::sort(order.begin(), order.end());
    for (int64_t i = c_.top_groups; i < c_.groups; ++i)
      for (int64_t e = 0; e < size; ++e) score[order[i].second * size + e] = -INFINITY;
    std::vector<bool> chosen(c_.experts);
    order.clear();
    for (int64_t e = 0; e < c_.experts; ++e) order.emplace_back(-score[e], e);
    std::sort(order.begin(), order.end());
    for (int64_t k = 0; k < c_.top_k; ++k) chosen[order[k].second] = true;
    return chosen;
  }

  MoeConfig c_;
  Random random_;
  MoeWeights weights_;
  Matrix router_, in_, out_, shared_gate_;
  std::vector<PlainExpert> experts_;
  PlainExpert shared_;
  std::vector<float> x_, y_;
};

struct Case {
  const char* name;
  MoeConfig config;
};

const Case kCases[] = {
    {"jamba", {.experts = 6, .top_k = 2, .width = 24}},
    {"granite", {.experts = 6, .top_k = 3, .width = 24, .router = Router::kTopKSoftmax}},
    {"qwen",
     {.experts = 12,
      .top_k = 4,
      .width = 24,
      .renormalise = true,
      .shared_width = 19,
      .shared_gate = true}},
    {"lfm2",
     {.experts = 8,
      .top_k = 2,
      .width = 33,
      .router = Router::kSigmoid,
      .correction = true,
      .renormalise = true,
      .renormalise_eps = 1e-6f,
      .scale = 1.5f}},
    {"nemotron",
     {.experts = 12,
      .top_k = 3,
      .width = 24,
      .router = Router::kSigmoid,
      .correction = true,
      .renormalise = true,
      .renormalise_eps = 1e-20f,
      .scale = 2.5f,
      .groups = 4,
      .top_groups = 2,
      .gated = false,
      .shared_width = 41}},
    {"latent",
     {.experts = 8,
      .top_k = 2,
      .width = 24,
      .router = Router::kSigmoid,
      .gated = false,
      .latent = 18,
      .shared_width = 16}},
    {"grouped", {.experts = 9, .top_k = 2, .width = 8, .groups = 3, .top_groups = 1}},
    {"all", {.experts = 4, .top_k = 4, .width = 8}},
};

class MoeTest : public testing::TestWithParam<Case> {};

TEST_P(MoeTest, IsTheSumOverItsExperts) {
  Block block(GetParam().config);
  const std::vector<float> y = block.Run(kernel::ReferenceKernels(), 1, kRows);
  const std::vector<double> plain = block.Plain();
  for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], plain[i], 2e-5) << i;
}

TEST_P(MoeTest, BitsDoNotDependOnTheRun) {
  Block block(GetParam().config);
  const std::vector<float> y = block.Run(kernel::ReferenceKernels(), 1, 1);
  for (const kernel::Kernels* kernels : kernel::SupportedKernels())
    for (const int threads : {1, 2, 3})
      for (const int64_t cut : {int64_t{1}, int64_t{7}, kRows}) {
        const std::vector<float> other = block.Run(*kernels, threads, cut);
        EXPECT_EQ(std::memcmp(y.data(), other.data(), y.size() * 4), 0)
            << kernels->name << " on " << threads << ", " << cut << " rows";
      }
}

INSTANTIATE_TEST_SUITE_P(Kinds, MoeTest, testing::ValuesIn(kCases), [](const auto& info) {
  return std::string(info.param.name);
});

std::vector<int32_t> Chosen(const MoeConfig& c, std::vector<float> logits) {
  std::vector<float> scores(c.experts), shares(c.top_k);
  std::vector<int32_t> chosen(c.top_k);
  RouteRow(kernel::ReferenceKernels(), c, MoeWeights(),
           {logits.data(), scores.data(), chosen.data(), shares.data()});
  return chosen;
}

TEST(RouteRow, TiesGoToTheLowerIdAndNanLoses) {
  MoeConfig c{.experts = 6, .top_k = 3, .width = 1, .router = Router::kTopKSoftmax};
  EXPECT_THAT(Chosen(c, {1, 1, 1, 1, 1, 1}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Chosen(c, {0, 1, 2, 1, 2, 1}), ElementsAre(1, 2, 4));
  EXPECT_THAT(Chosen(c, {5, 4, 3, 2, 1, 0}), ElementsAre(0, 1, 2));
  EXPECT_THAT(Chosen(c, {NAN, 0, NAN, -9, 1, -1}), ElementsAre(1, 4, 5));
  EXPECT_THAT(Chosen(c, {NAN, NAN, NAN, NAN, NAN, NAN}), ElementsAre(0, 1, 2));
  c.router = Router::kSigmoid;
  EXPECT_THAT(Chosen(c, {-200, -200, -200, -200, -200, 1}), ElementsAre(0, 1, 5));
  c.groups = 3;
  c.top_groups = 2;
  EXPECT_THAT(Chosen(c, {2, -9, 1, 1, 1, 1}), ElementsAre(2, 3, 4)) << "pairs 1 and 2 are best";
  EXPECT_THAT(Chosen(c, {0, 0, 0, 0, 0, 0}), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace baton::model
