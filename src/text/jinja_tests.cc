// The tests of the language ("x is NAME").
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace baton::jinja::internal {
namespace {

// Tests without arguments are predicates on the value alone.
template <bool (*kPredicate)(const Value&)>
bool Plain(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("test", arguments, {});
  if (v.str() != nullptr) in.Charge(v.weight());
  return kPredicate(v);
}

bool IsBoolean(const Value& v) { return v.is_bool(); }
bool IsCallable(const Value& v) {
  // Undefined and the loop object define __call__.
  return v.callable() != nullptr || v.undefined() != nullptr || v.loop() != nullptr;
}
bool IsDefined(const Value& v) { return v.undefined() == nullptr; }
bool IsUndefined(const Value& v) { return v.undefined() != nullptr; }
bool IsEscaped(const Value& v) { return v.str() != nullptr && v.str()->safe; }
bool IsFalse(const Value& v) { return v.is_bool() && !v.boolean(); }
bool IsTrue(const Value& v) { return v.is_bool() && v.boolean(); }
bool IsFloat(const Value& v) { return v.is_float(); }
bool IsInteger(const Value& v) { return v.is_int(); }
bool IsLower(const Value& v) { return IsLowerText(ToText(v)); }
bool IsUpper(const Value& v) { return IsUpperText(ToText(v)); }
bool IsMapping(const Value& v) { return v.dict() != nullptr; }
bool IsNone(const Value& v) { return v.is_none(); }
bool IsNumber(const Value& v) { return v.is_number(); }
bool IsString(const Value& v) { return v.str() != nullptr; }
// Has a length and a subscript: text, lists, dicts, and undefined.
bool IsSequence(const Value& v) {
  if (v.undefined() != nullptr || v.str() != nullptr || v.dict() != nullptr) return true;
  const Sequence* s = v.sequence();
  return s != nullptr && s->kind != SequenceKind::kView && s->kind != SequenceKind::kGenerator;
}

bool Modulo(Interpreter& in, const Value& v, int64_t divisor, int64_t remainder) {
  return Equal(in.Binary("%", v, Value(divisor)), Value(remainder));
}
bool Odd(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("odd", arguments, {});
  return Modulo(in, v, 2, 1);
}
bool Even(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("even", arguments, {});
  return Modulo(in, v, 2, 0);
}
bool DivisibleBy(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("divisibleby", arguments, {"num"}, 1);
  return Equal(in.Binary("%", v, *p[0]), Value(int64_t{0}));
}

bool IsFilter(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters none("filter", arguments, {});
  return v.str() != nullptr && FindFilter(v.str()->text) != nullptr;
}
bool IsTest(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters none("test", arguments, {});
  return v.str() != nullptr && FindTest(v.str()->text) != nullptr;
}

bool SameAs(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("sameas", arguments, {"other"}, 1);
  return v.SameAs(*p[0]);
}

bool Iterable(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters none("iterable", arguments, {});
  return IsIterable(v);
}

enum Operator { kEq, kNe, kLt, kLe, kGt, kGe, kIn };
template <Operator kOperator>
bool Comparison(Interpreter& in, const Value& v, const Arguments& arguments) {
  static constexpr std::string_view kNames[] = {"==", "!=", "<", "<=", ">", ">=", "in"};
  const Parameters p(kNames[kOperator], arguments, {"other"}, 1);
  return in.Compare(kNames[kOperator], v, *p[0]);
}

struct Entry {
  std::string_view name;
  TestFunction function;
};
constexpr Entry kTests[] = {
    {"!=", Comparison<kNe>},
    {"<", Comparison<kLt>},
    {"<=", Comparison<kLe>},
    {"==", Comparison<kEq>},
    {">", Comparison<kGt>},
    {">=", Comparison<kGe>},
    {"boolean", Plain<IsBoolean>},
    {"callable", Plain<IsCallable>},
    {"defined", Plain<IsDefined>},
    {"divisibleby", DivisibleBy},
    {"eq", Comparison<kEq>},
    {"equalto", Comparison<kEq>},
    {"escaped", Plain<IsEscaped>},
    {"even", Even},
    {"false", Plain<IsFalse>},
    {"filter", IsFilter},
    {"float", Plain<IsFloat>},
    {"ge", Comparison<kGe>},
    {"greaterthan", Comparison<kGt>},
    {"gt", Comparison<kGt>},
    {"in", Comparison<kIn>},
    {"integer", Plain<IsInteger>},
    {"iterable", Iterable},
    {"le", Comparison<kLe>},
    {"lessthan", Comparison<kLt>},
    {"lower", Plain<IsLower>},
    {"lt", Comparison<kLt>},
    {"mapping", Plain<IsMapping>},
    {"ne", Comparison<kNe>},
    {"none", Plain<IsNone>},
    {"number", Plain<IsNumber>},
    {"odd", Odd},
    {"sameas", SameAs},
    {"sequence", Plain<IsSequence>},
    {"string", Plain<IsString>},
    {"test", IsTest},
    {"true", Plain<IsTrue>},
    {"undefined", Plain<IsUndefined>},
    {"upper", Plain<IsUpper>},
};

}  // namespace

TestFunction FindTest(std::string_view name) {
  const auto* it = std::find_if(std::begin(kTests), std::end(kTests),
                                [&](const Entry& e) { return e.name == name; });
  return it == std::end(kTests) ? nullptr : it->function;
}

}  // namespace baton::jinja::internal
