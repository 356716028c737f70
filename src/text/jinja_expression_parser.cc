#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_parser.h"

namespace baton::jinja::internal {
namespace {

bool IsOneOf(const std::string& text, std::initializer_list<std::string_view> choices) {
  return std::find(choices.begin(), choices.end(), text) != choices.end();
}

}  // namespace

ExpressionParser::Deeper::Deeper(ExpressionParser* parser) : parser_(*parser) {
  if (++parser_.depth_ > kExpressionDepthMax) {
    parser_.stream_.Error(
        absl::StrCat("expressions nested deeper than ", kExpressionDepthMax, " levels"));
  }
}

ExpressionPtr ExpressionParser::Make(ExpressionType type, int line) const {
  auto e = std::make_unique<Expression>();
  e->type = type;
  e->line = line > 0 ? line : stream_.current().line;
  return e;
}

ExpressionPtr ExpressionParser::Parse(bool with_condition) {
  const Deeper deeper(this);
  return with_condition ? ParseCondition() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseCondition() {
  const int line = stream_.current().line;
  const size_t unknown_before = unknown_.size();
  ExpressionPtr value = ParseOr();
  for (int n = 0; stream_.SkipName("if"); ++n) {
    if (n == kChainMax) stream_.Error("too many conditions in a row");
    ExpressionPtr condition = Make(ExpressionType::kCondition, line);
    condition->operands.push_back(std::move(value));
    condition->operands.push_back(ParseOr());
    condition->operands.push_back(stream_.SkipName("else") ? Parse() : nullptr);
    value = std::move(condition);
    ForgetUnknown(unknown_before);
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  for (Chain chain(stream_); chain.More(stream_.SkipName("or"));) {
    ExpressionPtr e = Make(ExpressionType::kOr);
    e->operands.push_back(std::move(left));
    e->operands.push_back(ParseAnd());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  for (Chain chain(stream_); chain.More(stream_.SkipName("and"));) {
    ExpressionPtr e = Make(ExpressionType::kAnd);
    e->operands.push_back(std::move(left));
    e->operands.push_back(ParseNot());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!stream_.AtName("not")) return ParseCompare();
  const Deeper deeper(this);
  ExpressionPtr e = Make(ExpressionType::kNot);
  stream_.Next();
  e->operands.push_back(ParseNot());
  return e;
}

ExpressionPtr ExpressionParser::ParseCompare() {
  ExpressionPtr first = ParseSum();
  ExpressionPtr compare;
  for (;;) {
    std::string op;
    const Token& token = stream_.current();
    if (token.type == TokenType::kOperator &&
        IsOneOf(token.text, {"==", "!=", "<", "<=", ">", ">="})) {
      op = token.text;
      stream_.Next();
    } else if (stream_.SkipName("in")) {
      op = "in";
    } else if (stream_.AtName("not") && stream_.ahead().type == TokenType::kName &&
               stream_.ahead().text == "in") {
      op = "not in";
      stream_.Next();
      stream_.Next();
    } else {
      break;
    }
    if (compare == nullptr) {
      compare = Make(ExpressionType::kCompare, first->line);
      compare->operands.push_back(std::move(first));
    }
    compare->comparisons.push_back(std::move(op));
    compare->operands.push_back(ParseSum());
  }
  return compare != nullptr ? std::move(compare) : std::move(first);
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcat();
  for (Chain chain(stream_); chain.More(stream_.AtOperator("+") || stream_.AtOperator("-"));) {
    ExpressionPtr e = Make(ExpressionType::kBinary);
    e->text = stream_.Next().text;
    e->operands.push_back(std::move(left));
    e->operands.push_back(ParseConcat());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcat() {
  ExpressionPtr first = ParseProduct();
  if (!stream_.AtOperator("~")) return first;
  ExpressionPtr e = Make(ExpressionType::kConcat, first->line);
  e->operands.push_back(std::move(first));
  while (stream_.SkipOperator("~")) e->operands.push_back(ParseProduct());
  return e;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  ExpressionPtr left = ParsePower();
  for (Chain chain(stream_); chain.More(stream_.current().type == TokenType::kOperator &&
                    IsOneOf(stream_.current().text, {"*", "/", "//", "%"}));) {
    ExpressionPtr e = Make(ExpressionType::kBinary);
    e->text = stream_.Next().text;
    e->operands.push_back(std::move(left));
    e->operands.push_back(ParsePower());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary();
  for (Chain chain(stream_); chain.More(stream_.AtOperator("**"));) {
    ExpressionPtr e = Make(ExpressionType::kBinary);
    e->text = stream_.Next().text;
    e->operands.push_back(std::move(left));
    e->operands.push_back(ParseUnary());
    left = std::move(e);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filter) {
  ExpressionPtr e;
  if (stream_.AtOperator("-") || stream_.AtOperator("+")) {
    const Deeper deeper(this);
    e = Make(stream_.AtOperator("-") ? ExpressionType::kNegate : ExpressionType::kPlus);
    stream_.Next();
    e->operands.push_back(ParseUnary(false));
  } else {
    e = ParsePrimary();
  }
  e = ParsePostfix(std::move(e));
  return with_filter ? ParseFilterExpression(std::move(e)) : std::move(e);
}

ExpressionPtr ExpressionParser::ParsePrimary() {
  const Token& token = stream_.current();
  ExpressionPtr e = Make(ExpressionType::kConstant);
  switch (token.type) {
    case TokenType::kName: {
      const std::string name = stream_.Next().text;
      if (name == "true" || name == "True") {
        e->constant = Value(true);
      } else if (name == "false" || name == "False") {
        e->constant = Value(false);
      } else if (name != "none" && name != "None") {
        e->type = ExpressionType::kName;
        e->symbol = program_.Intern(name);
        e->text = name;
      }
      return e;
    }
    case TokenType::kString: {
      std::string text;
      while (stream_.current().type == TokenType::kString) text += stream_.Next().text;
      e->constant = Value(std::move(text));
      return e;
    }
    case TokenType::kInteger:
      e->constant = Value(stream_.Next().integer);
      return e;
    case TokenType::kFloat:
      e->constant = Value(stream_.Next().number);
      return e;
    default:
      break;
  }
  if (stream_.SkipOperator("(")) {
    const Deeper deeper(this);
    e = ParseTuple(true, {}, true);
    stream_.ExpectOperator(")");
    return e;
  }
  if (stream_.AtOperator("[")) return ParseList();
  if (stream_.AtOperator("{")) return ParseDict();
  stream_.Error(absl::StrCat("unexpected ", stream_.Describe()));
}

bool ExpressionParser::AtTupleEnd(std::string_view end_name) const {
  const TokenType type = stream_.current().type;
  if (type == TokenType::kVariableEnd || type == TokenType::kBlockEnd) return true;
  if (stream_.AtOperator(")")) return true;
  return !end_name.empty() && stream_.AtName(end_name);
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_condition, std::string_view end_name,
                                           bool explicit_parentheses) {
  ExpressionPtr tuple = Make(ExpressionType::kTuple);
  bool is_tuple = false;
  for (;;) {
    if (AtTupleEnd(end_name)) break;
    tuple->operands.push_back(Parse(with_condition));
    if (!stream_.SkipOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return tuple;
  if (!tuple->operands.empty()) return std::move(tuple->operands[0]);
  if (!explicit_parentheses) {
    stream_.Error(absl::StrCat("Expected an expression, got ", stream_.Describe()));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::ParseList() {
  ExpressionPtr e = Make(ExpressionType::kList);
  stream_.ExpectOperator("[");
  while (!stream_.AtOperator("]")) {
    if (!e->operands.empty()) stream_.ExpectOperator(",");
    if (stream_.AtOperator("]")) break;
    e->operands.push_back(Parse());
  }
  stream_.ExpectOperator("]");
  return e;
}

ExpressionPtr ExpressionParser::ParseDict() {
  ExpressionPtr e = Make(ExpressionType::kDict);
  stream_.ExpectOperator("{");
  while (!stream_.AtOperator("}")) {
    if (!e->operands.empty()) stream_.ExpectOperator(",");
    if (stream_.AtOperator("}")) break;
    e->operands.push_back(Parse());
    stream_.ExpectOperator(":");
    e->operands.push_back(Parse());
  }
  stream_.ExpectOperator("}");
  return e;
}

}  // namespace baton::jinja::internal
