#include "sim/run.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "sim/world.h"

namespace baton::sim {

RunResult RunSeed(const RunOptions& options) {
  SetDefect(options.defect);
  auto scheduler = std::make_unique<Scheduler>(options.seed);
  auto world = std::make_unique<World>(options, scheduler.get());
  const bool ended = scheduler->Run([&] { world->Main(); });
  RunResult result = world->Result();
  if (!ended) {
    // Fibers are stuck half way: nothing of this run can be taken apart.
    (void)world.release();
    if (result.violation.empty()) result.violation = scheduler->problem();
    (void)scheduler.release();
  }
  if (result.clean && result.rejected != 0 && result.violation.empty())
    result.violation = absl::StrCat("false alarm: ", result.rejected,
                                    " hand-offs refused in a run without faults");
  return result;
}

}  // namespace baton::sim
