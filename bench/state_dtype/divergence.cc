#include "divergence.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace baton::bench {
namespace {

// log of the sum of exp, and the largest element's index.
std::pair<double, size_t> LogSum(std::span<const float> z) {
  const size_t best = static_cast<size_t>(std::max_element(z.begin(), z.end()) - z.begin());
  double sum = 0;
  for (const float v : z) sum += std::exp(static_cast<double>(v) - z[best]);
  return {std::log(sum) + z[best], best};
}

}  // namespace

void Divergence::Add(int64_t position,
                     std::span<const float> truth,
                     std::span<const float> other) {
  while (groups_.empty() || position >= groups_.back().end) {
    Group next;
    next.end = groups_.empty() ? 1024 : 2 * groups_.back().end;
    groups_.push_back(next);
  }
  const auto [log_p, best_p] = LogSum(truth);
  const auto [log_q, best_q] = LogSum(other);
  double kl = 0;
  for (size_t i = 0; i < truth.size(); ++i) {
    const double p = truth[i] - log_p;
    kl += std::exp(p) * (p - (other[i] - log_q));
  }
  Group& g = groups_.back();
  ++g.tokens;
  g.kl += kl;
  g.same += best_p == best_q;
}

Divergence::Group Divergence::Total() const {
  Group all;
  for (const Group& g : groups_) {
    all.end = g.end;
    all.tokens += g.tokens;
    all.kl += g.kl;
    all.same += g.same;
  }
  return all;
}

void PrintDivergence(const std::vector<std::pair<std::string, Divergence>>& runs) {
  std::printf("%-28s", "KL in nats, same argmax, to");
  for (const auto& g : runs.front().second.groups())
    std::printf(" %15lld", static_cast<long long>(g.end));
  std::printf(" %15s\n", "all");
  for (const auto& [name, run] : runs) {
    std::printf("%-28s", name.c_str());
    for (const auto& g : run.groups())
      std::printf(" %8.1e %5.1f%%", g.mean_kl(), 100 * g.agreement());
    const Divergence::Group all = run.Total();
    std::printf(" %8.1e %5.1f%%\n", all.mean_kl(), 100 * all.agreement());
  }
}

}  // namespace baton::bench
