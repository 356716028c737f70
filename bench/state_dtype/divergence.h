// How far two runs of one token history are apart, by position: Kullback-Leibler divergence of the
// next-token distributions and whether both have the same most likely token.
// Thread rule: plain objects.
#ifndef BATON_BENCH_STATE_DTYPE_DIVERGENCE_H_
#define BATON_BENCH_STATE_DTYPE_DIVERGENCE_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace baton::bench {

class Divergence {
 public:
  // Positions are grouped: below 1024, and then by powers of two.
  void Add(int64_t position, std::span<const float> truth, std::span<const float> other);

  struct Group {
    int64_t end = 0;  // positions below, from the end of the group before
    int64_t tokens = 0;
    double kl = 0;  // sum, nats
    int64_t same = 0;
    double mean_kl() const { return kl / static_cast<double>(tokens); }
    double agreement() const { return static_cast<double>(same) / static_cast<double>(tokens); }
  };
  const std::vector<Group>& groups() const { return groups_; }
  Group Total() const;

 private:
  std::vector<Group> groups_;
};

// One row per run, the columns being the groups: "1.2e-04 99.8%".
void PrintDivergence(const std::vector<std::pair<std::string, Divergence>>& runs);

}  // namespace baton::bench

#endif  // BATON_BENCH_STATE_DTYPE_DIVERGENCE_H_
