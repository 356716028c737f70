// What a model costs per sequence, from its config alone: the layout, the bytes of recurrent state,
// the KV bytes per token, and how many sequences fit a given memory, beside the same model with
// attention in every layer. Thread rule: free functions.
#ifndef BATON_MODEL_INSPECT_H_
#define BATON_MODEL_INSPECT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "identity/layout.h"
#include "kernel/state_dtype.h"
#include "model/config.h"

namespace baton::model {

struct InspectOptions {
  uint64_t memory_bytes = uint64_t{8} << 30;  // for sequences, weights not counted
  kernel::StateDType state_dtype = kernel::StateDType::kF32;
  std::vector<int64_t> lengths = {1024, 4096, 16384, 65536, 131072};
};

// Sequences of one length.
struct CapacityRow {
  int64_t tokens = 0;
  uint64_t bytes = 0;            // of one sequence: slot, its tail and blocks
  uint64_t sequences = 0;        // that fit memory_bytes
  uint64_t attention_bytes = 0;  // the same with attention in every layer
  uint64_t attention_sequences = 0;
  // Live sequences that fit if each keeps one checkpoint of its own beside (a second slot; the
  // blocks are shared).
  uint64_t with_checkpoint = 0;
};

// The model's shape as its publishers count it: conv windows and KV in bf16, recurrent state in
// f32, by the components of the layout. What Baton keeps is wider; the layout says so.
struct PublishedShape {
  int64_t recurrent_layers = 0;
  int64_t attention_layers = 0;
  uint64_t conv_bytes = 0;
  uint64_t recurrent_bytes = 0;
  uint64_t kv_bytes_per_token = 0;

  uint64_t state_bytes() const { return conv_bytes + recurrent_bytes; }
};
PublishedShape PublishedShapeOf(const Layout& layout);

struct InspectReport {
  ModelConfig config;
  Layout layout;
  PublishedShape published;
  bool vocabulary_known =
      true;  // false: a bare config without vocab_size; parameters lack its rows
  uint64_t memory_bytes = 0;
  kernel::StateDType state_dtype = kernel::StateDType::kF32;
  uint64_t tail_bytes = 0;                    // behind each slot; 0 for f32
  uint64_t f32_slot_bytes = 0;                // what the slot would be in f32
  uint64_t parameters = 0;                    // by the shapes the config asks for
  uint64_t attention_kv_bytes_per_token = 0;  // with attention in every layer; 0 if it has none
  std::vector<CapacityRow> capacity;
  // Shorter than this, the same model with attention in every layer would need less memory per
  // sequence, and so hold more of them. 0: never (no state, or no attention to compare with).
  int64_t break_even_tokens = 0;
};

// `path`: a model directory or a bare config.json, which may lack what decides no shape
// (vocab_size). No weights are needed.
StatusOr<InspectReport> InspectModel(const std::string& path, const InspectOptions& options);

std::string FormatInspect(const InspectReport& report);

}  // namespace baton::model

#endif  // BATON_MODEL_INSPECT_H_
