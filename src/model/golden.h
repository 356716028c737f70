// Comparison of a model with recorded outputs of another implementation: a directory with
// config.json, model.safetensors and golden.safetensors, which holds
//   input_ids            [1, T] I64
//   logits               [1, T, V] F32
//   state<N>.l<I>.conv   [1, C, K] F32, after N tokens; column 0 (the oldest) is not used
//   state<N>.l<I>.rec    [1, H, P, N] (Mamba-2) or [1, I, N] (Mamba-1) F32
//   state<N>.l<I>.{k,v}  [1, kv_heads, N, head_dim] F32
// and, where f32 outputs of long histories are themselves further than a tolerance from the truth,
// exact.safetensors: the same tensors but input_ids, F64, computed in double
// (tools/reference64.py). The tokens run in one sequence, in pieces that end where states were
// recorded. Thread rule: free functions.
#ifndef BATON_MODEL_GOLDEN_H_
#define BATON_MODEL_GOLDEN_H_

#include <map>
#include <optional>
#include <string>

#include "base/status.h"
#include "model/model.h"

namespace baton::model {

struct GoldenTolerance {
  double logits = 1e-3;
  double states = 1e-4;
};

// Largest |difference|s; infinity where a value is not finite.
struct GoldenDistance {
  double logits = 0;
  // "conv", "rec", "k", "v": over layers and boundaries; of "rec" in units of the tensor's largest
  // value, where that is above 1 (a state that hardly fades is a sum over all tokens).
  std::map<std::string, double> states;
};

struct GoldenReport {
  std::string dir;
  std::string model_type;
  int64_t tokens = 0;
  double logits_std = 0;  // of the recorded logits, for scale
  int64_t states_compared = 0;
  GoldenDistance recorded;  // from golden.safetensors
  // Where there is exact.safetensors: from its values, and how far the record is from them.
  std::optional<GoldenDistance> exact;
  GoldenDistance record_error;

  // Within the tolerance of the record; or, where the exact values are known, of those, or at least
  // as near to them as the record is.
  bool Passed(const GoldenTolerance& tolerance) const;
};

// Fails if the directory cannot be loaded or holds keys or shapes that do not fit its config;
// differences are no failure. `pool` may be null.
StatusOr<GoldenReport> RunGolden(const std::string& dir,
                                 const LoadOptions& options,
                                 ThreadPool* pool);
// The same for a model already loaded.
StatusOr<GoldenReport> RunGolden(const std::string& dir, const Model& model, ThreadPool* pool);

// One line per report.
std::string FormatGolden(const GoldenReport& report, const GoldenTolerance& tolerance);

}  // namespace baton::model

#endif  // BATON_MODEL_GOLDEN_H_
