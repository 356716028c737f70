// What mamba, mamba2, falcon_mamba, nemotron_h, falcon_h1, zamba and zamba2 read from a
// config.json, the memory they ask for, the names they find tensors under, and what they refuse.
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/check.h"
#include "model/config.h"
#include "model/generate.h"
#include "model/mamba2.h"
#include "model/model.h"
#include "model/model_layout.h"
#include "model/sequence_memory.h"
#include "model/temp_dir.h"
#include "model/test_checkpoint.h"

namespace baton::model {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(PureStateSpace, HasNoKvAndItsLibrarysDefaults) {
  const auto mamba =
      ParseConfig(*ParseJsonLenient(R"({"model_type":"mamba","vocab_size":10,"hidden_size":768})"));
  ASSERT_TRUE(mamba.ok()) << mamba.status();
  EXPECT_TRUE(mamba->tie_word_embeddings);
  EXPECT_EQ(mamba->layers.size(), 32u);
  EXPECT_EQ(mamba->mamba1->inner, 1536);
  EXPECT_EQ(mamba->mamba1->dt_rank, 48);
  EXPECT_EQ(mamba->mamba1->part_norm, PartNorm::kNone);
  const auto falcon = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"falcon_mamba","vocab_size":10,"hidden_size":4096,
          "intermediate_size":8192,"mixer_rms_eps":2e-6,"tie_word_embeddings":false})"));
  ASSERT_TRUE(falcon.ok()) << falcon.status();
  EXPECT_FALSE(falcon->tie_word_embeddings);
  EXPECT_EQ(falcon->mamba1->part_norm, PartNorm::kPlain);
  EXPECT_EQ(falcon->mamba1->part_eps, 2e-6f);
  const auto mamba2 = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"mamba2","vocab_size":10,"hidden_size":4096,"norm_before_gate":true})"));
  ASSERT_TRUE(mamba2.ok()) << mamba2.status();
  EXPECT_FALSE(mamba2->tie_word_embeddings);
  EXPECT_EQ(mamba2->mamba2->groups, 8);
  EXPECT_EQ(mamba2->mamba2->norm_groups, 8);
  EXPECT_EQ(mamba2->mamba2->gate_norm, GateNorm::kGateFirst);
  for (const auto* c : {&*mamba, &*falcon, &*mamba2}) {
    const auto layout = BuildLayout(*c, Sha256());
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_THAT(layout->groups(), IsEmpty());
    EXPECT_EQ(layout->kv_bytes_per_token(), 0u);
    EXPECT_EQ(layout->StatePartCount(), 2 * c->layers.size());
  }
}

TEST(NemotronH, ListsAndOldNamesMeanTheSame) {
  const std::string base = CanonicalText(*With("tiny-nemotron_h", "{}"));
  for (const char* same : {
           R"({"hybrid_override_pattern":null,"layers_block_type":["mamba","mlp","mamba",
               "attention","moe","mamba","moe","mamba","attention","mlp"]})",
           R"({"head_dim":null,"attention_head_dim":48})",
           R"({"n_groups":null,"mamba_n_groups":4,"mamba_d_conv":4,"num_hidden_layers":99})",
           R"({"time_step_limit":null,"mamba_dt_limit":[0,1e308],"time_step_min":0.5})",
           R"({"rope_theta":5,"residual_in_fp32":true,"mtp_hybrid_override_pattern":"*E"})"}) {
    EXPECT_EQ(CanonicalText(*With("tiny-nemotron_h", same)), base) << same;
  }
  EXPECT_EQ(With("tiny-nemotron_h", "{}")->mamba2->dt_max, kInf);
  EXPECT_EQ(With("tiny-nemotron_h", R"({"time_step_limit":[0.1,2]})")->mamba2->dt_max, 2.0f);
  EXPECT_FALSE(With("tiny-nemotron_h", "{}")->attention->rope.has_value());
  for (const char* other :
       {R"({"n_groups":2})", R"({"routed_scaling_factor":1})", R"({"topk_group":3})",
        R"({"moe_latent_size":null})", R"({"norm_topk_prob":false})", R"({"use_bias":true})",
        R"({"layer_norm_epsilon":1e-6})"}) {
    EXPECT_NE(CanonicalText(*With("tiny-nemotron_h", other)), base) << other;
  }
}

