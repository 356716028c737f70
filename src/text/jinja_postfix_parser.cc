// What may follow a primary expression: subscripts, calls, filters and tests; and targets.
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

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr operand) {
  for (Chain chain(stream_); chain.More(true);) {
    if (stream_.AtOperator(".") || stream_.AtOperator("[")) {
      operand = ParseSubscript(std::move(operand));
    } else if (stream_.AtOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      return operand;
    }
  }
  return operand;
}

ExpressionPtr ExpressionParser::ParseFilterExpression(ExpressionPtr operand) {
  for (Chain chain(stream_); chain.More(true);) {
    if (stream_.AtOperator("|")) {
      operand = ParseFilters(std::move(operand), false);
    } else if (stream_.AtName("is")) {
      operand = ParseTest(std::move(operand));
    } else if (stream_.AtOperator("(")) {
      operand = ParseCall(std::move(operand));
    } else {
      return operand;
    }
  }
  return operand;
}

ExpressionPtr ExpressionParser::ParseSubscript(ExpressionPtr operand) {
  const int line = stream_.current().line;
  if (stream_.SkipOperator(".")) {
    const Token token = stream_.Next();
    if (token.type == TokenType::kName) {
      ExpressionPtr e = Make(ExpressionType::kAttribute, line);
      e->text = token.text;
      e->operands.push_back(std::move(operand));
      return e;
    }
    if (token.type != TokenType::kInteger) stream_.Error("expected name or number");
    ExpressionPtr e = Make(ExpressionType::kItem, line);
    ExpressionPtr index = Make(ExpressionType::kConstant, line);
    index->constant = Value(token.integer);
    e->operands.push_back(std::move(operand));
    e->operands.push_back(std::move(index));
    return e;
  }
  stream_.ExpectOperator("[");
  ExpressionPtr e = ParseSubscriptPart(std::move(operand));
  e->line = line;
  stream_.ExpectOperator("]");
  return e;
}

ExpressionPtr ExpressionParser::ParseSubscriptPart(ExpressionPtr operand) {
  ExpressionPtr e = Make(ExpressionType::kItem);
  e->operands.push_back(std::move(operand));
  if (!stream_.AtOperator(":")) {
    ExpressionPtr index = Parse();
    if (stream_.AtOperator(",")) {
      ExpressionPtr tuple = Make(ExpressionType::kTuple);
      tuple->operands.push_back(std::move(index));
      while (stream_.SkipOperator(",") && !stream_.AtOperator("]")) {
        if (stream_.AtOperator(":")) stream_.Error("slices inside a tuple are not supported");
        tuple->operands.push_back(Parse());
      }
      index = std::move(tuple);
    }
    e->operands.push_back(std::move(index));
    if (!stream_.AtOperator(":")) return e;
  } else {
    e->operands.push_back(nullptr);
  }
  e->type = ExpressionType::kSlice;
  const auto bound = [&]() -> ExpressionPtr {
    if (!stream_.SkipOperator(":")) return nullptr;
    if (stream_.AtOperator(":") || stream_.AtOperator("]")) return nullptr;
    return Parse();
  };
  e->operands.push_back(bound());
  e->operands.push_back(bound());
  return e;
}

CallArguments ExpressionParser::ParseArguments() {
  CallArguments arguments;
  stream_.ExpectOperator("(");
  bool first = true;
  while (!stream_.AtOperator(")")) {
    if (!first) {
      stream_.ExpectOperator(",");
      if (stream_.AtOperator(")")) break;
    }
    first = false;
    const bool only_named = arguments.double_star != nullptr;
    if (stream_.SkipOperator("**")) {
      if (only_named) stream_.Error("invalid syntax for function call expression");
      arguments.double_star = Parse();
    } else if (stream_.SkipOperator("*")) {
      if (only_named || arguments.star != nullptr) {
        stream_.Error("invalid syntax for function call expression");
      }
      arguments.star = Parse();
    } else if (stream_.current().type == TokenType::kName &&
               stream_.ahead().type == TokenType::kOperator && stream_.ahead().text == "=") {
      if (only_named) stream_.Error("invalid syntax for function call expression");
      std::string name = stream_.Next().text;
      stream_.Next();
      arguments.named.emplace_back(std::move(name), Parse());
    } else {
      if (only_named || arguments.star != nullptr || !arguments.named.empty()) {
        stream_.Error("invalid syntax for function call expression");
      }
      arguments.positional.push_back(Parse());
    }
  }
  stream_.ExpectOperator(")");
  return arguments;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  ExpressionPtr e = Make(ExpressionType::kCall);
  e->operands.push_back(std::move(callee));
  e->arguments = ParseArguments();
  return e;
}

