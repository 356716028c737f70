// The "normalizer" of a tokenizer.json: text to text before it is split. Input and output are valid
// UTF-8. Thread rule: immutable.
#ifndef BATON_TEXT_NORMALIZER_H_
#define BATON_TEXT_NORMALIZER_H_

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/status.h"
#include "text/regex.h"
#include "text/tokenizer_json.h"

namespace baton {

class Normalizer {
 public:
  // Does nothing.
  Normalizer() = default;
  // Reads the object at `node`; a JSON null is the normalizer that does nothing. InvalidArgument
  // naming the path for a type that is not supported.
  static StatusOr<Normalizer> Read(const JsonNode& node);

  bool empty() const { return steps_.empty(); }
  StatusOr<std::string> Run(std::string_view text) const;

 private:
  enum class Form { kNfc, kNfd, kNfkc, kNfkd };
  struct Lowercase {};
  struct StripAccents {};
  struct Bytes {};  // to byte-level letters
  struct Prepend {
    std::string text;
  };
  struct Replace {
    Regex pattern;
    std::string content;
  };
  struct Strip {
    bool left;
    bool right;
  };
  using Step = std::variant<Form, Lowercase, StripAccents, Bytes, Prepend, Replace, Strip>;

  Status Append(const JsonNode& node, int depth);
  static StatusOr<std::string> Apply(const Step& step, std::string text);
  std::vector<Step> steps_;
};

}  // namespace baton

#endif  // BATON_TEXT_NORMALIZER_H_
