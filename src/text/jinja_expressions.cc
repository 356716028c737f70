#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace baton::jinja::internal {
namespace {

// How jinja2 names an object in the message of an undefined attribute.
std::string ObjectName(const Value& object) {
  return object.is_none() ? "None" : absl::StrCat(TypeName(object), " object");
}

Value NoAttribute(const Value& object, std::string_view name) {
  return Value::Undefined(
      absl::StrCat("'", ObjectName(object), "' has no attribute ", StringRepr(name)));
}

Value NoElement(const Value& object, const Value& key) {
  if (key.str() != nullptr) return NoAttribute(object, key.str()->text);
  return Value::Undefined(absl::StrCat(ObjectName(object), " has no element ", Repr(key)));
}

// Python's names that lead out of a sandbox. Whether the type really has this one only changes
// what using it says.
bool IsPrivate(std::string_view name) { return name.substr(0, 2) == "__"; }

bool HasSubscript(const Sequence& s) {
  return s.kind == SequenceKind::kList || s.kind == SequenceKind::kTuple ||
         s.kind == SequenceKind::kRange;
}

}  // namespace

Value Interpreter::Evaluate(const Expression& e) {
  const Deeper deeper(this);
  Charge(1);
  line_ = e.line;
  switch (e.type) {
    case ExpressionType::kConstant:
      return e.constant;
    case ExpressionType::kName:
      return EvaluateName(e);
    case ExpressionType::kTuple:
      return Value::Tuple(EvaluateAll(e.operands));
    case ExpressionType::kList:
      return Value::List(EvaluateAll(e.operands));
    case ExpressionType::kDict:
      return EvaluateDict(e);
    case ExpressionType::kAttribute: {
      const Value object = Evaluate(*e.operands[0]);
      line_ = e.line;
      return GetAttribute(object, e.text);
    }
    case ExpressionType::kItem: {
      const Value object = Evaluate(*e.operands[0]);
      const Value key = Evaluate(*e.operands[1]);
      line_ = e.line;
      return GetItem(object, key);
    }
    case ExpressionType::kSlice:
      return EvaluateSlice(e);
    case ExpressionType::kCall: {
      const Value callee = Evaluate(*e.operands[0]);
      Arguments arguments = EvaluateArguments(e.arguments);
      line_ = e.line;
      return Call(callee, std::move(arguments));
    }
    case ExpressionType::kFilter:
      return EvaluateFilter(e, nullptr);
    case ExpressionType::kTest: {
      const Value operand = Evaluate(*e.operands[0]);
      const Arguments arguments = EvaluateArguments(e.arguments);
      line_ = e.line;
      return Value(ApplyTest(e.text, operand, arguments));
    }
    case ExpressionType::kNot:
      return Value(!Truth(Evaluate(*e.operands[0])));
    case ExpressionType::kNegate:
    case ExpressionType::kPlus:
      return EvaluateUnary(e);
    case ExpressionType::kAnd: {
      Value left = Evaluate(*e.operands[0]);
      return Truth(left) ? Evaluate(*e.operands[1]) : std::move(left);
    }
    case ExpressionType::kOr: {
      Value left = Evaluate(*e.operands[0]);
      return Truth(left) ? std::move(left) : Evaluate(*e.operands[1]);
    }
    case ExpressionType::kBinary: {
      const Value left = Evaluate(*e.operands[0]);
      const Value right = Evaluate(*e.operands[1]);
      line_ = e.line;
      return Binary(e.text, left, right);
    }
    case ExpressionType::kConcat:
      return EvaluateConcat(e);
    case ExpressionType::kCompare:
      return EvaluateCompare(e);
    case ExpressionType::kCondition:
      if (Truth(Evaluate(*e.operands[1]))) return Evaluate(*e.operands[0]);
      if (e.operands[2] != nullptr) return Evaluate(*e.operands[2]);
      return Value::Undefined(absl::StrCat("the inline if-expression on line ", e.line,
                                           " evaluated to false and no else section was defined."));
  }
  return Value();
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExpressionPtr>& expressions) {
  std::vector<Value> values;
  values.reserve(expressions.size());
  for (const auto& e : expressions) values.push_back(Evaluate(*e));
  return values;
}

