// The table of model types. An architecture is three facts: how its config.json is read, which
// tensors it binds to which weights, and its name; everything else is shared. To add one, write
// one file beside llama.cc and one line in architecture.cc. Thread rule: immutable tables.
#ifndef BATON_MODEL_ARCHITECTURE_H_
#define BATON_MODEL_ARCHITECTURE_H_

#include <span>
#include <string_view>

#include "model/config.h"
#include "model/config_reader.h"

namespace baton::model {

struct DecoderWeights;
class WeightBinder;

struct Architecture {
  const char* model_type;
  // Fills everything but model_type, stated_dtype, vocab_size, hidden_size, tie_word_embeddings and
  // eos_token_ids, which are read alike for all types. Problems go to the reader.
  void (*parse)(ConfigReader* reader, ModelConfig* config);
  // Binds every tensor to its place in `weights`.
  void (*bind)(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
  // Key of the object that, where it is there, holds the language model's keys beside those of a
  // vision model; null: none.
  const char* text_part = nullptr;
};

std::span<const Architecture> Architectures();
// Null if the type is not supported.
const Architecture* FindArchitecture(std::string_view model_type);

// One per file.
void ParseBamba(ConfigReader* reader, ModelConfig* config);
void BindBamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseFalconH1(ConfigReader* reader, ModelConfig* config);
void BindFalconH1(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseFalconMamba(ConfigReader* reader, ModelConfig* config);
void BindFalconMamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseGraniteMoeHybrid(ConfigReader* reader, ModelConfig* config);
void BindGraniteMoeHybrid(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseJamba(ConfigReader* reader, ModelConfig* config);
void BindJamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseLfm2(ConfigReader* reader, ModelConfig* config);
void BindLfm2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseLfm2Moe(ConfigReader* reader, ModelConfig* config);
void BindLfm2Moe(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseMiniMax(ConfigReader* reader, ModelConfig* config);
void BindMiniMax(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseLlama(ConfigReader* reader, ModelConfig* config);
void BindLlama(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseMamba(ConfigReader* reader, ModelConfig* config);
void BindMamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseMamba2Model(ConfigReader* reader, ModelConfig* config);
void BindMamba2Model(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseNemotronH(ConfigReader* reader, ModelConfig* config);
void BindNemotronH(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseZamba(ConfigReader* reader, ModelConfig* config);
void BindZamba(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseZamba2(ConfigReader* reader, ModelConfig* config);
void BindZamba2(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseOlmoHybrid(ConfigReader* reader, ModelConfig* config);
void BindOlmoHybrid(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseQwen35(ConfigReader* reader, ModelConfig* config);
void BindQwen35(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseQwen35Moe(ConfigReader* reader, ModelConfig* config);
void BindQwen35Moe(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseQwen3Next(ConfigReader* reader, ModelConfig* config);
void BindQwen3Next(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);
void ParseRecurrentGemma(ConfigReader* reader, ModelConfig* config);
void BindRecurrentGemma(const ModelConfig& config, WeightBinder* binder, DecoderWeights* weights);

}  // namespace baton::model

#endif  // BATON_MODEL_ARCHITECTURE_H_
