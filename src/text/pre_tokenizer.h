// The "pre_tokenizer" of a tokenizer.json: text into the words that the model encodes one by one.
// Thread rule: immutable.
#ifndef BATON_TEXT_PRE_TOKENIZER_H_
#define BATON_TEXT_PRE_TOKENIZER_H_

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/regex.h"
#include "text/tokenizer_json.h"

namespace baton {

// Words of one text. Views point into the caller's text or into `storage`.
struct Words {
  struct Word {
    std::string_view text;
    bool at_start;  // starts where the whole input starts (Metaspace's scheme "first")
  };
  std::vector<Word> words;
  std::deque<std::string> storage;
};

class PreTokenizer {
 public:
  // Leaves the text in one word.
  PreTokenizer() = default;
  // Reads the object at `node`; JSON null leaves the text in one word. InvalidArgument naming the
  // path for a type that is not supported.
  static StatusOr<PreTokenizer> Read(const JsonNode& node);

  // Words are raw bytes to be spelled in byte-level letters: ByteLevel is the last step, and its
  // spelling is left to the model. Otherwise words are in the vocabulary's spelling.
  bool gives_bytes() const { return gives_bytes_; }

  // Replaces the words (on entry the text pieces between added tokens) by their parts.
  Status Run(Words* words) const;

 private:
  enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Regex pattern;
    Behavior behavior;
    bool invert;
  };
  struct ByteLevel {
    bool add_prefix_space;
    std::optional<Regex> pattern;  // absent: use_regex is off
    bool to_letters;               // false for the last step
  };
  struct Metaspace {
    enum class Prepend { kAlways, kFirst, kNever };
    std::string replacement;
    Prepend prepend;
    std::optional<Regex> pattern;  // of the replacement; absent: no split
  };
  using Step = std::variant<Split, ByteLevel, Metaspace>;

  Status Append(const JsonNode& node, int depth);
  Status AppendSplit(const JsonNode& node);
  Status AppendByteLevel(const JsonNode& node);
  Status AppendMetaspace(const JsonNode& node);
  Status AppendPattern(std::string_view pattern, Behavior behavior);
  static StatusOr<Behavior> ReadBehavior(const JsonNode& node);

  // The parts of one text, none empty.
  static StatusOr<std::vector<std::string_view>> SplitText(std::string_view text,
                                                           const Split& split);
  static Status Apply(const Split& step, Words* words);
  static Status Apply(const ByteLevel& step, Words* words);
  static Status Apply(const Metaspace& step, Words* words);
  static Status SplitWords(const Split& split, Words* words);

  std::vector<Step> steps_;
  bool gives_bytes_ = false;
};

}  // namespace baton

#endif  // BATON_TEXT_PRE_TOKENIZER_H_
