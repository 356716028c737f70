#include "model/architecture.h"

namespace baton::model {
namespace {

constexpr Architecture kArchitectures[] = {
    {"bamba", ParseBamba, BindBamba},
    {"granitemoehybrid", ParseGraniteMoeHybrid, BindGraniteMoeHybrid},
    {"jamba", ParseJamba, BindJamba},
    {"lfm2", ParseLfm2, BindLfm2},
    {"lfm2_moe", ParseLfm2Moe, BindLfm2},
    {"llama", ParseLlama, BindLlama},
    {"minimax", ParseMiniMax, BindMiniMax},
};

}  // namespace

std::span<const Architecture> Architectures() { return kArchitectures; }

const Architecture* FindArchitecture(std::string_view model_type) {
  for (const Architecture& a : kArchitectures)
    if (a.model_type == model_type) return &a;
  return nullptr;
}

}  // namespace baton::model
