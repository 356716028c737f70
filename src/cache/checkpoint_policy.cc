#include "cache/checkpoint_policy.h"

#include <algorithm>

namespace baton {
namespace {

class Planner {
 public:
  Planner(const PolicyOptions& options,
          const PrefixIndex::Sight& sight,
          const PolicyRequest& request,
          int64_t block_tokens)
      : max_(static_cast<size_t>(std::max(options.max_new_states, 0))),
        sight_(sight),
        start_(request.start),
        end_(request.conversation_end / block_tokens * block_tokens),
        block_(block_tokens) {}

  void Want(int64_t boundary) {
    boundary -= boundary % block_;
    if (wanted_.size() >= max_ || boundary <= start_ || boundary > end_) return;
    const auto has = [boundary](const std::vector<int64_t>& v) {
      return std::find(v.begin(), v.end(), boundary) != v.end();
    };
    if (!has(sight_.states) && !has(wanted_)) wanted_.push_back(boundary);
  }

  // Halves the widest stretch again and again while both halves are `least` long.
  void Spread(int64_t least) {
    while (wanted_.size() < max_) {
      std::vector<int64_t> fixed = wanted_;
      fixed.push_back(start_);
      fixed.push_back(end_);
      for (const int64_t s : sight_.states)
        if (s > start_ && s < end_) fixed.push_back(s);
      std::sort(fixed.begin(), fixed.end());
      int64_t from = 0, width = 0;
      for (size_t i = 0; i + 1 < fixed.size(); ++i) {
        if (fixed[i + 1] - fixed[i] <= width) continue;
        from = fixed[i];
        width = fixed[i + 1] - from;
      }
      const size_t before = wanted_.size();
      if (width >= 2 * least) Want(from + width / 2);
      if (wanted_.size() == before) return;
    }
  }

  std::vector<int64_t> Take() {
    std::sort(wanted_.begin(), wanted_.end());
    return std::move(wanted_);
  }
  int64_t end() const { return end_; }

 private:
  const size_t max_;
  const PrefixIndex::Sight& sight_;
  const int64_t start_, end_, block_;
  std::vector<int64_t> wanted_;
};

}  // namespace

std::vector<int64_t> PlanStates(const PolicyOptions& options,
                                const PrefixIndex::Sight& sight,
                                const PolicyRequest& request,
                                int64_t block_tokens) {
  Planner planner(options, sight, request, block_tokens);
  planner.Want(planner.end());
  if (sight.leaves && options.branch_sights > 0 && sight.leavers + 1 >= options.branch_sights)
    planner.Want(sight.known);
  for (const int64_t hint : request.hints) planner.Want(hint);
  for (const int64_t distance : options.before_end)
    if (planner.end() - distance > sight.known) planner.Want(planner.end() - distance);
  if (options.spacing_tokens > 0) planner.Spread(std::max(options.spacing_tokens, block_tokens));
  return planner.Take();
}

}  // namespace baton
