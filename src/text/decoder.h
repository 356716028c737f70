// The "decoder" of a tokenizer.json: token ids back to text, as a stream. A chain of decoders is
// reduced at load to (1) the bytes of each token, which may differ for the first token of a text,
// and (2) what is done to the joined text: reading it as UTF-8 and cutting a prefix. Chains that
// cannot be reduced so are refused.
//
// Where the Rust library's ByteFallback turns every byte of a run that is not UTF-8 into U+FFFD,
// this decoder replaces the invalid parts of the run only: the run's valid text can then be sent
// while it is still growing.
// Thread rule: immutable after Build.
#ifndef BATON_TEXT_DECODER_H_
#define BATON_TEXT_DECODER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/tokenizer_json.h"

namespace baton {

class Decoder {
 public:
  // What a text being decoded has seen so far.
  struct State {
    bool any_token = false;  // a token has been decoded: the next is not the first
    size_t cut = 0;          // code points of the prefix already cut
    bool cut_done = false;
    std::string pending;  // bytes that may still become a code point
  };

  // Tokens joined by spaces, as the Rust library does for a file without a decoder.
  Decoder() = default;
  static StatusOr<Decoder> Read(const JsonNode& node);

  // The bytes that `token` (in the vocabulary's spelling) stands for; `first`: it starts a text.
  std::string TokenBytes(std::string_view token, bool first) const;
  // Whether TokenBytes depends on `first`.
  bool first_differs() const;

  // Text that is certain after further `bytes`; with `end`, all that is left.
  std::string Advance(State* state, std::string_view bytes, bool end) const;

 private:
  struct ByteLevel {};
  struct ByteFallback {};
  struct Replace {
    std::string from;
    std::string to;
  };
  struct Metaspace {
    std::string replacement;
    bool drop_at_start;
  };
  struct Strip {
    std::string content;  // one code point
    size_t start;
    size_t stop;
  };
  using Step = std::variant<ByteLevel, ByteFallback, Replace, Metaspace, Strip>;

  Status Append(const JsonNode& node, int depth);
  Status AppendStrip(const JsonNode& node);
  Status AppendMetaspace(const JsonNode& node);
  static std::string Apply(const Step& step, std::string token, bool first);

  bool joined_by_space_ = true;
  bool fused_ = false;  // while reading: later steps act on the joined text
  std::vector<Step> steps_;
  std::optional<Strip> text_prefix_;  // Strip behind Fuse
};

}  // namespace baton

#endif  // BATON_TEXT_DECODER_H_
