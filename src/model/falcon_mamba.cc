// Falcon-Mamba: Mamba-1 that also normalises dt, B and C, without weights.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/mamba_parts.h"

namespace baton::model {

void ParseFalconMamba(ConfigReader* reader, ModelConfig* config) {
  ParseMamba1Model(reader, config);
  config->mamba1->part_norm = PartNorm::kPlain;
  config->mamba1->part_eps = static_cast<float>(reader->Positive({"mixer_rms_eps"}, 1e-6));
}

void BindFalconMamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindMambaLayers(config, binder, BindMamba1, weights);
}

}  // namespace baton::model
