// Sequences of every type that give way to each other: parked in host memory or computed again from
// their tokens, each goes on with the same bits, and counters show that it really was preempted.
#include <string>
#include <vector>

#include "engine/worker.h"
#include "gtest/gtest.h"
#include "model/test_types.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using engine::GenerateRequest;

enum class Memory { kFixedShares, kElastic };

class Preemption : public ::testing::TestWithParam<std::string> {
 protected:
  bool has_kv() const { return !model_->layout().groups().empty(); }
  bool windowed() const { return has_kv() && model_->layout().groups()[0].window > 0; }

  // Room for less than half of the sequences.
  DeploymentOptions Scarce(Memory memory, uint64_t park_bytes) const {
    DeploymentOptions options;
    // Without KV it is slots that are too few; with it, blocks. A window's do not grow with the
    // history: fewer of them, short steps and longer prompts make them scarce.
    options.slots = has_kv() ? 8 : kSlots;
    options.blocks = windowed() ? 9 : 14;
    if (windowed()) options.token_budget = 32;
    options.engine.prefix_caching = false;
    options.engine.park_bytes = park_bytes;
    if (memory == Memory::kFixedShares) return options;
    options.engine.step_compact_bytes = 1 << 20;
    const uint64_t budget = engine::NodeMemoryBytes(model_->layout(), kSlots, options.blocks,
                                                    model_->slot_tail_bytes());
    options.tweak_decode = [=](engine::WorkerOptions* o) { o->memory.budget_bytes = budget; };
    return options;
  }

  // Four at once, off the grid.
  void Run(Memory memory, uint64_t park_bytes) {
    Deployment d(model_, Scarce(memory, park_bytes));
    std::vector<GenerateRequest> requests;
    uint64_t rows = 0;
    for (size_t i = 0; i < 4; ++i) {
      requests.push_back(RandomRequest(*model_, 70 + i, windowed() ? 60 + 17 * i : 20 + i, 90));
      rows += requests.back().prompt.size() + 90 - 1;
    }
    const auto sinks = d.StartTogether(requests);
    for (size_t i = 0; i < sinks.size(); ++i)
      EXPECT_EQ(AnswerOf(*sinks[i]), ColdAnswer(model_, requests[i])) << i;
    ExpectPreempted(d.decode().engine().stats(), park_bytes > 0, rows);
    // Whoever gave way before its first token has nothing to park; in elastic memory that may be
    // all that a window's few blocks lead to (how many fit depends on the build).
    if (memory == Memory::kFixedShares || !windowed())
      EXPECT_EQ(d.decode().engine().stats().parked.load() > 0, has_kv() && park_bytes > 0);
    d.ExpectNothingLeaks();
  }

  // Without KV nothing grows while a sequence runs: its slot is all it will ever hold, so whoever
  // finds no slot waits to be admitted and nobody has to give way (Core::GiveBlocks is the only
  // caller of Core::Preempt). Such a type shows here that four sequences take turns in three slots.
  void ExpectPreempted(const engine::EngineStats& stats, bool parks, uint64_t rows) const {
    EXPECT_EQ(stats.preemptions.load() > 0, has_kv());
    EXPECT_LE(stats.parked.load(), parks ? stats.preemptions.load() : 0u);
    EXPECT_EQ(stats.resumed.load(), stats.parked.load());
    EXPECT_EQ(stats.park_rejects.load(), 0u);
    EXPECT_EQ(stats.parked_bytes.load(), 0u);
    // A parked sequence computes no row again, at whatever boundary it gave way.
    EXPECT_GE(stats.computed_rows.load(), rows);
    EXPECT_EQ(stats.computed_rows.load() > rows, has_kv() && !parks);
  }

  static constexpr uint32_t kSlots = 3;
  std::shared_ptr<const model::Model> model_ = LoadModel(GetParam());
};

constexpr uint64_t kParkBytes = uint64_t{1} << 30;

TEST_P(Preemption, ParkedOnesGoOnWithTheSameBits) { Run(Memory::kFixedShares, kParkBytes); }

// One budget, in which slots, with their tails, and blocks move.
TEST_P(Preemption, ParkedOnesGoOnWithTheSameBitsInElasticMemory) {
  Run(Memory::kElastic, kParkBytes);
}

TEST_P(Preemption, OnesWithoutRoomToParkAreComputedAgainToTheSameBits) {
  Run(Memory::kFixedShares, 0);
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Preemption,
                         ::testing::ValuesIn(EveryType({
                             // Narrow state: off the grid a tail lies behind the slot.
                             "short/bamba@bf16",
                             "short/bamba@f16",
                             "short/bamba@fp8_e4m3",
                             "short/qwen3_5@bf16",
                             "short/olmo_hybrid@fp8_e4m3",
                             "short/minimax@fp8_e4m3",
                         })),
                         [](const auto& info) {
                           return model::TestName(info.param.substr(info.param.find('/') + 1));
                         });

}  // namespace
}  // namespace baton::testing