TEST(NemotronH, RefusesByName) {
  const auto error = [](const char* changes) { return Error(With("tiny-nemotron_h", changes)); };
  EXPECT_THAT(error(R"({"hybrid_override_pattern":"M-X"})"), HasSubstr("'X' for layer 2"));
  EXPECT_THAT(error(R"({"hybrid_override_pattern":null})"), HasSubstr("layers_block_type"));
  EXPECT_THAT(error(R"({"hybrid_override_pattern":null,"layers_block_type":["mamba","gdn"]})"),
              HasSubstr("\"gdn\""));
  EXPECT_THAT(error(R"({"mlp_hidden_act":"silu"})"), HasSubstr("relu2"));
  EXPECT_THAT(error(R"({"mlp_bias":true})"), HasSubstr("mlp_bias"));
  EXPECT_THAT(error(R"({"n_groups":3})"), HasSubstr("no multiple of 3 groups"));
  EXPECT_THAT(error(R"({"n_shared_experts":2})"), HasSubstr("n_shared_experts"));
  EXPECT_THAT(error(R"({"sliding_window":4096})"), HasSubstr("sliding_window"));
  EXPECT_THAT(error(R"({"time_step_limit":[1]})"), HasSubstr("time_step_limit"));
}

TEST(FalconH1, EveryMultiplierCounts) {
  const std::string base = CanonicalText(*With("tiny-falcon_h1", "{}"));
  for (const char* key :
       {"embedding_multiplier", "lm_head_multiplier", "key_multiplier", "attention_in_multiplier",
        "attention_out_multiplier", "ssm_in_multiplier", "ssm_out_multiplier"}) {
    const auto c = With("tiny-falcon_h1", std::string("{\"") + key + "\":0.123}");
    ASSERT_TRUE(c.ok()) << c.status();
    EXPECT_NE(CanonicalText(*c), base) << key;
  }
  const auto error = [](const char* changes) { return Error(With("tiny-falcon_h1", changes)); };
  EXPECT_THAT(error(R"({"ssm_multipliers":[1,1,1]})"), HasSubstr("has 3 numbers, expected 5"));
  EXPECT_THAT(error(R"({"mlp_multipliers":[1,"a"]})"), HasSubstr("mlp_multipliers"));
  EXPECT_THAT(error(R"({"projectors_bias":true})"), HasSubstr("projectors_bias"));
  EXPECT_THAT(error(R"({"mamba_d_ssm":200})"), HasSubstr("mamba_d_ssm is 200"));
  EXPECT_EQ(With("tiny-falcon_h1", R"({"mamba_rms_norm":false})")->mamba2->gate_norm,
            GateNorm::kNone);
  EXPECT_EQ(With("tiny-falcon_h1", R"({"mamba_norm_before_gate":false})")->mamba2->gate_norm,
            GateNorm::kGateFirst);
  EXPECT_EQ(With("tiny-falcon_h1", "{}")->mamba2->gate_norm, GateNorm::kNormFirst);
  const auto layout = BuildLayout(*With("tiny-falcon_h1", "{}"), Sha256());
  EXPECT_EQ(layout->groups()[0].layers, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(layout->StatePartCount(), 6u);
}

TEST(Zamba, LayersWithASharedBlockKeepKvAndState) {
  const auto c = With("tiny-zamba2", "{}");
  ASSERT_TRUE(c.ok()) << c.status();
  EXPECT_EQ(c->attention->head_dim, 64);
  EXPECT_EQ(c->attention->input, 256);
  EXPECT_EQ(c->attention->scale, static_cast<float>(1 / std::sqrt(32.0)));
  EXPECT_EQ(c->attention->rope->dims, 64);
  const auto layout = BuildLayout(*c, Sha256());
  EXPECT_EQ(layout->groups()[0].layers, (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(layout->StatePartCount(), 12u);
  EXPECT_EQ(CanonicalText(*With("tiny-zamba2", R"({"layers_block_type":null,
                                                   "hybrid_layer_ids":[1,2,4]})")),
            CanonicalText(*c));
  // The library's default of zamba: two plain layers, a hybrid, then by period and offset.
  const auto zamba = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"zamba","vocab_size":10,"hidden_size":2048,"num_hidden_layers":16,
          "num_attention_heads":16})"));
  ASSERT_TRUE(zamba.ok()) << zamba.status();
  std::vector<size_t> hybrid;
  for (size_t i = 0; i < zamba->layers.size(); ++i)
    if (zamba->layers[i].attends()) hybrid.push_back(i);
  EXPECT_EQ(hybrid, (std::vector<size_t>{2, 7, 13}));
  const auto published = ParseConfig(*ParseJsonLenient(
      R"({"model_type":"zamba","vocab_size":32000,"hidden_size":3712,"num_attention_heads":16})"));
  ASSERT_TRUE(published.ok()) << published.status();
  EXPECT_EQ(published->attention->head_dim, 464);
  EXPECT_THAT(Error(ParseConfig(*ParseJsonLenient(
                  R"({"model_type":"zamba","vocab_size":10,"hidden_size":3712,
                      "num_attention_heads":8})"))),
              HasSubstr("1 to 512 dimensions, it would have 928"));
}

TEST(Zamba, RefusesByName) {
  const auto error = [](const char* preset, const char* c) { return Error(With(preset, c)); };
  EXPECT_THAT(error("tiny-zamba2", R"({"add_bias_linear":true})"), HasSubstr("add_bias_linear"));
  EXPECT_THAT(error("tiny-zamba2", R"({"use_long_context":true})"), HasSubstr("use_long_context"));
  EXPECT_THAT(error("tiny-zamba2", R"({"layers_block_type":null})"), HasSubstr("hybrid_layer_ids"));
  EXPECT_THAT(error("tiny-zamba2", R"({"num_mem_blocks":4})"), HasSubstr("num_mem_blocks"));
  EXPECT_THAT(error("tiny-zamba2", R"({"hidden_act":"silu"})"), HasSubstr("gelu"));
  EXPECT_THAT(error("tiny-zamba", R"({"mamba_proj_bias":true})"), HasSubstr("mamba_proj_bias"));
  EXPECT_THAT(error("tiny-zamba", R"({"n_mamba_heads":3})"), HasSubstr("n_mamba_heads"));
}

std::vector<float> LogitsOf(const std::string& dir) {
  const auto model = Model::Load(dir, {});
  EXPECT_TRUE(model.ok()) << model.status();
  if (!model.ok()) return {};
  const std::vector<TokenId> tokens = {5, 9, 200, 31, 7};
  std::vector<float> logits(tokens.size() * (*model)->vocab_size());
  SequenceMemory memory((*model)->layout(), 16);
  Workspace workspace;
  const BatchItem item = memory.Extend(tokens, LogitsMode::kAll, logits.data());
  EXPECT_TRUE((*model)->Forward(std::span(&item, 1), &workspace, nullptr).ok());
  return logits;
}

// Rewrites a checkpoint's tensors under other names, with `extra` beside them.
void Rename(const std::string& from,
            const std::string& part,
            const std::string& other,
            const std::vector<std::string>& extra,
            const TempDir& to) {
  const auto file = SafetensorsFile::Open(from + "/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<TensorSpec> specs;
  std::vector<std::span<const std::byte>> bytes;
  const auto add = [&](const std::string& name, const StoredTensor& t) {
    specs.push_back({name, t.dtype, t.shape});
    bytes.push_back(t.bytes);
  };
  for (const StoredTensor& t : (*file)->tensors()) {
    std::string name = t.name;
    if (const size_t at = name.find(part); at != std::string::npos)
      name.replace(at, part.size(), other);
    add(name, t);
  }
  for (const std::string& name : extra) add(name, (*file)->tensors()[0]);
  auto writer = SafetensorsWriter::Create(to.file("model.safetensors"), specs, {});
  ASSERT_TRUE(writer.ok()) << writer.status();
  for (const auto& b : bytes) ASSERT_TRUE(writer->Append(b).ok());
  ASSERT_TRUE(writer->Close().ok());
  to.Write("config.json", *ReadFileBytes(from + "/config.json", 1 << 20));
}

TEST(NemotronH, NewPrefixAndDraftHeads) {
  TempDir made, renamed, unknown;
  ASSERT_TRUE(GenerateCheckpoint(*PresetConfig("tiny-nemotron_h"), {}, made.path(), nullptr).ok());
  Rename(made.path(), "backbone.", "model.",
         {"mtp.layers.0.mixer.up_proj.weight", "mtp.norm.weight"}, renamed);
  EXPECT_THAT(CheckModel(renamed.path()).problems, IsEmpty());
  EXPECT_EQ(LogitsOf(renamed.path()), LogitsOf(made.path()));
  Rename(made.path(), "backbone.", "model.", {"model.layers.0.mixer.in_proj.scale"}, unknown);
  EXPECT_FALSE(Model::Load(unknown.path(), {}).ok());
}

TEST(Zamba2, SharedWeightsSavedWithEveryUseCountOnce) {
  TempDir made, copied;
  ASSERT_TRUE(GenerateCheckpoint(*PresetConfig("tiny-zamba2"), {}, made.path(), nullptr).ok());
  // Layers 1 and 4 use block 0, layer 2 block 1.
  Rename(made.path(), "-", "-", {"model.layers.4.shared_transformer.self_attn.q_proj.weight"},
         copied);
  EXPECT_THAT(CheckModel(copied.path()).problems, IsEmpty());
  EXPECT_EQ(LogitsOf(copied.path()), LogitsOf(made.path()));
  TempDir wrong;
  Rename(made.path(), "-", "-", {"model.layers.0.shared_transformer.self_attn.q_proj.weight"},
         wrong);
  EXPECT_FALSE(Model::Load(wrong.path(), {}).ok());
}

// A Mamba-2 block run alone: `gate` decides what the same y and z become.
class GatedBlock {
 public:
  explicit GatedBlock(GateNorm gate) {
    SplitMix64 rng(11);
    const auto random = [&](int64_t n, double lo, double hi) {
      std::vector<float> v(n);
      for (float& x : v) x = static_cast<float>(lo + (hi - lo) * rng.Uniform());
      return v;
    };
    config_.hidden_size = kInner;  // the output matrix is the identity
    config_.layers = {LayerConfig{.mixer = Mixer::kMamba2, .mlp = false}};
    config_.rms_norm_eps = 1e-5f;
    Mamba2Config& c = config_.mamba2.emplace();
    c.heads = 4, c.head_dim = 8, c.state = 8, c.groups = 2, c.norm_groups = 2;
    c.dt_max = kInf;
    c.gate_norm = gate;
    const auto pack = [](const std::vector<float>& v, int64_t rows, int64_t cols) {
      return *kernel::PackedMatrix::Pack(v.data(), kernel::DType::kF32, rows, cols, cols, nullptr);
    };
    weights_.in.w = pack(random(c.in_proj() * kInner, -0.3, 0.3), c.in_proj(), kInner);
    std::vector<float> identity(kInner * kInner);
    for (int64_t i = 0; i < kInner; ++i) identity[i * (kInner + 1)] = 1;
    weights_.out.w = pack(identity, kInner, kInner);
    weights_.conv_w = random(4 * c.conv_channels(), -0.5, 0.5);
    weights_.conv_b = random(c.conv_channels(), -0.1, 0.1);
    weights_.dt_bias = random(c.heads, -2, 0);
    weights_.a = random(c.heads, -2, -0.5);
    weights_.d = random(c.heads, 0.5, 1.5);
    weights_.norm = random(kInner, 0.5, 1.5);
    x_ = random(kTokens * kInner, -2, 2);
  }
  Mamba2Config& mamba2() { return *config_.mamba2; }
  const std::vector<float>& norm() const { return weights_.norm; }

  std::vector<float> Run() {
    const Layout layout = *BuildLayout(config_, Sha256());
    const auto block = MakeMamba2(MixerPlace{&config_, &layout}, weights_);
    std::vector<float> slot(layout.slot_bytes() / 4), y(x_.size());
    Workspace::Impl work;
    EXPECT_TRUE(work.arena.Reserve(block->Scratch(kTokens)).ok());
    StepItem item;
    item.tokens = kTokens;
    item.slot = reinterpret_cast<std::byte*>(slot.data());
    work.items.push_back(item);
    const Step step(kernel::SimdKernels(), nullptr, &work);
    block->Run(step, Rows{x_.data(), kInner}, Rows{y.data(), kInner}, kTokens);
    return y;
  }

  static constexpr int64_t kInner = 32, kTokens = 3;

 private:
  ModelConfig config_;
  Mamba2Weights weights_;
  std::vector<float> x_;
};

TEST(Mamba2Gate, NormAfterAndBeforeTheGate) {
  const std::vector<float> gated = GatedBlock(GateNorm::kNone).Run();  // y * silu(z)
  GatedBlock first(GateNorm::kGateFirst);
  const std::vector<float> gate_first = first.Run(),
                           norm_first = GatedBlock(GateNorm::kNormFirst).Run();
  constexpr int64_t kSize = GatedBlock::kInner / 2;  // two groups
  for (size_t g = 0; g < gated.size(); g += kSize) {
    double squares = 0;
    for (int64_t i = 0; i < kSize; ++i) squares += std::pow(gated[g + i], 2);
    const double inv = 1 / std::sqrt(squares / kSize + 1e-5);
    // silu(z) is what y * silu(z) and w * rms(y) * silu(z) have in common: their ratio is one
    // number per group, times w.
    const auto share = [&](int64_t i) {
      return norm_first[g + i] / (gated[g + i] * first.norm()[(g + i) % GatedBlock::kInner]);
    };
    for (int64_t i = 0; i < kSize; ++i) {
      const double w = first.norm()[(g + i) % GatedBlock::kInner];
      EXPECT_NEAR(gate_first[g + i], gated[g + i] * inv * w, 1e-5);
      EXPECT_NEAR(share(i) / share(0), 1, 1e-4);
    }
    EXPECT_GT(std::abs(share(0) / inv - 1), 1e-3) << "y was normalised after the gate";
  }
}

TEST(Mamba2Multipliers, ScaleTheirSegmentOnly) {
  // z enters through the gate, linearly in nothing else: compare where the effect is exact.
  GatedBlock plain(GateNorm::kNone), zero_z(GateNorm::kNone), zero_c(GateNorm::kNone);
  zero_z.mamba2().multipliers[0] = 0;
  for (const float v : zero_z.Run()) EXPECT_EQ(v, 0.0f);  // silu(0)
  // Without C (and its conv bias, which has no multiplier) only D x remains: not the same.
  zero_c.mamba2().multipliers[3] = 0;
  const std::vector<float> base = plain.Run();
  EXPECT_NE(zero_c.Run(), base);
  for (size_t i = 0; i < 5; ++i) {
    GatedBlock changed(GateNorm::kNone);
    changed.mamba2().multipliers[i] = 0.5f;
    EXPECT_NE(changed.Run(), base) << i;
  }
}

}  // namespace
}  // namespace baton::model
