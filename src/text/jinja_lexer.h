// Template source to tokens, with white-space control applied: `-` and `+` signs, trim_blocks and
// lstrip_blocks (both on), one newline at the end of the source dropped, \r\n and \r read as \n.
// Thread rule: free function.
#ifndef BATON_TEXT_JINJA_LEXER_H_
#define BATON_TEXT_JINJA_LEXER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace baton::jinja::internal {

enum class TokenType : uint8_t {
  kData,           // text between tags
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kName,
  kString,   // text = the value, escapes resolved
  kInteger,  // integer = the value
  kFloat,    // number = the value
  kOperator,  // text = "+", "==", "[", ...
  kEnd,
};

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;
  int64_t integer = 0;
  double number = 0;
};

// The tokens, closed by one kEnd. Throws Failure (TemplateSyntaxError) with the line.
std::vector<Token> Tokenize(std::string_view source);

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_LEXER_H_
