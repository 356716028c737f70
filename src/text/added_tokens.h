// Tokens that are recognised in the text before the model sees it: special ones such as
// "<|im_end|>", and words added to a vocabulary. Thread rule: immutable after Build.
#ifndef BATON_TEXT_ADDED_TOKENS_H_
#define BATON_TEXT_ADDED_TOKENS_H_

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/status.h"
#include "base/types.h"

namespace baton {

struct AddedToken {
  TokenId id = 0;
  std::string content;
  bool special = false;
  bool lstrip = false;       // takes white space before it
  bool rstrip = false;       // takes white space behind it
  bool single_word = false;  // not inside a word
  bool normalized = false;   // looked for in normalized text
};

// Finds added tokens in a text: leftmost, and among those starting there the longest. Time is
// linear in the text times the length of the longest token at worst, and in practice one table
// look-up per byte.
class AddedTokenMatcher {
 public:
  struct Piece {
    std::string_view text;
    std::optional<TokenId> id;  // absent: ordinary text
  };

  AddedTokenMatcher() = default;
  // `contents[i]` is what tokens[i] looks like in the text to be searched; empty ones are ignored.
  AddedTokenMatcher(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  bool empty() const { return tokens_.empty(); }
  // The text in order, cut at the tokens. Without `parse_special`, special tokens are text.
  std::vector<Piece> Split(std::string_view text, bool parse_special) const;

 private:
  struct Match {
    size_t bytes = 0;
    const AddedToken* token = nullptr;
  };
  Match MatchAt(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  // A trie in one hash map: (node, byte) to node. Node 0 is the root.
  absl::flat_hash_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> node_token_;     // index into tokens_, -1 if none ends here
  std::array<bool, 256> first_bytes_{};  // bytes that start a token
};

}  // namespace baton

#endif  // BATON_TEXT_ADDED_TOKENS_H_