Value Interpreter::FindVariable(Symbol symbol) {
  for (Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    if (const Value* value = scope->Find(symbol)) return *value;
    const Shadowed* shadowed = scope->shadowed;
    if (shadowed != nullptr &&
        std::find(shadowed->begin(), shadowed->end(), symbol) != shadowed->end()) {
      break;
    }
    if (scope->parent != nullptr) continue;
    const std::string& name = program_.names[static_cast<size_t>(symbol)];
    if (const Value* value = context_.Find(name)) return *value;
    if (std::optional<Value> global = FindGlobal(name)) return *std::move(global);
  }
  return Value::Undefined(
      absl::StrCat("'", program_.names[static_cast<size_t>(symbol)], "' is undefined"));
}

Value Interpreter::EvaluateName(const Expression& e) { return FindVariable(e.symbol); }

Value Interpreter::EvaluateDict(const Expression& e) {
  Dict dict;
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    Value key = Evaluate(*e.operands[i]);
    Value value = Evaluate(*e.operands[i + 1]);
    if (!IsHashable(key)) TypeError(absl::StrCat("unhashable type: '", TypeName(key), "'"));
    dict.Set(std::move(key), std::move(value));
  }
  return Value::MakeDict(std::move(dict));
}

Value Interpreter::EvaluateConcat(const Expression& e) {
  std::string out;
  for (const auto& operand : e.operands) {
    const Value value = Evaluate(*operand);
    Charge(value.weight());
    out += ToText(value);
    CheckTextSize(out.size());
  }
  return Text(std::move(out));
}

Value Interpreter::EvaluateUnary(const Expression& e) {
  const Value operand = Evaluate(*e.operands[0]);
  line_ = e.line;
  RequireDefined(operand);
  const bool negate = e.type == ExpressionType::kNegate;
  if (!operand.is_number()) {
    TypeError(absl::StrCat("bad operand type for unary ", negate ? "-" : "+", ": '",
                           TypeName(operand), "'"));
  }
  if (operand.is_float()) return Value(negate ? -operand.number() : operand.number());
  return negate ? Binary("-", Value(int64_t{0}), operand) : Value(operand.integer());
}

Value Interpreter::EvaluateCompare(const Expression& e) {
  Value left = Evaluate(*e.operands[0]);
  bool result = true;
  for (size_t i = 0; i < e.comparisons.size() && result; ++i) {
    Value right = Evaluate(*e.operands[i + 1]);
    line_ = e.line;
    result = Compare(e.comparisons[i], left, right);
    left = std::move(right);
  }
  return Value(result);
}

Arguments Interpreter::EvaluateArguments(const CallArguments& call) {
  Arguments arguments;
  arguments.positional = EvaluateAll(call.positional);
  for (const auto& [name, e] : call.named) arguments.named.emplace_back(name, Evaluate(*e));
  if (call.star != nullptr) {
    const SequencePtr items = Iterate(Evaluate(*call.star));
    Charge(static_cast<int64_t>(items->items.size()));
    arguments.positional.insert(arguments.positional.end(), items->items.begin(),
                                items->items.end());
  }
  if (call.double_star != nullptr) {
    const Value value = Evaluate(*call.double_star);
    const Dict* dict = value.dict();
    if (dict == nullptr) TypeError("argument after ** must be a mapping");
    for (const auto& [key, item] : dict->entries()) {
      if (key.str() == nullptr) TypeError("keywords must be strings");
      arguments.named.emplace_back(key.str()->text, item);
    }
  }
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    Charge(static_cast<int64_t>(i));
    for (size_t k = 0; k < i; ++k) {
      if (arguments.named[k].first == arguments.named[i].first) {
        TypeError(absl::StrCat("got multiple values for keyword argument '",
                               arguments.named[i].first, "'"));
      }
    }
  }
  return arguments;
}

