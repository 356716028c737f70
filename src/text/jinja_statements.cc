#include <algorithm>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"

namespace baton::jinja::internal {
namespace {

// A macro with the frame it was defined in.
class MacroCallable final : public Callable {
 public:
  MacroCallable(const MacroDefinition* macro, ScopePtr scope)
      : macro_(*macro), scope_(std::move(scope)) {}
  Value Call(Interpreter& in, Arguments arguments) const override {
    return in.CallMacro(macro_, scope_, std::move(arguments));
  }
  std::string Describe() const override {
    return macro_.name.empty() ? "<Macro anonymous>" : absl::StrCat("<Macro '", macro_.name, "'>");
  }

 private:
  const MacroDefinition& macro_;
  ScopePtr scope_;
};

}  // namespace

Value* Scope::Find(Symbol symbol) {
  for (auto& [name, value] : variables) {
    if (name == symbol) return &value;
  }
  return nullptr;
}

void Scope::Set(Symbol symbol, Value value) {
  if (Value* old = Find(symbol)) {
    *old = std::move(value);
  } else {
    variables.emplace_back(symbol, std::move(value));
  }
}

Interpreter::Deeper::Deeper(Interpreter* in) : in_(*in) {
  if (++in_.depth_ > in_.input_.limits.depth_max) {
    --in_.depth_;
    Fail(kLimit, absl::StrCat("nested deeper than ", in_.input_.limits.depth_max, " evaluations"));
  }
}

Interpreter::ScopeGuard::ScopeGuard(Interpreter* in, ScopePtr parent, const Shadowed* shadowed)
    : in_(*in), saved_(in->scope_) {
  auto scope = std::make_shared<Scope>();
  scope->parent = std::move(parent);
  scope->shadowed = shadowed;
  in_.scope_ = std::move(scope);
}

Interpreter::Interpreter(const Program& program, const RenderInput& input)
    : program_(program), input_(input), steps_left_(input.limits.steps_max) {}

Interpreter::~Interpreter() {
  for (const ScopePtr& scope : captured_scopes_) scope->variables.clear();
  for (const NamespacePtr& ns : namespaces_) ns->attributes.clear();
}

std::string Interpreter::Run() {
  if (input_.variables.is_object()) {
    for (const auto& [name, value] : input_.variables.items()) {
      context_.Set(Value(name), Value::FromJson(value));
    }
  }
  Capture capture(this);
  const ScopeGuard scope(this, nullptr, &program_.shadowed);
  ExecuteBody(program_.body);
  return std::move(capture.text);
}

void Interpreter::Charge(int64_t steps) {
  steps_left_ -= steps;
  if (steps_left_ < 0) {
    Fail(kLimit, absl::StrCat("rendering takes more than ", input_.limits.steps_max, " steps"));
  }
}

void Interpreter::CheckTextSize(size_t bytes) const {
  if (bytes > text_bytes_max()) {
    Fail(kLimit, absl::StrCat("a text would exceed ", text_bytes_max(), " bytes"));
  }
}

Value Interpreter::Text(std::string text, bool safe) {
  CheckTextSize(text.size());
  Charge(TextWeight(text.size()));
  return Value(std::move(text), safe);
}

void Interpreter::Write(std::string_view text) {
  CheckTextSize(output_->size() + text.size());
  Charge(TextWeight(text.size()));
  output_->append(text);
}

void Interpreter::Print(const Value& value) {
  Charge(value.weight());
  if (const Str* s = value.str()) return Write(s->text);
  Write(ToText(value));
}

Interpreter::Flow Interpreter::ExecuteBody(const Body& body) {
  const Deeper deeper(this);
  for (const auto& statement : body) {
    const Flow flow = Execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::Execute(const Statement& s) {
  line_ = s.line;
  Charge(1);
  switch (s.type) {
    case StatementType::kData:
      Write(s.text);
      break;
    case StatementType::kOutput:
      Print(Evaluate(*s.expressions[0]));
      break;
    case StatementType::kIf:
      return ExecuteIf(s);
    case StatementType::kFor:
      return ExecuteFor(s);
    case StatementType::kSet:
      Assign(s.targets[0], Evaluate(*s.expressions[0]));
      break;
    case StatementType::kSetBlock: {
      Value text = Text(RenderBody(s.bodies[0], s.shadowed[0]));
      if (s.expressions[0] != nullptr) text = EvaluateFilter(*s.expressions[0], &text);
      Assign(s.targets[0], text);
      break;
    }
    case StatementType::kMacro:
      scope_->Set(s.macro->symbol, MakeMacro(*s.macro));
      break;
    case StatementType::kCallBlock:
      ExecuteCallBlock(s);
      break;
    case StatementType::kFilterBlock: {
      const Value text = Text(RenderBody(s.bodies[0], s.shadowed[0]));
      Print(EvaluateFilter(*s.expressions[0], &text));
      break;
    }
    case StatementType::kWith:
      ExecuteWith(s);
      break;
    case StatementType::kScope:
      Write(RenderBody(s.bodies[0], s.shadowed[0]));
      break;
    case StatementType::kBreak:
      return Flow::kBreak;
    case StatementType::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteIf(const Statement& s) {
  for (size_t i = 0; i < s.expressions.size(); ++i) {
    if (Truth(Evaluate(*s.expressions[i]))) return ExecuteBody(s.bodies[i]);
  }
  return s.bodies.size() > s.expressions.size() ? ExecuteBody(s.bodies.back()) : Flow::kNext;
}

Interpreter::Flow Interpreter::ExecuteFor(const Statement& s) {
  const Value iterable = Evaluate(*s.expressions[0]);
  line_ = s.line;
  if (const Str* text = iterable.str()) Charge(static_cast<int64_t>(text->text.size()));
  return RunLoop(s, Iterate(iterable), 0);
}

SequencePtr Interpreter::FilterItems(const Statement& s, const SequencePtr& items) {
  auto kept = std::make_shared<Sequence>();
  static const Shadowed kNone;
  for (const Value& item : items->items) {
    Charge(1);
    const ScopeGuard scope(this, scope_, &kNone);
    Assign(s.targets[0], item);
    if (Truth(Evaluate(*s.expressions[1]))) kept->items.push_back(item);
  }
  return kept;
}

Interpreter::Flow Interpreter::RunLoop(const Statement& s, SequencePtr items, int depth0) {
  const Deeper deeper(this);
  if (s.expressions[1] != nullptr) items = FilterItems(s, items);
  const auto loop_symbol = program_.symbols.find("loop")->second;
  const auto loop = std::make_shared<LoopState>(items, depth0);
  if (s.recursive) loop->MakeRecursive(&s, scope_);
  // As in jinja2, an iteration that ends by break or continue does not count for the else.
  bool completed = false;
  for (size_t i = 0; i < items->items.size(); ++i) {
    Charge(1);
    loop->set_index0(i);
    const ScopeGuard scope(this, scope_, &s.shadowed[0]);
    Assign(s.targets[0], items->items[i]);
    scope_->Set(loop_symbol, Value(loop));
    const Flow flow = ExecuteBody(s.bodies[0]);
    if (flow == Flow::kBreak) break;
    completed = completed || flow == Flow::kNext;
  }
  if (completed || s.bodies[1].empty()) return Flow::kNext;
  const ScopeGuard scope(this, scope_, &s.shadowed[1]);
  return ExecuteBody(s.bodies[1]);
}

Value Interpreter::CallLoop(const Statement& loop, const ScopePtr& scope, int depth0,
                            const Value& items) {
  Capture capture(this);
  const ScopeGuard guard(this, scope, nullptr);
  RunLoop(loop, Iterate(items), depth0);
  return Text(std::move(capture.text));
}

std::string Interpreter::RenderBody(const Body& body, const Shadowed& shadowed) {
  Capture capture(this);
  const ScopeGuard scope(this, scope_, &shadowed);
  ExecuteBody(body);
  return std::move(capture.text);
}

Value Interpreter::MakeMacro(const MacroDefinition& macro) {
  captured_scopes_.push_back(scope_);
  return Value(CallablePtr(std::make_shared<MacroCallable>(&macro, scope_)));
}

void Interpreter::ExecuteCallBlock(const Statement& s) {
  const Expression& call = *s.expressions[0];
  const Value callee = Evaluate(*call.operands[0]);
  Arguments arguments = EvaluateArguments(call.arguments);
  arguments.named.emplace_back("caller", MakeMacro(*s.macro));
  line_ = s.line;
  Print(Call(callee, std::move(arguments)));
}

void Interpreter::ExecuteWith(const Statement& s) {
  std::vector<Value> values = EvaluateAll(s.expressions);
  const ScopeGuard scope(this, scope_, &s.shadowed[0]);
  for (size_t i = 0; i < values.size(); ++i) Assign(s.targets[i], values[i]);
  ExecuteBody(s.bodies[0]);
}

void Interpreter::Assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    if (const Str* text = value.str()) Charge(static_cast<int64_t>(text->text.size()));
    const SequencePtr items = Iterate(value);
    const size_t expected = target.elements.size();
    if (items->items.size() < expected) {
      Fail("ValueError", absl::StrCat("not enough values to unpack (expected ", expected, ", got ",
                                      items->items.size(), ")"));
    }
    if (items->items.size() > expected) {
      Fail("ValueError", absl::StrCat("too many values to unpack (expected ", expected, ")"));
    }
    for (size_t i = 0; i < expected; ++i) Assign(target.elements[i], items->items[i]);
    return;
  }
  if (target.attribute.empty()) return scope_->Set(target.symbol, value);
  const Value object = FindVariable(target.symbol);
  Namespace* ns = object.name_space();
  if (ns == nullptr) {
    Fail("TemplateRuntimeError", "cannot assign attribute on non-namespace object");
  }
  for (auto& [name, old] : ns->attributes) {
    if (name == target.attribute) {
      old = value;
      return;
    }
  }
  ns->attributes.emplace_back(target.attribute, value);
}

Value Interpreter::CallMacro(const MacroDefinition& macro, const ScopePtr& scope,
                             Arguments arguments) {
  const Deeper deeper(this);
  const int called_from = line_;
  Capture capture(this);
  const ScopeGuard guard(this, scope, &macro.shadowed);
  BindParameters(macro, std::move(arguments));
  ExecuteBody(macro.body);
  line_ = called_from;
  return Text(std::move(capture.text));
}

void Interpreter::BindParameters(const MacroDefinition& macro, Arguments arguments) {
  const std::string who = absl::StrCat("macro '", macro.name, "'");
  auto& named = arguments.named;
  const size_t count = macro.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  std::vector<bool> missing(count, false);
  for (size_t i = 0; i < count; ++i) {
    const Symbol symbol = macro.parameters[i];
    const std::string& name = program_.names[static_cast<size_t>(symbol)];
    Value value = Value::Undefined(absl::StrCat("parameter '", name, "' was not provided"));
    const auto by_name = std::find_if(named.begin(), named.end(),
                                      [&](const auto& entry) { return entry.first == name; });
    if (i < given) {
      value = arguments.positional[i];
    } else if (by_name != named.end()) {
      value = std::move(by_name->second);
      named.erase(by_name);
    } else {
      missing[i] = true;
    }
    scope_->Set(symbol, std::move(value));
  }
  if (macro.uses_caller) {
    const auto caller = std::find_if(named.begin(), named.end(),
                                     [](const auto& entry) { return entry.first == "caller"; });
    const bool given_caller = caller != named.end();
    scope_->Set(program_.symbols.find("caller")->second,
                given_caller ? caller->second : Value::Undefined("No caller defined"));
    if (given_caller) named.erase(caller);
  }
  if (macro.uses_kwargs) {
    Dict rest;
    for (auto& [name, value] : named) rest.Set(Value(name), std::move(value));
    scope_->Set(program_.symbols.find("kwargs")->second, Value::MakeDict(std::move(rest)));
  } else if (!named.empty()) {
    TypeError(absl::StrCat(who, " takes no keyword argument '", named[0].first, "'"));
  }
  if (macro.uses_varargs) {
    scope_->Set(program_.symbols.find("varargs")->second,
                Value::Tuple({arguments.positional.begin() + static_cast<int64_t>(given),
                              arguments.positional.end()}));
  } else if (arguments.positional.size() > count) {
    TypeError(absl::StrCat(who, " takes not more than ", count, " argument(s)"));
  }
  const size_t first_default = count - macro.defaults.size();
  for (size_t i = first_default; i < count; ++i) {
    if (missing[i]) scope_->Set(macro.parameters[i], Evaluate(*macro.defaults[i - first_default]));
  }
}

}  // namespace baton::jinja::internal
