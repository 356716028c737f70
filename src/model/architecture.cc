#include "model/architecture.h"

namespace baton::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"bamba", ParseBamba, BindBamba},
    {"falcon_h1", ParseFalconH1, BindFalconH1},
    {"falcon_mamba", ParseFalconMamba, BindFalconMamba},
    {"granitemoehybrid", ParseGraniteMoeHybrid, BindGraniteMoeHybrid},
    {"jamba", ParseJamba, BindJamba},
    {"lfm2", ParseLfm2, BindLfm2},
    {"lfm2_moe", ParseLfm2Moe, BindLfm2Moe},
    {"llama", ParseLlama, BindLlama},
    {"mamba", ParseMamba, BindMamba},
    {"mamba2", ParseMamba2Model, BindMamba2Model},
    {"minimax", ParseMiniMax, BindMiniMax},
    {"minimax_text_01", ParseMiniMax, BindMiniMax},
    {"MiniMaxText01", ParseMiniMax, BindMiniMax},
    {"nemotron_h", ParseNemotronH, BindNemotronH},
    {"zamba", ParseZamba, BindZamba},
    {"zamba2", ParseZamba2, BindZamba2},
    {"olmo_hybrid", ParseOlmoHybrid, BindOlmoHybrid},
    {"qwen3_5", ParseQwen35, BindQwen35, "text_config"},
    {"qwen3_5_moe", ParseQwen35Moe, BindQwen35Moe, "text_config"},
    {"qwen3_5_moe_text", ParseQwen35Moe, BindQwen35Moe},
    {"qwen3_5_text", ParseQwen35, BindQwen35},
    {"qwen3_next", ParseQwen3Next, BindQwen3Next},
    {"recurrent_gemma", ParseRecurrentGemma, BindRecurrentGemma},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view model_type) {
  for (const Architecture& a : kArchitectures)
    if (a.model_type == model_type) return &a;
  return nullptr;
}

}  // namespace baton::model
