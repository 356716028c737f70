// What a model directory says about generation: where to stop and which sampling values to use
// when a request names none. Thread rule: plain values.
#ifndef BATON_TEXT_GENERATION_CONFIG_H_
#define BATON_TEXT_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "text/tokenizer.h"

namespace baton {

struct GenerationDefaults {
  // Union over generation_config.json, config.json (and its text_config) and the eos_token of
  // tokenizer_config.json, ascending: published files disagree, and missing one means endless text.
  std::vector<TokenId> eos_token_ids;
  std::optional<TokenId> bos_token_id;
  std::optional<TokenId> pad_token_id;
  // Request defaults, from generation_config.json only: the keys that vLLM takes. Absent means the
  // server's own default. Other keys (do_sample, no_repeat_ngram_size, ...) change nothing.
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;
  std::optional<int64_t> max_new_tokens;
};

// Reads DIR/generation_config.json, DIR/config.json and DIR/tokenizer_config.json, each optional.
// `tokenizer` resolves the eos token's text; null skips that source. A value of the wrong type or
// out of range is InvalidArgument naming file and key; JSON null counts as absent.
StatusOr<GenerationDefaults> ReadGenerationDefaults(const std::string& dir,
                                                    const Tokenizer* tokenizer);

}  // namespace baton

#endif  // BATON_TEXT_GENERATION_CONFIG_H_
