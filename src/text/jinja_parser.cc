#include "text/jinja_parser.h"

#include <initializer_list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_error.h"

namespace baton::jinja::internal {

void TokenStream::Error(const std::string& reason) const {
  Fail("TemplateSyntaxError", reason, current().line);
}

std::string TokenStream::Describe() const {
  switch (current().type) {
    case TokenType::kData:
      return "template data";
    case TokenType::kVariableBegin:
      return "'{{'";
    case TokenType::kVariableEnd:
      return "'}}'";
    case TokenType::kBlockBegin:
      return "'{%'";
    case TokenType::kBlockEnd:
      return "'%}'";
    case TokenType::kName:
    case TokenType::kOperator:
      return absl::StrCat("'", current().text, "'");
    case TokenType::kString:
      return "a string";
    case TokenType::kInteger:
    case TokenType::kFloat:
      return "a number";
    case TokenType::kEnd:
      break;
  }
  return "the end of the template";
}

void TokenStream::ExpectOperator(std::string_view op) {
  if (!SkipOperator(op)) {
    Error(absl::StrCat("expected '", std::string(op), "', got ", Describe()));
  }
}

void TokenStream::ExpectName(std::string_view name) {
  if (!SkipName(name)) {
    Error(absl::StrCat("expected '", std::string(name), "', got ", Describe()));
  }
}

void TokenStream::Expect(TokenType type, std::string_view what) {
  if (current().type != type) {
    Error(absl::StrCat("expected ", std::string(what), ", got ", Describe()));
  }
  Next();
}

std::string TokenStream::ExpectAnyName() {
  if (current().type != TokenType::kName) Error(absl::StrCat("expected a name, got ", Describe()));
  return Next().text;
}

namespace {

// Statements inside statements; each level is a few C++ frames.
constexpr int kStatementDepthMax = 100;

class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, Program* program)
      : stream_(std::move(tokens)), expressions_(&stream_, program), program_(*program) {}

  Body Run() {
    Body body = ParseBody({});
    expressions_.ThrowUnknown();
    return body;
  }

 private:
  using StatementPtr = std::unique_ptr<Statement>;

  StatementPtr Make(StatementType type) const {
    auto s = std::make_unique<Statement>();
    s->type = type;
    s->line = stream_.current().line;
    return s;
  }