Value Interpreter::EvaluateFilter(const Expression& e, const Value* block_text) {
  // The innermost filter of a filter block has no operand: it takes the block's text.
  Value operand;
  if (e.operands[0] == nullptr) {
    operand = *block_text;
  } else if (block_text != nullptr) {
    operand = EvaluateFilter(*e.operands[0], block_text);
  } else {
    operand = Evaluate(*e.operands[0]);
  }
  const Arguments arguments = EvaluateArguments(e.arguments);
  line_ = e.line;
  return ApplyFilter(e.text, operand, arguments);
}

Value Interpreter::ApplyFilter(std::string_view name, const Value& operand,
                               const Arguments& arguments) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) {
    Fail("TemplateRuntimeError", absl::StrCat("No filter named '", std::string(name), "'."));
  }
  Charge(1);
  return filter(*this, operand, arguments);
}

bool Interpreter::ApplyTest(std::string_view name, const Value& operand,
                            const Arguments& arguments) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) {
    Fail("TemplateRuntimeError", absl::StrCat("No test named '", std::string(name), "'."));
  }
  Charge(1);
  return test(*this, operand, arguments);
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  RequireDefined(callee);
  Charge(1);
  if (const LoopState* loop = callee.loop()) {
    if (loop->statement() == nullptr) {
      TypeError("The loop must have the 'recursive' marker to be called recursively.");
    }
    if (arguments.positional.size() != 1 || !arguments.named.empty()) {
      TypeError("loop() takes one argument");
    }
    const int line = line_;
    Value text = CallLoop(*loop->statement(), loop->scope(), loop->depth0() + 1,
                          arguments.positional[0]);
    line_ = line;
    return text;
  }
  if (callee.callable() == nullptr) {
    TypeError(absl::StrCat("'", TypeName(callee), "' object is not callable"));
  }
  return callee.callable()->Call(*this, std::move(arguments));
}

Value Interpreter::GetAttribute(const Value& object, std::string_view name) {
  RequireDefined(object);
  if (IsPrivate(name) && (object.dict() == nullptr || object.dict()->Find(name) == nullptr)) {
    return Value::Undefined(absl::StrCat("access to attribute ", StringRepr(name), " of '",
                                         TypeName(object), "' object is unsafe."),
                            true);
  }
  if (const Namespace* ns = object.name_space()) {
    for (const auto& [key, value] : ns->attributes) {
      if (key == name) return value;
    }
    return NoAttribute(object, name);
  }
  if (const LoopState* loop = object.loop()) {
    if (std::optional<Value> value = loop->Attribute(name)) return *std::move(value);
  }
  if (std::optional<Value> method = FindMethod(object, name)) return *std::move(method);
  if (const Dict* dict = object.dict()) {
    if (const Value* value = dict->Find(name)) return *value;
  }
  return NoAttribute(object, name);
}

Value Interpreter::GetItem(const Value& object, const Value& key) {
  RequireDefined(object);
  if (const Dict* dict = object.dict()) {
    if (IsHashable(key)) {
      if (key.str() == nullptr) Charge(static_cast<int64_t>(dict->entries().size()));
      if (const Value* value = dict->Find(key)) return *value;
    }
  } else if (key.is_integral()) {
    const bool is_text = object.str() != nullptr;
    if (is_text || (object.sequence() != nullptr && HasSubscript(*object.sequence()))) {
      const int64_t length = Length(object);
      if (is_text) Charge(TextWeight(object.str()->text.size()));
      const int64_t i = key.integer() < 0 ? key.integer() + length : key.integer();
      if (i < 0 || i >= length) return NoElement(object, key);
      const auto at = static_cast<size_t>(i);
      if (!is_text) return object.sequence()->items[at];
      return Text(std::string(SubstringByCodePoint(object.str()->text, at, at + 1)),
                  object.str()->safe);
    }
  }
  if (key.str() != nullptr) {
    const std::string& name = key.str()->text;
    if (object.name_space() != nullptr || object.loop() != nullptr || IsPrivate(name)) {
      return GetAttribute(object, name);
    }
    if (std::optional<Value> method = FindMethod(object, name)) return *std::move(method);
  }
  return NoElement(object, key);
}

