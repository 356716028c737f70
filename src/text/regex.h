// Unicode regular expressions as tokenizer.json files use them: written for the Oniguruma library,
// run by PCRE2. Where the two read the same text differently the pattern is rewritten (\s \S \w \d,
// always multi-line anchors) or refused (class intersections and nested classes, \h, \b, flags
// other than i), because a pattern that is merely accepted would split text differently in silence.
//
// Thread rule: immutable; every search has its own match state.
#ifndef BATON_TEXT_REGEX_H_
#define BATON_TEXT_REGEX_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace baton {

// Byte offsets [begin, end) in a text.
struct TextRange {
  size_t begin;
  size_t end;
};

class Regex {
 public:
  // InvalidArgument naming the pattern and what is wrong or not supported.
  static StatusOr<Regex> Compile(std::string_view pattern);
  // A pattern that matches `text` itself.
  static StatusOr<Regex> Literal(std::string_view text);

  // All matches from left to right, not overlapping, in valid UTF-8 text. Linear in the text for
  // the patterns in use. ResourceExhausted if a search reaches the matcher's limits of steps or
  // memory: matches up to there would split the text differently in silence.
  StatusOr<std::vector<TextRange>> FindAll(std::string_view text) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  static StatusOr<Regex> CompileTranslated(std::string_view original, const std::string& pattern);
  std::shared_ptr<const Code> code_;
};

}  // namespace baton

#endif  // BATON_TEXT_REGEX_H_
