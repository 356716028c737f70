// Runs a Program. One object renders once. Throws Failure; every allocation and every loop is
// charged to the limits first. Thread rule: one thread.
#ifndef BATON_TEXT_JINJA_INTERPRETER_H_
#define BATON_TEXT_JINJA_INTERPRETER_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja.h"
#include "text/jinja_ast.h"
#include "text/jinja_loop.h"
#include "text/jinja_value.h"

namespace baton::jinja::internal {

// The variables of one frame.
struct Scope {
  std::shared_ptr<Scope> parent;
  const Shadowed* shadowed = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;

  Value* Find(Symbol symbol);
  void Set(Symbol symbol, Value value);
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
 public:
  Interpreter(const Program& program, const RenderInput& input);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string Run();
  // Line of the node evaluated last.
  int line() const { return line_; }

  // For builtins.
  void Charge(int64_t steps);
  // A new text; charges for it and refuses one longer than the output may be.
  Value Text(std::string text, bool safe = false);
  void CheckTextSize(size_t bytes) const;
  size_t text_bytes_max() const { return input_.limits.output_bytes_max; }
  const std::optional<std::tm>& now() const { return input_.now; }

  Value GetAttribute(const Value& object, std::string_view name);  // object.name
  Value GetItem(const Value& object, const Value& key);            // object[key]
  Value Call(const Value& callee, Arguments arguments);
  Value ApplyFilter(std::string_view name, const Value& operand, const Arguments& arguments);
  bool ApplyTest(std::string_view name, const Value& operand, const Arguments& arguments);
  Value Binary(std::string_view op, const Value& left, const Value& right);
  Value Add(const Value& left, const Value& right);
  bool Compare(std::string_view op, const Value& left, const Value& right);
  Value NewNamespace(Namespace contents);

  Value CallMacro(const MacroDefinition& macro, const ScopePtr& scope, Arguments arguments);
  Value CallLoop(const Statement& loop, const ScopePtr& scope, int depth0, const Value& items);

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Deeper;
  class ScopeGuard;
  class Capture;

  // Statements (jinja_statements.cc).
  Flow ExecuteBody(const Body& body);
  Flow Execute(const Statement& s);
  Flow ExecuteIf(const Statement& s);
  Flow ExecuteFor(const Statement& s);
  Flow RunLoop(const Statement& s, SequencePtr items, int depth0);
  SequencePtr FilterItems(const Statement& s, const SequencePtr& items);
  void ExecuteCallBlock(const Statement& s);
  void ExecuteWith(const Statement& s);
  // The text that a body prints in a frame of its own.
  std::string RenderBody(const Body& body, const Shadowed& shadowed);
  void BindParameters(const MacroDefinition& macro, Arguments arguments);
  Value MakeMacro(const MacroDefinition& macro);
  void Assign(const Target& target, const Value& value);
  void Print(const Value& value);
  void Write(std::string_view text);

  // Expressions (jinja_expressions.cc).
  Value Evaluate(const Expression& e);
  Value EvaluateName(const Expression& e);
  Value EvaluateSlice(const Expression& e);
  Value EvaluateCompare(const Expression& e);
  Value EvaluateFilter(const Expression& e, const Value* block_text);
  Value EvaluateUnary(const Expression& e);
  Value EvaluateConcat(const Expression& e);
  Value EvaluateDict(const Expression& e);
  std::vector<Value> EvaluateAll(const std::vector<ExpressionPtr>& expressions);
  Arguments EvaluateArguments(const CallArguments& arguments);
  Value FindVariable(Symbol symbol);
  Value Repeat(const Value& left, int64_t times);
  Value Slice(const Value& object, const Value* from, const Value* to, const Value* step);

  const Program& program_;
  const RenderInput& input_;
  Dict context_;  // what was passed to render
  ScopePtr scope_;
  std::string* output_ = nullptr;
  // Scopes and namespaces may refer to each other in cycles; they are emptied at the end.
  std::vector<ScopePtr> captured_scopes_;
  std::vector<NamespacePtr> namespaces_;
  int64_t steps_left_;
  int depth_ = 0;
  int line_ = 0;
};

// Nesting of evaluations; the limit keeps recursion off the end of the stack.
class Interpreter::Deeper {
 public:
  explicit Deeper(Interpreter* in);
  ~Deeper() { --in_.depth_; }

 private:
  Interpreter& in_;
};

// Opens a frame for its life time.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter* in, ScopePtr parent, const Shadowed* shadowed);
  ~ScopeGuard() { in_.scope_ = std::move(saved_); }

 private:
  Interpreter& in_;
  ScopePtr saved_;
};

// Collects what is printed during its life time.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter* in) : in_(*in), saved_(in->output_) { in_.output_ = &text; }
  ~Capture() { in_.output_ = saved_; }
  std::string text;

 private:
  Interpreter& in_;
  std::string* saved_;
};

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_INTERPRETER_H_
