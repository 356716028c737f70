// Mamba-2 as a whole model (Codestral), named apart from the mixer in mamba2.cc.
#include "absl/strings/str_cat.h"
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/config_parts.h"
#include "model/mamba_parts.h"

namespace baton::model {

void ParseMamba2Model(ConfigReader* reader, ModelConfig* config) {
  ParseMambaLayers(reader, Mixer::kMamba2, 64, config);
  // "norm_before_gate" is true in published files whose models were trained with the gate first;
  // no implementation reads it.
  if (!reader->Bool({"rms_norm"}, true))
    reader->Fail("\"rms_norm\" is false; only the gated norm is supported");
  Mamba2Config m;
  m.heads = reader->Int({"num_heads"}, 128, kHeadsRange);
  m.head_dim = reader->Int({"head_dim"}, 64, kWidthRange);
  m.state = reader->Int({"state_size"}, 128, kStateRange);
  m.groups = reader->Int({"n_groups"}, 8, kHeadsRange);
  // The published library normalises over the whole width; the models were trained per group.
  m.norm_groups = m.groups;
  m.conv_width = reader->Int({"conv_kernel"}, 4, kConvRange);
  m.conv_bias = reader->Bool({"use_conv_bias"}, true);
  m.proj_bias = reader->Bool({"use_bias"}, false);
  const int64_t inner = config->hidden_size * reader->Int({"expand"}, 2, Range{1, 64});
  if (m.inner() != inner) {
    reader->Fail(absl::StrCat("num_heads * head_dim is ", m.inner(),
                              ", but expand * hidden_size is ", inner));
  }
  CheckMamba2(reader, m);
  ParseStepLimit(reader, &m);
  config->mamba2 = m;
}

void BindMamba2Model(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindMambaLayers(config, binder, BindMamba2, weights);
}

}  // namespace baton::model
