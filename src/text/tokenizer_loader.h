// What a tokenizer.json, or a tokenizer.model, says, checked and ready for use. Thread rule:
// immutable after load.
#ifndef BATON_TEXT_TOKENIZER_LOADER_H_
#define BATON_TEXT_TOKENIZER_LOADER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/status.h"
#include "text/added_tokens.h"
#include "text/bpe.h"
#include "text/decoder.h"
#include "text/normalizer.h"
#include "text/post_processor.h"
#include "text/pre_tokenizer.h"
#include "text/sentencepiece.h"

namespace baton {

// Ids at or beyond this are refused: tables are indexed by id.
inline constexpr TokenId kTokenIdMax = 1 << 22;

struct TokenizerParts {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  Bpe bpe;
  // Does what normalizer, pre-tokenizer and BPE do otherwise; null for a tokenizer.json.
  std::unique_ptr<SentencePiece> sentencepiece;
  PostProcessor post_processor;
  Decoder decoder;
  AddedTokenMatcher raw_tokens;         // looked for before normalisation
  AddedTokenMatcher normalized_tokens;  // looked for after it
  std::vector<std::string> tokens;      // by id, in the file's spelling; empty if there is none
  std::vector<bool> special;            // by id
  absl::flat_hash_map<std::string, TokenId> ids;
};

StatusOr<TokenizerParts> LoadTokenizer(std::string_view json);
// The bytes of a tokenizer.model; `config_path` is the tokenizer_config.json beside it, which may
// be absent: added tokens, add_bos_token (true), add_eos_token (false).
StatusOr<TokenizerParts> LoadSentencePiece(std::string_view bytes, const std::string& config_path);

}  // namespace baton

#endif  // BATON_TEXT_TOKENIZER_LOADER_H_
