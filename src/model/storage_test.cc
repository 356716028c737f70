// Every recorded set, on its own tokens: within tolerance of the record, and the same bits at once,
// in pieces and token by token; its weights stored in F32 and in BF16, in one file and in shards.
// BF16 weights are the recorded ones rounded: another model, whose distance from the record is
// printed, and which is one and the same however its values are stored.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/file.h"
#include "gtest/gtest.h"
#include "kernel/packed_matrix.h"
#include "model/golden.h"
#include "model/model.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"
#include "model/test_outcome.h"
#include "model/test_types.h"

namespace baton::model {
namespace {

constexpr char kRoot[] = BATON_SOURCE_DIR "/test/golden/";

// The same values in half the bytes; F32 tensors only, which all of the goldens' are.
Tensors Narrowed(const Tensors& tensors) {
  Tensors out;
  for (const auto& [name, t] : tensors) {
    EXPECT_EQ(t.dtype, TensorDType::kF32) << name;
    Stored& to = out[name];
    to = {TensorDType::kBF16, t.shape, std::vector<std::byte>(t.bytes.size() / 2)};
    for (size_t i = 0; i < t.bytes.size() / 4; ++i) {
      float v;
      std::memcpy(&v, t.bytes.data() + i * 4, 4);
      const uint16_t half = kernel::ToBF16(v);
      std::memcpy(to.bytes.data() + i * 2, &half, 2);
    }
  }
  return out;
}

Tensors Widened(const Tensors& tensors) {
  Tensors out;
  for (const auto& [name, t] : tensors) {
    Stored& to = out[name];
    to = {TensorDType::kF32, t.shape, std::vector<std::byte>(t.bytes.size() * 2)};
    for (size_t i = 0; i < t.bytes.size() / 2; ++i)  // a BF16 is the upper half of an F32
      std::memcpy(to.bytes.data() + i * 4 + 2, t.bytes.data() + i * 2, 2);
  }
  return out;
}

void WriteSharded(const TempDir& dir, const Tensors& tensors, size_t shards) {
  std::vector<Tensors> files(shards);
  Json map = Json::object();
  size_t i = 0;
  for (const auto& [name, t] : tensors) {
    const size_t shard = i++ % shards;
    files[shard][name] = t;
    map[name] = absl::StrFormat("model-%05d-of-%05d.safetensors", shard + 1, shards);
  }
  for (size_t s = 0; s < shards; ++s)
    WriteAll(dir.file(absl::StrFormat("model-%05d-of-%05d.safetensors", s + 1, shards)), files[s]);
  dir.Write("model.safetensors.index.json", Json{{"weight_map", map}}.dump());
}

// A reference's logits at `i`, of F32 or F64.
double ValueAt(const Stored& t, size_t i) {
  if (t.dtype == TensorDType::kF64) {
    double v;
    std::memcpy(&v, t.bytes.data() + i * sizeof v, sizeof v);
    return v;
  }
  float v;
  std::memcpy(&v, t.bytes.data() + i * sizeof v, sizeof v);
  return v;
}

// What was recorded of a set, as far as golden.h does not do it: its tokens, the ends of the pieces
// in which RunGolden runs them, and the distance of logits from those it judges by.
class Record {
 public:
  explicit Record(const std::string& dir)
      : tensors_(ReadAll(dir + "/golden.safetensors")), tokens_(RecordedTokens(tensors_)) {
    std::set<int64_t> ends = {static_cast<int64_t>(tokens_.size())};
    for (const auto& [name, t] : tensors_)
      if (name.starts_with("state")) ends.insert(std::stoll(name.substr(5)));
    for (int64_t from = 0; const int64_t end : ends)
      pieces_.push_back(end - std::exchange(from, end));
    if (FileExists(dir + "/exact.safetensors")) exact_ = ReadAll(dir + "/exact.safetensors");
  }

  const std::vector<TokenId>& tokens() const { return tokens_; }
  const std::vector<int64_t>& pieces() const { return pieces_; }
  const Stored& logits() const { return (exact_.empty() ? tensors_ : exact_).at("logits"); }

 private:
  Tensors tensors_, exact_;
  std::vector<TokenId> tokens_;
  std::vector<int64_t> pieces_;
};

double Distance(const std::vector<float>& logits, const Stored& reference) {
  EXPECT_EQ(logits.size() * (reference.dtype == TensorDType::kF64 ? 8 : 4), reference.bytes.size());
  double worst = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double d = std::fabs(logits[i] - ValueAt(reference, i));
    worst = d <= worst ? worst : d;  // a NaN stays
    if (std::isnan(d)) return d;
  }
  return worst;
}

class StorageTest : public testing::TestWithParam<std::string> {
 protected:
  using Write = std::function<void(const TempDir&)>;