ExpressionPtr ExpressionParser::ParseFilters(ExpressionPtr operand, bool start_inline) {
  for (Chain chain(stream_); chain.More(start_inline || stream_.AtOperator("|"));) {
    if (!start_inline) stream_.Next();
    start_inline = false;
    ExpressionPtr e = Make(ExpressionType::kFilter);
    e->text = stream_.ExpectAnyName();
    while (stream_.SkipOperator(".")) absl::StrAppend(&e->text, ".", stream_.ExpectAnyName());
    if (FindFilter(e->text) == nullptr) {
      unknown_.push_back({"TemplateAssertionError", absl::StrCat("No filter named '", e->text, "'."),
                          e->line});
    }
    e->operands.push_back(std::move(operand));
    if (stream_.AtOperator("(")) e->arguments = ParseArguments();
    operand = std::move(e);
  }
  return operand;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr operand) {
  ExpressionPtr e = Make(ExpressionType::kTest);
  stream_.ExpectName("is");
  const bool negated = stream_.SkipName("not");
  e->text = stream_.ExpectAnyName();
  while (stream_.SkipOperator(".")) absl::StrAppend(&e->text, ".", stream_.ExpectAnyName());
  e->operands.push_back(std::move(operand));
  const Token& token = stream_.current();
  const bool literal = token.type == TokenType::kString || token.type == TokenType::kInteger ||
                       token.type == TokenType::kFloat || stream_.AtOperator("[") ||
                       stream_.AtOperator("{");
  const bool name = token.type == TokenType::kName && !IsOneOf(token.text, {"else", "or", "and"});
  if (stream_.AtOperator("(")) {
    e->arguments = ParseArguments();
  } else if (literal || name) {
    if (stream_.AtName("is")) stream_.Error("You cannot chain multiple tests with is");
    e->arguments.positional.push_back(ParsePostfix(ParsePrimary()));
  }
  if (FindTest(e->text) == nullptr) {
    unknown_.push_back(
        {"TemplateAssertionError", absl::StrCat("No test named '", e->text, "'."), e->line});
  }
  if (!negated) return e;
  ExpressionPtr inverted = Make(ExpressionType::kNot, e->line);
  inverted->operands.push_back(std::move(e));
  return inverted;
}

Target ExpressionParser::ParseTarget(bool with_namespace, bool with_tuple,
                                     std::string_view end_name) {
  const auto one = [&] {
    Target target;
    target.line = stream_.current().line;
    if (stream_.SkipOperator("(")) {
      const Deeper deeper(this);
      target = ParseTarget(false, true);
      stream_.ExpectOperator(")");
      return target;
    }
    const std::string name = stream_.ExpectAnyName();
    if (IsOneOf(name, {"true", "false", "none", "True", "False", "None"})) {
      stream_.Error(absl::StrCat("can't assign to '", name, "'"));
    }
    target.symbol = program_.Intern(name);
    return target;
  };
  if (with_namespace && stream_.ahead().type == TokenType::kOperator &&
      stream_.ahead().text == ".") {
    Target target = one();
    stream_.Next();
    target.attribute = stream_.ExpectAnyName();
    return target;
  }
  Target first = one();
  if (!with_tuple || !stream_.AtOperator(",")) return first;
  Target tuple;
  tuple.is_tuple = true;
  tuple.line = first.line;
  tuple.elements.push_back(std::move(first));
  while (stream_.SkipOperator(",")) {
    if (AtTupleEnd(end_name) || stream_.AtOperator("=")) break;
    tuple.elements.push_back(one());
  }
  return tuple;
}

}  // namespace baton::jinja::internal
