// Byte-pair encoding of one word (the piece between two splits), as the Rust library's BPE model.
//
// Time is O(n log n) in the word's symbols. There is no cache: most words are tokens themselves,
// and for those the answer is found by one look-up, which is checked at load to be what merging
// gives. Thread rule: immutable after Build.
#ifndef BATON_TEXT_BPE_H_
#define BATON_TEXT_BPE_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "base/status.h"
#include "base/types.h"

namespace baton {

struct BpeOptions {
  bool byte_fallback = false;  // unknown code points become <0xNN> tokens
  bool ignore_merges = false;  // a word that is a token is that token
  bool fuse_unk = false;
  std::optional<std::string> unk_token;
  // The input words are raw bytes, spelled in the vocabulary by byte-level letters. Otherwise words
  // are the vocabulary's own spelling, one code point a symbol.
  bool byte_words = false;
};

class Bpe {
 public:
  using Merge = std::pair<std::string, std::string>;

  // `vocab` pairs tokens with ids (unique both ways, checked by the caller); `merges` in order of
  // rank. InvalidArgument if a merge names a token that is not in the vocabulary, or the unk token
  // is not.
  static StatusOr<Bpe> Build(const std::vector<std::pair<std::string, TokenId>>& vocab,
                             const std::vector<Merge>& merges, BpeOptions options);

  // Appends the tokens of `word`. `scratch` is overwritten; words of one text share it.
  void EncodeWord(std::string_view word, std::vector<TokenId>* scratch,
                  std::vector<TokenId>* out) const;

 private:
  struct Symbol {
    TokenId id;
    int32_t previous;
    int32_t next;  // -1 at the end; a symbol merged into its left neighbour has `dead` set
    bool dead;
  };
  struct Rule {
    uint32_t rank;
    TokenId result;
  };

  const Rule* FindRule(TokenId left, TokenId right) const {
    const auto it = rules_.find(uint64_t{left} << 32 | right);
    return it == rules_.end() ? nullptr : &it->second;
  }
  void MakeSymbols(std::string_view word, std::vector<TokenId>* ids) const;
  void MergeShort(std::vector<TokenId>* ids) const;
  void MergeLong(std::vector<TokenId>* ids) const;
  void MergeWord(std::string_view word, std::vector<TokenId>* ids) const;
  void FindWholeWords();
  Status AddMerges(const std::vector<Merge>& merges,
                   const absl::flat_hash_map<absl::string_view, TokenId>& vocab);

  BpeOptions options_;
  std::vector<std::string> spellings_;  // keys of words_ point into it
  // Words in the form they come in (raw bytes or letters) that are tokens; `whole` is false if
  // merging gives something else.
  struct Word {
    TokenId id;
    bool whole;
  };
  absl::flat_hash_map<absl::string_view, Word> words_;
  absl::flat_hash_map<uint64_t, Rule> rules_;
  std::array<std::optional<TokenId>, 256> byte_tokens_;  // of letters, or of <0xNN>
  std::optional<TokenId> unk_;
};

}  // namespace baton

#endif  // BATON_TEXT_BPE_H_
