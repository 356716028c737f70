// Text to token ids and back, for Hugging Face tokenizer.json files whose model is BPE: byte-level
// vocabularies (GPT-2, Llama 3, Qwen, Granite, Falcon) and SentencePiece-like ones with byte
// fallback (Llama 2, Jamba, Zamba, Gemma). Where there is only a SentencePiece tokenizer.model,
// libsentencepiece encodes. What a file asks for is done as the Rust `tokenizers`
// library does it; anything not understood is refused at load, naming the JSON path and the type,
// because a step skipped in silence gives plausible text from a wrong prompt.
//
// Not here: other model types of tokenizer.json (WordPiece, Unigram), truncation and padding (the
// server's business), tiktoken files, training.
//
// Thread rule: a Tokenizer is immutable after load; any number of threads may use it. An
// IncrementalDecoder belongs to one request and must not outlive its Tokenizer.
#ifndef BATON_TEXT_TOKENIZER_H_
#define BATON_TEXT_TOKENIZER_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/types.h"

namespace baton {

struct EncodeOptions {
  // Run the post-processor (for example a leading BOS token). A chat template writes those tokens
  // itself: pass false for its output.
  bool add_special_tokens = true;
  // Recognise tokens marked special in the text. With false a user's "<|im_end|>" is ordinary text.
  bool parse_special = true;
};

class Tokenizer {
 public:
  // Largest file accepted (the biggest published ones are 35 MB).
  static constexpr size_t kFileBytesMax = size_t{256} << 20;

  // NotFound if the file is absent; InvalidArgument, naming the JSON path, for anything malformed
  // or unsupported.
  static StatusOr<std::unique_ptr<Tokenizer>> FromFile(const std::string& path);
  static StatusOr<std::unique_ptr<Tokenizer>> FromJson(std::string_view json);
  // DIR/tokenizer.json, else DIR/tokenizer.model with DIR/tokenizer_config.json. NotFound if there is
  // neither.
  static StatusOr<std::unique_ptr<Tokenizer>> FromModelDir(const std::string& dir);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // ResourceExhausted if a regular expression of the tokenizer reaches its limits on this text, or
  // libsentencepiece gives up; no other error: bytes that are not UTF-8 are replaced by U+FFFD (one per maximal subpart, as
  // WHATWG and Python do) before anything else, so that every pipeline sees valid text. Time is
  // O(n log n) in the length of the text, whatever the text is. If the model has neither a token
  // nor a fallback nor an unk token for a piece, the piece is dropped, as in the Rust library.
  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        const EncodeOptions& options = {}) const;

  // Always valid UTF-8: a byte sequence that is not becomes U+FFFD, one per maximal subpart. With
  // `skip_special`, tokens marked special give nothing. Ids outside the vocabulary give nothing.
  std::string Decode(std::span<const TokenId> ids, bool skip_special) const;

  // One more than the largest id that has a token. A model's embedding may have more rows.
  size_t vocab_size() const;
  // The id of a token in the file's own spelling (byte-level letters for byte-level models).
  std::optional<TokenId> TokenToId(std::string_view token) const;
  // The bytes the token stands for: byte-level letters and <0xNN> resolved, Metaspace's U+2581 a
  // space. Not necessarily UTF-8. Empty for an unknown id.
  std::string IdToToken(TokenId id) const;
  bool IsSpecial(TokenId id) const;

 private:
  friend class IncrementalDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decode() of a growing sequence. The concatenation of what Push returns plus Finish equals
// Decode of the same ids, whatever the ids are; no output ends inside a code point.
class IncrementalDecoder {
 public:
  IncrementalDecoder(const Tokenizer* tokenizer, bool skip_special);
  ~IncrementalDecoder();
  IncrementalDecoder(IncrementalDecoder&&) noexcept;
  IncrementalDecoder& operator=(IncrementalDecoder&&) noexcept;

  // The text that became certain with `id`; often empty while a code point is incomplete.
  std::string Push(TokenId id);
  // What is left (an incomplete code point becomes U+FFFD). The decoder is then as new.
  std::string Finish();

 private:
  struct State;
  const Tokenizer* tokenizer_;
  bool skip_special_;
  std::unique_ptr<State> state_;
};

}  // namespace baton

#endif  // BATON_TEXT_TOKENIZER_H_