Value Interpreter::EvaluateSlice(const Expression& e) {
  const Value object = Evaluate(*e.operands[0]);
  Value bounds[3];
  const Value* given[3] = {};
  for (size_t i = 0; i < 3; ++i) {
    if (e.operands[i + 1] == nullptr) continue;
    bounds[i] = Evaluate(*e.operands[i + 1]);
    given[i] = &bounds[i];
  }
  line_ = e.line;
  return Slice(object, given[0], given[1], given[2]);
}

Value Interpreter::Slice(const Value& object, const Value* from, const Value* to,
                         const Value* step) {
  RequireDefined(object);
  const Str* text = object.str();
  const Sequence* sequence = object.sequence();
  const bool sliceable = text != nullptr || (sequence != nullptr && HasSubscript(*sequence));
  const auto bound = [](const Value* v, int64_t otherwise) -> std::optional<int64_t> {
    if (v == nullptr || v->is_none()) return otherwise;
    if (!v->is_integral()) return std::nullopt;
    return v->integer();
  };
  const int64_t length = sliceable ? Length(object) : 0;
  const std::optional<int64_t> stride = bound(step, 1);
  const bool backward = stride.has_value() && *stride < 0;
  std::optional<int64_t> begin = bound(from, backward ? length - 1 : 0);
  std::optional<int64_t> end = bound(to, backward ? -length - 1 : length);
  // Unlike other subscripts, slices go to Python as they are.
  if (!sliceable) {
    TypeError(object.dict() != nullptr
                  ? "unhashable type: 'slice'"
                  : absl::StrCat("'", TypeName(object), "' object is not subscriptable"));
  }
  if (!stride || !begin || !end) {
    TypeError("slice indices must be integers or None or have an __index__ method");
  }
  if (*stride == 0) Fail("ValueError", "slice step cannot be zero");
  const auto clamp = [&](int64_t i) {
    if (i < 0) i += length;
    return std::clamp<int64_t>(i, backward ? -1 : 0, backward ? length - 1 : length);
  };
  *begin = clamp(*begin);
  *end = clamp(*end);
  std::vector<int64_t> indices;
  for (int64_t i = *begin; backward ? i > *end : i < *end;) {
    indices.push_back(i);
    if (backward ? i + *stride >= i : *stride > INT64_MAX - i) break;
    i += *stride;
  }
  Charge(static_cast<int64_t>(indices.size()));
  if (sequence != nullptr) {
    std::vector<Value> items;
    items.reserve(indices.size());
    for (const int64_t i : indices) items.push_back(sequence->items[static_cast<size_t>(i)]);
    return Value::MakeSequence(sequence->kind, std::move(items));
  }
  if (*stride == 1) {
    return Text(std::string(SubstringByCodePoint(text->text, static_cast<size_t>(*begin),
                                                 static_cast<size_t>(std::max(*begin, *end)))),
                text->safe);
  }
  const SequencePtr characters = Iterate(object);
  Charge(length);
  std::string out;
  for (const int64_t i : indices) out += ToText(characters->items[static_cast<size_t>(i)]);
  return Text(std::move(out), text->safe);
}

Value Interpreter::NewNamespace(Namespace contents) {
  namespaces_.push_back(std::make_shared<Namespace>(std::move(contents)));
  return Value(namespaces_.back());
}

}  // namespace baton::jinja::internal
