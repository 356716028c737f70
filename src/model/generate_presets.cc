#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "model/generate.h"

namespace baton::model {
namespace {

struct Preset {
  const char* name;
  const char* config;
};

// Multipliers keep the residual stream and the logits of random weights at the scale of trained
// ones.
constexpr Preset kPresets[] = {
    {"granite-100m", R"({
      "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
      "hidden_size": 768, "num_hidden_layers": 12,
      "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention",
                      "mamba", "mamba", "mamba", "mamba", "mamba", "attention"],
      "num_attention_heads": 12, "num_key_value_heads": 4, "attention_multiplier": 0.125,
      "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
      "mamba_d_conv": 4, "mamba_expand": 2, "num_local_experts": 0,
      "shared_intermediate_size": 2048, "intermediate_size": 2048, "vocab_size": 8192,
      "max_position_embeddings": 32768, "position_embedding_type": "nope",
      "embedding_multiplier": 12, "residual_multiplier": 0.3, "logits_scaling": 1,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
    {"granite-1b", R"({
      "model_type": "granitemoehybrid", "architectures": ["GraniteMoeHybridForCausalLM"],
      "hidden_size": 1536, "num_hidden_layers": 40,
      "layer_types": ["mamba", "mamba", "mamba", "mamba", "mamba", "attention", "mamba", "mamba",
                      "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "attention",
                      "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
                      "mamba", "attention", "mamba", "mamba", "mamba", "mamba", "mamba", "mamba",
                      "mamba", "mamba", "mamba", "attention", "mamba", "mamba", "mamba", "mamba"],
      "num_attention_heads": 12, "num_key_value_heads": 4, "attention_multiplier": 0.0078125,
      "mamba_n_heads": 48, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1,
      "mamba_d_conv": 4, "mamba_expand": 2, "num_local_experts": 0,
      "shared_intermediate_size": 4096, "intermediate_size": 4096, "vocab_size": 100352,
      "max_position_embeddings": 131072, "position_embedding_type": "nope",
      "embedding_multiplier": 12, "residual_multiplier": 0.22, "logits_scaling": 6,
      "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
    {"qwen3_5-100m", R"({
      "model_type": "qwen3_5_text", "architectures": ["Qwen3_5ForCausalLM"],
      "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 12,
      "full_attention_interval": 6, "num_attention_heads": 12, "num_key_value_heads": 4,
      "head_dim": 64, "linear_num_key_heads": 6, "linear_num_value_heads": 12,
      "linear_key_head_dim": 128, "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4,
      "partial_rotary_factor": 0.25, "rope_theta": 10000000, "vocab_size": 8192,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "tie_word_embeddings": true})"},
    {"jamba-100m", R"({
      "model_type": "jamba", "hidden_size": 768, "intermediate_size": 2048,
      "num_hidden_layers": 12, "attn_layer_period": 6, "attn_layer_offset": 5,
      "num_experts": 1, "num_experts_per_tok": 1, "num_attention_heads": 12,
      "num_key_value_heads": 4, "mamba_d_state": 16, "mamba_expand": 2, "vocab_size": 8192,
      "max_position_embeddings": 32768, "rms_norm_eps": 1e-5, "tie_word_embeddings": true})"},
    {"lfm2-100m", R"({
      "model_type": "lfm2", "hidden_size": 768, "intermediate_size": 2304,
      "block_auto_adjust_ff_dim": false, "num_hidden_layers": 12,
      "layer_types": ["conv", "conv", "conv", "conv", "conv", "full_attention",
                      "conv", "conv", "conv", "conv", "conv", "full_attention"],
      "num_attention_heads": 12, "num_key_value_heads": 4, "conv_L_cache": 3, "norm_eps": 1e-5,
      "vocab_size": 8192, "max_position_embeddings": 32768, "rope_theta": 1e6})"},
    {"minimax-100m", R"({
      "model_type": "minimax", "hidden_size": 768, "intermediate_size": 2048,
      "num_hidden_layers": 12,
      "layer_types": ["linear_attention", "linear_attention", "linear_attention",
                      "linear_attention", "linear_attention", "full_attention",
                      "linear_attention", "linear_attention", "linear_attention",
                      "linear_attention", "linear_attention", "full_attention"],
      "num_attention_heads": 12, "num_key_value_heads": 4, "head_dim": 64,
      "num_local_experts": 1, "num_experts_per_tok": 1, "vocab_size": 8192,
      "max_position_embeddings": 32768, "linear_attn_alpha_factor": 1.0,
      "full_attn_alpha_factor": 1.0, "mlp_alpha_factor": 1.0, "rms_norm_eps": 1e-5,
      "tie_word_embeddings": true})"},
    {"recurrent_gemma-100m", R"({
      "model_type": "recurrent_gemma", "hidden_size": 768, "intermediate_size": 4096,
      "num_hidden_layers": 12, "block_types": ["recurrent", "recurrent", "attention"],
      "num_attention_heads": 12, "num_key_value_heads": 1, "lru_width": 1536,
      "attention_window_size": 2048, "logits_soft_cap": 30.0, "rope_theta": 10000.0,
      "vocab_size": 8192, "max_position_embeddings": 32768, "tie_word_embeddings": true})"},
    {"tiny-bamba", R"({
      "model_type": "bamba", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 4, "attn_layer_indices": [1], "num_attention_heads": 4,
      "num_key_value_heads": 2, "mamba_n_heads": 8, "mamba_d_head": 32, "mamba_n_groups": 2,
      "mamba_d_state": 16, "vocab_size": 300, "max_position_embeddings": 4096})"},
    {"tiny-falcon_h1", R"({
      "model_type": "falcon_h1", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48,
      "mamba_d_ssm": 192, "mamba_n_heads": 6, "mamba_d_head": 32, "mamba_n_groups": 2,
      "mamba_d_state": 16, "mamba_rms_norm": true, "mamba_norm_before_gate": true,
      "rope_theta": 1e11, "embedding_multiplier": 5.7, "lm_head_multiplier": 0.3,
      "mlp_multipliers": [0.88, 0.6], "key_multiplier": 0.35, "attention_in_multiplier": 1.1,
      "attention_out_multiplier": 0.9, "ssm_multipliers": [0.35, 0.5, 0.7, 0.5, 0.35],
      "ssm_in_multiplier": 1.25, "ssm_out_multiplier": 0.6, "vocab_size": 300,
      "max_position_embeddings": 4096})"},
    {"tiny-falcon_mamba", R"({
      "model_type": "falcon_mamba", "hidden_size": 128, "state_size": 16, "num_hidden_layers": 3,
      "time_step_rank": 8, "vocab_size": 300, "tie_word_embeddings": false})"},
    {"tiny-granitemoehybrid", R"({
      "model_type": "granitemoehybrid", "hidden_size": 128, "intermediate_size": 72,
      "shared_intermediate_size": 136, "num_hidden_layers": 4,
      "layer_types": ["mamba", "attention", "mamba", "attention"], "num_attention_heads": 4,
      "num_key_value_heads": 1, "attention_multiplier": 0.2, "mamba_n_heads": 4,
      "mamba_d_head": 64, "mamba_d_state": 32, "num_local_experts": 6, "num_experts_per_tok": 3,
      "embedding_multiplier": 12, "residual_multiplier": 0.4, "logits_scaling": 2,
      "vocab_size": 300, "max_position_embeddings": 4096, "position_embedding_type": "nope",
      "tie_word_embeddings": true})"},
    {"tiny-granite-dense", R"({
      "model_type": "granitemoehybrid", "hidden_size": 128, "shared_intermediate_size": 256,
      "num_hidden_layers": 4, "layer_types": ["mamba", "attention", "mamba", "mamba"],
      "num_attention_heads": 4, "num_key_value_heads": 2, "attention_multiplier": 0.2,
      "mamba_n_heads": 4, "mamba_d_head": 64, "mamba_d_state": 32, "num_local_experts": 0,
      "embedding_multiplier": 12, "residual_multiplier": 0.4, "vocab_size": 512,
      "max_position_embeddings": 32768, "position_embedding_type": "nope",
      "tie_word_embeddings": true})"},
    {"tiny-jamba", R"({
      "model_type": "jamba", "hidden_size": 128, "intermediate_size": 144,
      "num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2,
      "expert_layer_period": 2, "expert_layer_offset": 1, "num_experts": 4,
      "num_experts_per_tok": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
      "mamba_d_state": 16, "mamba_dt_rank": 8, "vocab_size": 300,
      "max_position_embeddings": 4096})"},
    {"tiny-lfm2", R"({
      "model_type": "lfm2", "hidden_size": 128, "intermediate_size": 300,
      "block_multiple_of": 16, "num_hidden_layers": 4,
      "layer_types": ["conv", "full_attention", "conv", "full_attention"],
      "num_attention_heads": 4, "num_key_value_heads": 2, "conv_L_cache": 3, "norm_eps": 1e-5,
      "vocab_size": 300, "max_position_embeddings": 4096, "rope_theta": 1e6})"},
    {"tiny-lfm2_moe", R"({
      "model_type": "lfm2_moe", "hidden_size": 128, "intermediate_size": 200,
      "moe_intermediate_size": 72, "num_dense_layers": 1, "num_experts": 6,
      "num_experts_per_tok": 2, "num_hidden_layers": 4,
      "layer_types": ["conv", "full_attention", "conv", "full_attention"],
      "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
      "max_position_embeddings": 4096, "rope_theta": 1e6})"},
    {"tiny-minimax", R"({
      "model_type": "minimax", "hidden_size": 128, "intermediate_size": 72,
      "num_local_experts": 4, "num_experts_per_tok": 2, "num_hidden_layers": 4,
      "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 40,
      "linear_attn_alpha_factor": 2.0, "full_attn_alpha_factor": 2.0, "mlp_alpha_factor": 2.0,
      "vocab_size": 300, "max_position_embeddings": 4096})"},
    {"tiny-mamba", R"({
      "model_type": "mamba", "hidden_size": 128, "state_size": 16, "num_hidden_layers": 3,
      "time_step_rank": "auto", "vocab_size": 300})"},
    {"tiny-mamba2", R"({
      "model_type": "mamba2", "hidden_size": 128, "state_size": 32, "num_hidden_layers": 3,
      "num_heads": 8, "head_dim": 32, "n_groups": 2, "vocab_size": 300})"},
    {"tiny-nemotron_h", R"({
      "model_type": "nemotron_h", "hidden_size": 128, "hybrid_override_pattern": "M-M*EMEM*-",
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 48,
      "intermediate_size": 208, "ssm_state_size": 32, "mamba_num_heads": 8, "mamba_head_dim": 24,
      "n_groups": 4, "n_routed_experts": 8, "num_experts_per_tok": 3, "n_group": 4,
      "topk_group": 2, "moe_intermediate_size": 72, "moe_latent_size": 64,
      "moe_shared_expert_intermediate_size": 104, "routed_scaling_factor": 2.5,
      "time_step_limit": [0.0, Infinity], "vocab_size": 300,
      "max_position_embeddings": 4096})"},
    {"tiny-zamba", R"({
      "model_type": "zamba", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 5, "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid", "mamba"],
      "num_attention_heads": 4, "n_mamba_heads": 2, "mamba_d_state": 16, "mamba_dt_rank": 8,
      "vocab_size": 300, "max_position_embeddings": 4096})"},
    {"tiny-zamba2", R"({
      "model_type": "zamba2", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 6,
      "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid", "mamba"],
      "num_mem_blocks": 2, "use_shared_attention_adapter": true, "adapter_rank": 8,
      "use_mem_rope": true, "num_attention_heads": 4, "n_mamba_heads": 8, "mamba_d_state": 16,
      "mamba_ngroups": 2, "vocab_size": 300, "max_position_embeddings": 4096})"},
    {"tiny-recurrent_gemma", R"({
      "model_type": "recurrent_gemma", "hidden_size": 128, "intermediate_size": 416,
      "num_hidden_layers": 5, "block_types": ["recurrent", "attention"],
      "num_attention_heads": 4, "num_key_value_heads": 1, "lru_width": 160,
      "attention_window_size": 40, "vocab_size": 300, "max_position_embeddings": 4096})"},
    {"tiny-llama", R"({
      "model_type": "llama", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
      "vocab_size": 300, "max_position_embeddings": 4096, "attention_bias": true,
      "mlp_bias": true, "rope_parameters": {"rope_theta": 10000.0, "rope_type": "llama3",
      "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
      "original_max_position_embeddings": 256}})"},
    {"tiny-olmo_hybrid", R"({
      "model_type": "olmo_hybrid", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 4, "layer_types": ["linear_attention", "full_attention",
      "linear_attention", "full_attention"], "num_attention_heads": 4, "linear_num_key_heads": 4,
      "linear_num_value_heads": 4, "linear_key_head_dim": 24, "linear_value_head_dim": 48,
      "vocab_size": 300, "max_position_embeddings": 4096,
      "rope_parameters": {"rope_theta": null, "rope_type": "default"}})"},
    {"tiny-qwen3_5", R"({
      "model_type": "qwen3_5_text", "hidden_size": 128, "intermediate_size": 208,
      "num_hidden_layers": 4, "full_attention_interval": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 48, "linear_num_key_heads": 2,
      "linear_num_value_heads": 6, "linear_key_head_dim": 32, "linear_value_head_dim": 40,
      "vocab_size": 300, "max_position_embeddings": 4096, "tie_word_embeddings": true,
      "rope_parameters": {"rope_type": "default", "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "mrope_interleaved": true, "mrope_section": [2, 2, 2]}})"},
    {"tiny-qwen3_5_moe", R"({
      "model_type": "qwen3_5_moe", "vision_config": {"depth": 1}, "tie_word_embeddings": false,
      "text_config": {"model_type": "qwen3_5_moe_text", "hidden_size": 128,
      "num_hidden_layers": 4, "layer_types": ["linear_attention", "linear_attention",
      "full_attention", "linear_attention"], "num_attention_heads": 4, "num_key_value_heads": 2,
      "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
      "linear_key_head_dim": 32, "linear_value_head_dim": 32, "num_experts": 8,
      "num_experts_per_tok": 3, "moe_intermediate_size": 48,
      "shared_expert_intermediate_size": 64, "vocab_size": 300,
      "max_position_embeddings": 4096}})"},
    {"tiny-qwen3_next", R"({
      "model_type": "qwen3_next", "hidden_size": 128, "intermediate_size": 144,
      "num_hidden_layers": 4, "full_attention_interval": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "head_dim": 32, "linear_num_key_heads": 2,
      "linear_num_value_heads": 4, "linear_key_head_dim": 32, "linear_value_head_dim": 64,
      "num_experts": 10, "num_experts_per_tok": 4, "moe_intermediate_size": 40,
      "shared_expert_intermediate_size": 56, "mlp_only_layers": [1], "rope_theta": 10000000,
      "partial_rotary_factor": 0.25, "vocab_size": 300, "max_position_embeddings": 4096})"},
};

}  // namespace

std::vector<std::string> PresetNames() {
  std::vector<std::string> names;
  for (const Preset& preset : kPresets) names.emplace_back(preset.name);
  return names;
}

StatusOr<Json> PresetConfig(const std::string& name) {
  for (const Preset& preset : kPresets)
    if (name == preset.name) return ParseJsonLenient(preset.config);
  return absl::NotFoundError(
      absl::StrCat("no preset \"", name, "\"; there are ", absl::StrJoin(PresetNames(), ", ")));
}

}  // namespace baton::model
