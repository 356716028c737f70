// Knows the truth: what the state, the KV and the text of every request must be, as a pure function
// of its tokens, computed once on a model and memory of its own. The machines' model is its
// SimModel, which looks at every byte a step is about to compute from. Thread rule: fibers of one
// scheduler.
#ifndef BATON_TEST_SIM_ORACLE_H_
#define BATON_TEST_SIM_ORACLE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "model/model.h"
#include "sim/scheduler.h"
#include "support/fake_model.h"

namespace baton::sim {

// The undisturbed run of one request.
struct Stream {
  std::vector<TokenId> tokens;  // prompt and output
  int64_t prompt_len = 0;
  std::vector<uint64_t> state;                    // hash of the slot at each boundary
  std::vector<std::vector<std::byte>> grid_slot;  // the slot at each multiple of 16
  std::vector<std::byte> kv;                      // of all blocks, one after the other
};

class Oracle {
 public:
  explicit Oracle(std::function<void(std::string)> violation);

  // The tokens the request must be answered with; remembers its stream.
  std::vector<TokenId> Answer(const engine::GenerateRequest& request);
  const model::Model& model() const { return model_; }

  // I1, I5, I9: `item` is about to be computed.
  void CheckStep(const model::BatchItem& item) const;
  // The bytes a part of the bundle of `tokens` must hold; empty if no request has this prefix.
  ByteSpan Part(std::span<const TokenId> tokens, bool is_state, size_t part, uint64_t block) const;

 private:
  const testing::FakeModel model_;
  std::function<void(std::string)> violation_;
  std::vector<Stream> streams_;
  std::map<std::pair<int64_t, uint64_t>, std::vector<size_t>> by_state_;  // (boundary, hash)
};

// The model the machines load: computes as the oracle's does, takes simulated time, and lets the
// oracle look first.
class SimModel final : public model::Model {
 public:
  SimModel(const Oracle* oracle, Scheduler* scheduler)
      : oracle_(oracle), scheduler_(scheduler), inner_(oracle->model()) {}
  const model::ModelConfig& config() const override { return inner_.config(); }
  const Layout& layout() const override { return inner_.layout(); }
  const Sha256& fingerprint() const override { return inner_.fingerprint(); }
  int64_t vocab_size() const override { return inner_.vocab_size(); }
  int64_t max_model_len() const override { return inner_.max_model_len(); }
  size_t weight_bytes() const override { return 0; }
  Status Forward(std::span<const model::BatchItem> batch,
                 model::Workspace* workspace,
                 ThreadPool* pool) const override;

 private:
  const Oracle* const oracle_;
  Scheduler* const scheduler_;
  const model::Model& inner_;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_ORACLE_H_