  // Statements up to a block whose first word is one of `ends`; that word becomes current. With no
  // ends, up to the end of the template.
  Body ParseBody(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kStatementDepthMax) {
      stream_.Error(absl::StrCat("blocks nested deeper than ", kStatementDepthMax, " levels"));
    }
    Body body;
    for (;;) {
      const TokenType type = stream_.current().type;
      if (type == TokenType::kEnd) {
        if (ends.size() > 0) {
          stream_.Error(absl::StrCat("unexpected end of template, expected '",
                                     std::string(*(ends.end() - 1)), "'"));
        }
        break;
      }
      if (type == TokenType::kData) {
        body.push_back(Make(StatementType::kData));
        body.back()->text = stream_.Next().text;
      } else if (type == TokenType::kVariableBegin) {
        stream_.Next();
        body.push_back(Make(StatementType::kOutput));
        body.back()->expressions.push_back(expressions_.ParseTuple());
        stream_.Expect(TokenType::kVariableEnd, "'}}'");
      } else {
        stream_.Next();
        bool ended = false;
        for (const std::string_view end : ends) ended = ended || stream_.AtName(end);
        if (ended) break;
        body.push_back(ParseStatement());
        stream_.Expect(TokenType::kBlockEnd, "'%}'");
      }
    }
    --depth_;
    return body;
  }

  // A body that starts behind the current block and whose end word is consumed.
  Body ParseBodyTo(std::string_view end) {
    stream_.Expect(TokenType::kBlockEnd, "'%}'");
    Body body = ParseBody({end});
    stream_.Next();
    return body;
  }

  StatementPtr ParseStatement() {
    if (stream_.current().type != TokenType::kName) stream_.Error("tag name expected");
    const std::string& tag = stream_.current().text;
    if (tag == "if") return ParseIf();
    if (tag == "for") return ParseFor();
    if (tag == "set") return ParseSet();
    if (tag == "macro") return ParseMacro();
    if (tag == "call") return ParseCallBlock();
    if (tag == "filter") return ParseFilterBlock();
    if (tag == "with") return ParseWith();
    if (tag == "generation") {
      StatementPtr s = Make(StatementType::kScope);
      stream_.Next();
      s->bodies.push_back(IsolatedBody("endgeneration"));
      return s;
    }
    if (tag == "break" || tag == "continue") return ParseLoopControl();
    for (const char* known : {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (tag == known) {
        Fail("Unsupported", absl::StrCat("the tag '", tag, "' is not supported"),
             stream_.current().line);
      }
    }
    stream_.Error(absl::StrCat("Encountered unknown tag '", tag, "'."));
  }

  // A body that becomes a function in jinja2, so that break and continue cannot leave it.
  Body IsolatedBody(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    Body body = ParseBodyTo(end);
    loops_ = loops;
    return body;
  }

  StatementPtr ParseLoopControl() {
    StatementPtr s = Make(stream_.AtName("break") ? StatementType::kBreak
                                                  : StatementType::kContinue);
    if (loops_ == 0) {
      stream_.Error(absl::StrCat("'", stream_.current().text, "' outside of a loop"));
    }
    stream_.Next();
    return s;
  }

  StatementPtr ParseIf() {
    StatementPtr s = Make(StatementType::kIf);
    const size_t unknown_before = expressions_.unknown_count();
    for (;;) {
      stream_.Next();  // if, elif
      s->expressions.push_back(expressions_.ParseTuple(false));
      stream_.Expect(TokenType::kBlockEnd, "'%}'");
      s->bodies.push_back(ParseBody({"elif", "else", "endif"}));
      if (stream_.AtName("elif")) continue;
      if (stream_.SkipName("else")) {
        s->bodies.push_back(ParseBodyTo("endif"));
      } else {
        stream_.Next();
      }
      break;
    }
    expressions_.ForgetUnknown(unknown_before);
    return s;
  }

  StatementPtr ParseFor() {
    StatementPtr s = Make(StatementType::kFor);
    stream_.Next();
    s->targets.push_back(expressions_.ParseTarget(false, true, "in"));
    stream_.ExpectName("in");
    s->expressions.push_back(expressions_.ParseTuple(false, "recursive"));
    s->expressions.push_back(stream_.SkipName("if") ? expressions_.Parse() : nullptr);
    s->recursive = stream_.SkipName("recursive");
    stream_.Expect(TokenType::kBlockEnd, "'%}'");
    ++loops_;
    s->bodies.push_back(ParseBody({"endfor", "else"}));
    --loops_;
    if (stream_.SkipName("else")) {
      s->bodies.push_back(ParseBodyTo("endfor"));
    } else {
      stream_.Next();
      s->bodies.emplace_back();
    }
    return s;
  }

  StatementPtr ParseSet() {
    StatementPtr s = Make(StatementType::kSet);
    stream_.Next();
    s->targets.push_back(expressions_.ParseTarget(true, true));
    if (stream_.SkipOperator("=")) {
      s->expressions.push_back(expressions_.ParseTuple());
      return s;
    }
    s->type = StatementType::kSetBlock;
    s->expressions.push_back(expressions_.ParseFilters(nullptr, false));
    s->bodies.push_back(ParseBodyTo("endset"));
    return s;
  }

  // Parameters of a macro or of a call block's caller.
  void ParseSignature(MacroDefinition* macro) {
    stream_.ExpectOperator("(");
    while (!stream_.AtOperator(")")) {
      if (!macro->parameters.empty()) stream_.ExpectOperator(",");
      const Target parameter = expressions_.ParseTarget(false, false);
      macro->parameters.push_back(parameter.symbol);
      if (stream_.SkipOperator("=")) {
        macro->defaults.push_back(expressions_.Parse());
      } else if (!macro->defaults.empty()) {
        stream_.Error("non-default argument follows default argument");
      }
    }
    stream_.ExpectOperator(")");
    // jinja2 passes the caller after all others, so it needs a default to be told from them.
    const size_t without_default = macro->parameters.size() - macro->defaults.size();
    for (size_t i = 0; i < without_default; ++i) {
      if (program_.names[static_cast<size_t>(macro->parameters[i])] != "caller") continue;
      Fail("TemplateAssertionError",
           "When defining macros or call blocks the special \"caller\" argument must be omitted or "
           "be given a default.",
           stream_.current().line);
    }
  }

  StatementPtr ParseMacro() {
    StatementPtr s = Make(StatementType::kMacro);
    stream_.Next();
    s->macro = std::make_unique<MacroDefinition>();
    s->macro->name = stream_.current().text;
    s->macro->symbol = expressions_.ParseTarget(false, false).symbol;
    ParseSignature(s->macro.get());
    s->macro->body = IsolatedBody("endmacro");
    return s;
  }

  StatementPtr ParseCallBlock() {
    StatementPtr s = Make(StatementType::kCallBlock);
    stream_.Next();
    s->macro = std::make_unique<MacroDefinition>();
    if (stream_.AtOperator("(")) ParseSignature(s->macro.get());
    s->expressions.push_back(expressions_.Parse());
    if (s->expressions[0]->type != ExpressionType::kCall) stream_.Error("expected call");
    s->macro->body = IsolatedBody("endcall");
    return s;
  }

  StatementPtr ParseFilterBlock() {
    StatementPtr s = Make(StatementType::kFilterBlock);
    stream_.Next();
    s->expressions.push_back(expressions_.ParseFilters(nullptr, true));
    s->bodies.push_back(ParseBodyTo("endfilter"));
    return s;
  }

  StatementPtr ParseWith() {
    StatementPtr s = Make(StatementType::kWith);
    stream_.Next();
    while (stream_.current().type != TokenType::kBlockEnd) {
      if (!s->targets.empty()) stream_.ExpectOperator(",");
      s->targets.push_back(expressions_.ParseTarget(false, false));
      stream_.ExpectOperator("=");
      s->expressions.push_back(expressions_.Parse());
    }
    s->bodies.push_back(ParseBodyTo("endwith"));
    return s;
  }

  TokenStream stream_;
  ExpressionParser expressions_;
  const Program& program_;
  int depth_ = 0;
  int loops_ = 0;  // loops around the current statement within its function
};

}  // namespace

Program ParseProgram(std::string_view source) {
  Program program;
  program.body = StatementParser(Tokenize(source), &program).Run();
  AnalyzeScopes(&program);
  return program;
}

}  // namespace baton::jinja::internal
