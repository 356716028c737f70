// Three ways to hold recurrent states and KV in one amount of memory, behind one interface: what a
// sequence asks for, and whether it gets it. Sequences are named by number.
#ifndef BATON_BENCH_MEMORY_ALLOCATORS_H_
#define BATON_BENCH_MEMORY_ALLOCATORS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"

namespace baton::bench {

// Bytes as the model's publisher stores them: KV and conv windows bf16, recurrent tensors f32.
struct Geometry {
  std::string name;
  uint64_t state_bytes = 0;     // of one sequence, all recurrent layers
  uint64_t kv_token_bytes = 0;  // of one token, all attention layers
  uint32_t state_layers = 0;    // recurrent layers
  uint32_t attention_layers = 0;
  // Bytes that `tokens` of one sequence need at least.
  uint64_t Needed(int64_t tokens) const {
    return state_bytes + static_cast<uint64_t>(tokens) * kv_token_bytes;
  }
};

class Allocator {
 public:
  virtual ~Allocator() = default;
  // Memory for a state and for `tokens` tokens of KV, all or nothing. It is being received, and
  // may not move, until Landed.
  virtual bool Admit(size_t sequence, int64_t tokens) = 0;
  virtual void Landed(size_t sequence) = 0;
  // The sequence has grown to `tokens`.
  virtual bool Grow(size_t sequence, int64_t tokens) = 0;
  virtual void Finish(size_t sequence) = 0;
  virtual uint64_t bytes_moved() const { return 0; }
  // For the check of the bench: everything was given back and no rule was broken.
  virtual Status CheckEmpty() const = 0;
};

// `slot_share` of the bytes are slots, the rest blocks of 16 tokens.
std::unique_ptr<Allocator> StaticSplit(const Geometry& geometry, uint64_t bytes, double slot_share);

// One page size for both kinds, layer by layer: a page holds one layer's state, and the block of
// an attention layer is made so long (a multiple of 16 tokens) that it is at least as large;
// whichever is smaller is padded.
std::unique_ptr<Allocator> PaddedPages(const Geometry& geometry, uint64_t bytes);
// Tokens in an attention block of the above.
int64_t PaddedBlockTokens(const Geometry& geometry);

// Baton's: memory/elastic.h over a range that is mapped and never touched, every rule checked.
std::unique_ptr<Allocator> Elastic(const Geometry& geometry, uint64_t bytes);

}  // namespace baton::bench

#endif  // BATON_BENCH_MEMORY_ALLOCATORS_H_
