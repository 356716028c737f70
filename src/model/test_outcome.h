// Everything that running a token history leaves behind, and its comparison to the bit. For tests
// only. Thread rule: free functions.
#ifndef BATON_MODEL_TEST_OUTCOME_H_
#define BATON_MODEL_TEST_OUTCOME_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "model/model.h"
#include "model/sequence_memory.h"

namespace baton::model {

// Over its valid extent.
struct Outcome {
  std::vector<float> logits;                  // of every token
  std::vector<std::vector<std::byte>> state;  // per part
  std::vector<float> keys, values;
};

inline Outcome Collect(const Model& model,
                       const SequenceMemory& memory,
                       std::vector<float> logits) {
  Outcome out;
  out.logits = std::move(logits);
  for (size_t p = 0; p < model.layout().StatePartCount(); ++p) {
    const StatePart& part = model.layout().parts()[p];
    const std::byte* bytes = memory.slot() + part.offset;
    out.state.emplace_back(bytes, bytes + part.bytes);
  }
  for (size_t i = 0; i < model.layout().groups().size(); ++i) {
    const KvGroup& g = model.layout().groups()[i];
    for (size_t l = 0; l < g.layers.size(); ++l)
      for (size_t h = 0; h < g.kv_heads; ++h)
        for (int64_t t = 0; t < memory.position(); ++t)
          for (int64_t d = 0; d < g.head_dim; ++d) {
            out.keys.push_back(memory.KeyValue(i, l, h, t, d));
            out.values.push_back(memory.ValueValue(i, l, h, t, d));
          }
  }
  return out;
}

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * 4) == 0);
}

// "" or what differs.
inline std::string Difference(const Outcome& a, const Outcome& b) {
  std::string out;
  if (!SameBits(a.logits, b.logits)) out += "logits ";
  if (a.state != b.state) out += "state ";
  if (!SameBits(a.keys, b.keys)) out += "keys ";
  if (!SameBits(a.values, b.values)) out += "values ";
  return out;
}

// One sequence alone, in pieces of `cuts` tokens, used in turn and over again; empty: at once.
inline Outcome RunInPieces(const Model& model,
                           const std::vector<TokenId>& tokens,
                           const std::vector<int64_t>& cuts = {}) {
  const int64_t n = static_cast<int64_t>(tokens.size()), vocab = model.vocab_size();
  SequenceMemory memory(model.layout(), n, 0, model.slot_tail_bytes());
  Workspace workspace;
  std::vector<float> logits(static_cast<size_t>(n * vocab));
  for (size_t call = 0; memory.position() < n; ++call) {
    const int64_t from = memory.position();
    const int64_t count = std::min(cuts.empty() ? n : cuts[call % cuts.size()], n - from);
    const BatchItem item = memory.Extend(std::span(tokens).subspan(from, count), LogitsMode::kAll,
                                         logits.data() + from * vocab);
    const Status status = model.Forward(std::span(&item, 1), &workspace, nullptr);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) break;
  }
  return Collect(model, memory, std::move(logits));
}

}  // namespace baton::model

#endif  // BATON_MODEL_TEST_OUTCOME_H_
