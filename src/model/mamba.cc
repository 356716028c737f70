// Mamba: a pure state-space model of Mamba-1.
#include "model/architecture.h"
#include "model/bind_parts.h"
#include "model/mamba_parts.h"

namespace baton::model {

void ParseMamba(ConfigReader* reader, ModelConfig* config) { ParseMamba1Model(reader, config); }

void BindMamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights) {
  BindMambaLayers(config, binder, BindMamba1, weights);
}

}  // namespace baton::model
