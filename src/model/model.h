// A loaded hybrid language model: weights, layout, and one function that advances a batch of
// sequences. It does no scheduling, sampling or memory management, and knows no tokenizer.
//
// Memory of a sequence, as the layout (identity/layout.h) describes it:
//   slot    one contiguous region with every recurrent layer's conv window and state, zero-filled
//           for a new sequence; advanced in place. A narrow state (state_form.h) needs
//           slot_tail_bytes() behind it, of any content at first; on the grid it is of no account.
//   blocks  per attention group, the physical base of each KV block (16 tokens, all layers of the
//           group) covering positions [0, position + tokens); those before
//           layout().FirstBlock(g, position) are out of a window's sight and may be null.
//
// Canonical numerics: logits, state and KV are a function of (model, tokens) alone. How tokens are
// split over calls, batch mates, row order and threads change no bit (docs/numerics.md).
//
// Thread rule: Model is immutable after Load; Forward may run on one thread per Workspace.
#ifndef BATON_MODEL_MODEL_H_
#define BATON_MODEL_MODEL_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "base/types.h"
#include "identity/layout.h"
#include "kernel/kernels.h"
#include "model/config.h"

namespace baton::model {

enum class LogitsMode { kNone, kLast, kAll };

// One sequence's share of a step.
struct BatchItem {
  std::span<const TokenId> tokens;  // >= 1 new tokens, each < vocab_size
  int64_t position = 0;             // tokens absorbed before this call
  // layout().slot_bytes() + slot_tail_bytes() bytes; null iff the layout has no state.
  std::byte* slot = nullptr;
  // blocks[g][b]: base of block b of group g; at least BlocksFor(position + tokens.size()) each.
  std::vector<std::span<std::byte* const>> blocks;
  LogitsMode logits_mode = LogitsMode::kLast;
  // kLast: vocab_size floats; kAll: tokens.size() * vocab_size floats; kNone: unused.
  float* logits = nullptr;
};

struct LoadOptions {
  const kernel::Kernels* kernels = nullptr;  // null: SimdKernels()
  ThreadPool* pool = nullptr;                // null: single-threaded load
  // Mixed into the fingerprint: overrides of config keys, an adapter's name and digest.
  std::string adapter;
  int64_t max_model_len = 0;  // 0: max_position_embeddings of the config
  // Of recurrent state between tokens; not f32: Mamba-2 models only.
  kernel::StateDType state_dtype = kernel::StateDType::kF32;
  // Rotates all of a head, as the recorded outputs of recurrent_gemma do. Never set by serve.
  bool rotate_all_dims = false;
};

// Activations of one Forward call, grown on demand and reused. One per calling thread.
class Workspace {
 public:
  Workspace();
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;
  struct Impl;
  Impl* impl() { return impl_.get(); }

 private:
  std::unique_ptr<Impl> impl_;
};

class Model {
 public:
  virtual ~Model() = default;

  // Loads config.json and *.safetensors (single or sharded by model.safetensors.index.json) from
  // `dir`. Errors name the file, the tensor, what was expected and found, and the remedy.
  static StatusOr<std::unique_ptr<Model>> Load(const std::string& dir, const LoadOptions& options);

  virtual const ModelConfig& config() const = 0;
  virtual const Layout& layout() const = 0;
  // SHA-256 over every weight tensor's bytes as loaded, the effective config and the adapter.
  virtual const Sha256& fingerprint() const = 0;
  virtual int64_t vocab_size() const = 0;
  virtual int64_t max_model_len() const = 0;
  virtual size_t weight_bytes() const = 0;
  virtual kernel::StateDType state_dtype() const { return kernel::StateDType::kF32; }
  // Behind each slot that a step advances; never part of a bundle.
  virtual uint64_t slot_tail_bytes() const { return 0; }

  // Advances every item by its tokens: writes KV and state in place, then logits as asked.
  // Fails with kInvalidArgument (and touches nothing) on a token out of range, a missing block or
  // a position past max_model_len. `pool` may be null.
  virtual Status Forward(std::span<const BatchItem> batch,
                         Workspace* workspace,
                         ThreadPool* pool) const = 0;
};

}  // namespace baton::model

#endif  // BATON_MODEL_MODEL_H_