  std::unique_ptr<Model> Load(const Write& write) {
    TempDir dir;  // the weights are packed into memory of their own
    std::filesystem::copy_file(dir_ + "/config.json", dir.file("config.json"));
    write(dir);
    LoadOptions options;
    // As RunGolden does.
    options.rotate_all_dims = GetParam().ends_with("/recurrent_gemma");
    auto model = Model::Load(dir.path(), options);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? *std::move(model) : nullptr;
  }
  std::unique_ptr<Model> LoadSingle(const Tensors& t) {
    return Load([&](const TempDir& to) { WriteAll(to.file("model.safetensors"), t); });
  }
  std::unique_ptr<Model> LoadSharded(const Tensors& t, size_t shards) {
    return Load([&](const TempDir& to) { WriteSharded(to, t, shards); });
  }

  // At once, and that other ways give the same: logits of every token, state and KV.
  Outcome RunEveryWay(const Model& model) {
    Outcome whole = RunInPieces(model, record_.tokens());
    const auto expect_same = [&](const std::vector<int64_t>& cuts, const char* what) {
      EXPECT_EQ(Difference(whole, RunInPieces(model, record_.tokens(), cuts)), "") << what;
    };
    expect_same({5, 16, 1, 37, 3, 64, 8}, "pieces of unequal sizes");
    expect_same({1}, "token by token");
    return whole;
  }

  void ExpectGolden(const Model& model, const char* what) {
    const auto report = RunGolden(dir_, model, nullptr);
    ASSERT_TRUE(report.ok()) << report.status();
    EXPECT_TRUE(report->Passed({})) << what << ": " << FormatGolden(*report, {});
    EXPECT_EQ(report->tokens, static_cast<int64_t>(record_.tokens().size()));
  }

  const std::string dir_ = kRoot + GetParam();
  const Record record_{dir_};
  const Tensors weights_ = ReadAll(dir_ + "/model.safetensors");
};

TEST_P(StorageTest, F32WithinToleranceAndTheSameBitsInEveryPieces) {
  const auto single = LoadSingle(weights_), sharded = LoadSharded(weights_, 3);
  ASSERT_TRUE(single != nullptr && sharded != nullptr);
  ExpectGolden(*single, "single");
  ExpectGolden(*sharded, "sharded");
  const Outcome whole = RunEveryWay(*single);
  // RunGolden's verdict holds for the run at once: its own pieces give the same bits.
  EXPECT_EQ(Difference(whole, RunInPieces(*single, record_.tokens(), record_.pieces())), "");
  // And of its logits without that step. No record's own error of logits is above the tolerance.
  EXPECT_LE(Distance(whole.logits, record_.logits()), GoldenTolerance().logits);

  EXPECT_EQ(Difference(whole, RunEveryWay(*sharded)), "");
  EXPECT_EQ(single->fingerprint(), sharded->fingerprint());
}

TEST_P(StorageTest, BF16TheSameBitsInEveryPiecesShardsAndDType) {
  const Tensors bf16 = Narrowed(weights_), widened = Widened(bf16);
  const auto single = LoadSingle(bf16), sharded = LoadSharded(bf16, 5);
  ASSERT_TRUE(single != nullptr && sharded != nullptr);
  const Outcome whole = RunEveryWay(*single);
  EXPECT_EQ(Difference(whole, RunEveryWay(*sharded)), "");
  EXPECT_EQ(single->fingerprint(), sharded->fingerprint());

  // The same values in F32 give the same bits, though as weights they are others.
  const auto wide = LoadSingle(widened);
  ASSERT_NE(wide, nullptr);
  EXPECT_EQ(Difference(whole, RunInPieces(*wide, record_.tokens())), "");
  EXPECT_NE(single->fingerprint(), wide->fingerprint());

  // The comparison can fail: the recorded weights, not rounded, give other bits.
  const auto exact = LoadSingle(weights_);
  ASSERT_NE(exact, nullptr);
  EXPECT_NE(Difference(whole, RunInPieces(*exact, record_.tokens())), "");

  // How far is no promise (a rounded router may choose another expert), but not without bounds.
  const double distance = Distance(whole.logits, record_.logits());
  EXPECT_TRUE(std::isfinite(distance)) << distance;
  EXPECT_GT(distance, 0);
  RecordProperty("bf16_logits_distance", absl::StrFormat("%.4f", distance));
  std::printf("%s: weights rounded to BF16 move a logit by at most %.4f from the record\n",
              GetParam().c_str(), distance);
}

INSTANTIATE_TEST_SUITE_P(Sets, StorageTest, testing::ValuesIn(GoldenSets()), [](const auto& info) {
  return TestName(info.param);
});

}  // namespace
}  // namespace baton::model
