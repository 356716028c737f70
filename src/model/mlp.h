// Feed-forward parts of a step: the MLP, gated or not, and routed experts. Each row is independent,
// so a caller may pass any subset of rows. Thread rule: as Step.
#ifndef BATON_MODEL_MLP_H_
#define BATON_MODEL_MLP_H_

#include <cstdint>

#include "model/config.h"
#include "model/linear.h"
#include "model/step.h"
#include "model/weights.h"

namespace baton::model {

kernel::Function FunctionOf(Activation act);

int64_t MlpScratch(const MlpConfig& config, int64_t rows);
// y = down(act(gate x) * up x), or down(act(up x)).
void RunMlp(const Step& step,
            const MlpWeights& weights,
            Rows x,
            Rows y,
            int64_t rows,
            const MlpForm& form = {});

// gate = act(gate) * up, or gate = act(up), over the columns of a tile; both are as wide as their
// stride.
void CombineTile(
    const kernel::Kernels& kernels, Rows gate, Rows up, const Tile& tile, const MlpForm& form = {});

int64_t MoeScratch(const MoeConfig& config, int64_t hidden, int64_t rows);
// One row's way to its experts.
struct RowRoute {
  float* logits;    // [experts], overwritten
  float* scores;    // [experts], scratch of kSigmoid and of groups
  int32_t* chosen;  // [top_k], ascending
  float* shares;    // [top_k]
};
void RouteRow(const kernel::Kernels& kernels,
              const MoeConfig& config,
              const MoeWeights& weights,
              const RowRoute& row);
// y += the shared expert, then the row's top_k experts in ascending id, each times its share. `y`
// must be initialised.
void AddMoe(const Step& step,
            const MoeConfig& config,
            const MoeWeights& weights,
            Rows x,
            Rows y,
            int64_t rows);

}  // namespace baton::model

#endif  // BATON_MODEL_MLP_H_
