// Tokens to a Program. Thread rule: free functions.
#ifndef BATON_TEXT_JINJA_PARSER_H_
#define BATON_TEXT_JINJA_PARSER_H_

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_error.h"
#include "text/jinja_lexer.h"

namespace baton::jinja::internal {

// Throws Failure (TemplateSyntaxError, TemplateAssertionError for an unknown filter or test, or
// Unsupported) with the line.
Program ParseProgram(std::string_view source);

// Fills in Shadowed everywhere (jinja_scope.cc).
void AnalyzeScopes(Program* program);

// Position in the tokens, with jinja2's way of looking at them.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead(size_t n = 1) const { return tokens_[std::min(pos_ + n, tokens_.size() - 1)]; }
  const Token& Next() { return tokens_[pos_ + 1 < tokens_.size() ? pos_++ : pos_]; }

  bool AtOperator(std::string_view op) const {
    return current().type == TokenType::kOperator && current().text == op;
  }
  bool AtName(std::string_view name) const {
    return current().type == TokenType::kName && current().text == name;
  }
  bool SkipOperator(std::string_view op) {
    if (!AtOperator(op)) return false;
    Next();
    return true;
  }
  bool SkipName(std::string_view name) {
    if (!AtName(name)) return false;
    Next();
    return true;
  }
  void ExpectOperator(std::string_view op);
  void ExpectName(std::string_view name);
  void Expect(TokenType type, std::string_view what);
  std::string ExpectAnyName();
  [[noreturn]] void Error(const std::string& reason) const;
  // The current token in words, for error messages.
  std::string Describe() const;

 private:
  std::vector<Token> tokens_;
  size_t pos_ = 0;
};

// Nested expressions in the source; each level takes about ten C++ frames.
inline constexpr int kExpressionDepthMax = 100;
// A flat chain (a + b + c ...) becomes a tree as deep as the chain is long.
inline constexpr int kChainMax = 250;

// Counts the links of one such chain: for (Chain c(stream); c.More(condition);) ...
class Chain {
 public:
  explicit Chain(const TokenStream& stream) : stream_(stream) {}
  bool More(bool condition) {
    if (condition && length_++ == kChainMax) stream_.Error("too many operators in a row");
    return condition;
  }

 private:
  const TokenStream& stream_;
  int length_ = 0;
};

// The expression grammar. Unknown filters and tests are collected: the parser of statements throws
// the first one, except for those under a condition, which jinja2 reports only when reached.
class ExpressionParser {
 public:
  ExpressionParser(TokenStream* stream, Program* program) : stream_(*stream), program_(*program) {}

  ExpressionPtr Parse(bool with_condition = true);
  // One expression, or a tuple if commas follow. `end_names`: words that end it.
  ExpressionPtr ParseTuple(bool with_condition = true, std::string_view end_name = {},
                           bool explicit_parentheses = false);
  // `| name(args) | ...` after `operand` (null for a filter block). `start_inline`: the first name
  // stands without a bar.
  ExpressionPtr ParseFilters(ExpressionPtr operand, bool start_inline);
  // Postfix and filters of an already parsed primary are included.
  ExpressionPtr ParseUnary(bool with_filter = true);
  Target ParseTarget(bool with_namespace, bool with_tuple, std::string_view end_name = {});

  size_t unknown_count() const { return unknown_.size(); }
  void ForgetUnknown(size_t from) { unknown_.erase(unknown_.begin() + static_cast<int64_t>(from), unknown_.end()); }
  void ThrowUnknown() const {
    if (!unknown_.empty()) throw unknown_.front();
  }

 private:
  class Deeper {
   public:
    explicit Deeper(ExpressionParser* parser);
    ~Deeper() { --parser_.depth_; }

   private:
    ExpressionParser& parser_;
  };
  ExpressionPtr Make(ExpressionType type, int line = 0) const;
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseCompare();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcat();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParsePrimary();
  ExpressionPtr ParseList();
  ExpressionPtr ParseDict();
  ExpressionPtr ParsePostfix(ExpressionPtr operand);
  ExpressionPtr ParseSubscript(ExpressionPtr operand);
  ExpressionPtr ParseSubscriptPart(ExpressionPtr operand);
  ExpressionPtr ParseFilterExpression(ExpressionPtr operand);
  ExpressionPtr ParseTest(ExpressionPtr operand);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  CallArguments ParseArguments();
  bool AtTupleEnd(std::string_view end_name) const;

  TokenStream& stream_;
  Program& program_;
  std::vector<Failure> unknown_;
  int depth_ = 0;
};

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_PARSER_H_
