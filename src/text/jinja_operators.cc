// Arithmetic and comparison of jinja_interpreter.h, as Python's operators.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace baton::jinja::internal {
namespace {

[[noreturn]] void Unfit(std::string_view op, const Value& a, const Value& b) {
  TypeError(absl::StrCat("unsupported operand type(s) for ", std::string(op), ": '", TypeName(a),
                         "' and '", TypeName(b), "'"));
}

[[noreturn]] void Overflow() { Fail("OverflowError", "an integer result is beyond 64 bits"); }

int64_t FloorDivide(int64_t a, int64_t b) {
  if (b == 0) Fail("ZeroDivisionError", "integer division or modulo by zero");
  if (a == std::numeric_limits<int64_t>::min() && b == -1) Overflow();
  const int64_t q = a / b;
  return (a % b != 0 && ((a < 0) != (b < 0))) ? q - 1 : q;
}

int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == 0) Fail("ZeroDivisionError", "integer division or modulo by zero");
  if (b == -1) return 0;
  const int64_t r = a % b;
  return (r != 0 && ((r < 0) != (b < 0))) ? r + b : r;
}

double FloatModulo(double a, double b) {
  if (b == 0) Fail("ZeroDivisionError", "float modulo");
  double r = std::fmod(a, b);
  if (r != 0 && (r < 0) != (b < 0)) r += b;
  return r == 0 ? std::copysign(0.0, b) : r;
}

Value IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) Fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value(exponent == 0 ? int64_t{1} : base);
  if (base == -1) return Value(exponent % 2 == 0 ? int64_t{1} : int64_t{-1});
  int64_t result = 1;
  for (int64_t i = 0; i < exponent; ++i) {  // overflows within 64 rounds
    if (__builtin_mul_overflow(result, base, &result)) Overflow();
  }
  return Value(result);
}

Value IntegerArithmetic(std::string_view op, int64_t a, int64_t b) {
  int64_t result = 0;
  if (op == "+") {
    if (__builtin_add_overflow(a, b, &result)) Overflow();
  } else if (op == "-") {
    if (__builtin_sub_overflow(a, b, &result)) Overflow();
  } else if (op == "*") {
    if (__builtin_mul_overflow(a, b, &result)) Overflow();
  } else if (op == "//") {
    result = FloorDivide(a, b);
  } else if (op == "%") {
    result = FloorModulo(a, b);
  } else if (op == "**") {
    return IntegerPower(a, b);
  } else {
    if (b == 0) Fail("ZeroDivisionError", "division by zero");
    return Value(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
  }
  return Value(result);
}

Value FloatArithmetic(std::string_view op, double a, double b) {
  if (op == "+") return Value(a + b);
  if (op == "-") return Value(a - b);
  if (op == "*") return Value(a * b);
  if (op == "%") return Value(FloatModulo(a, b));
  if (op == "**") {
    if (a == 0 && b < 0) Fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
    if (a < 0 && b != std::floor(b)) Unsupported("a complex number");
    const double result = std::pow(a, b);
    if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
      Fail("OverflowError", "(34, 'Numerical result out of range')");
    }
    return Value(result);
  }
  if (b == 0)
    Fail("ZeroDivisionError",
         op == "/" ? "float division by zero" : "float floor division by zero");
  if (op == "/") return Value(a / b);
  // Python's float floor division, exact where a / b rounds up to an integer.
  const double quotient = (a - FloatModulo(a, b)) / b;
  if (quotient == 0) return Value(std::copysign(0.0, a / b));
  const double floored = std::floor(quotient);
  return Value(quotient - floored > 0.5 ? floored + 1.0 : floored);
}

}  // namespace

Value Interpreter::Repeat(const Value& left, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (const Str* text = left.str()) {
    const size_t bytes = text->text.size();
    if (bytes == 0 || times == 0) return Value("", text->safe);
    if (static_cast<uint64_t>(times) > text_bytes_max() / bytes) CheckTextSize(SIZE_MAX);
    std::string out;
    out.reserve(bytes * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) out += text->text;
    return Text(std::move(out), text->safe);
  }
  const Sequence* sequence = left.sequence();
  const auto count = static_cast<int64_t>(sequence->items.size());
  if (count > 0 && times > input_.limits.steps_max / count) Charge(input_.limits.steps_max + 1);
  Charge(count * times);
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count * times));
  for (int64_t i = 0; i < times; ++i) {
    items.insert(items.end(), sequence->items.begin(), sequence->items.end());
  }
  return Value::MakeSequence(sequence->kind, std::move(items));
}

Value Interpreter::Add(const Value& left, const Value& right) {
  const Str* a = left.str();
  const Str* b = right.str();
  if (a != nullptr && b != nullptr) {
    CheckTextSize(a->text.size() + b->text.size());
    if (a->safe == b->safe) return Text(a->text + b->text, a->safe);
    // Markup escapes plain text that joins it, on either side.
    return a->safe ? Text(a->text + EscapeHtml(b->text), true)
                   : Text(EscapeHtml(a->text) + b->text, true);
  }
  if ((left.is_list() && right.is_list()) || (left.is_tuple() && right.is_tuple())) {
    std::vector<Value> items = left.sequence()->items;
    const std::vector<Value>& more = right.sequence()->items;
    Charge(static_cast<int64_t>(items.size() + more.size()));
    items.insert(items.end(), more.begin(), more.end());
    return Value::MakeSequence(left.sequence()->kind, std::move(items));
  }
  if (a != nullptr) {
    TypeError(absl::StrCat("can only concatenate str (not \"", TypeName(right), "\") to str"));
  }
  if (left.is_list() || left.is_tuple()) {
    TypeError(absl::StrCat("can only concatenate ", TypeName(left), " (not \"", TypeName(right),
                           "\") to ", TypeName(left)));
  }
  Unfit("+", left, right);
}

Value Interpreter::Binary(std::string_view op, const Value& left, const Value& right) {
  RequireDefined(left);
  if (op == "%" && left.str() != nullptr)
    return Text(FormatPercent(*this, left.str()->text, right));
  RequireDefined(right);
  if (left.is_number() && right.is_number()) {
    if (left.is_integral() && right.is_integral()) {
      return IntegerArithmetic(op, left.integer(), right.integer());
    }
    return FloatArithmetic(op, left.number(), right.number());
  }
  if (op == "+") return Add(left, right);
  if (op == "*") {
    const auto repeatable = [](const Value& v) {
      return v.str() != nullptr || v.is_list() || v.is_tuple();
    };
    if (repeatable(left) && right.is_integral()) return Repeat(left, right.integer());
    if (repeatable(right) && left.is_integral()) return Repeat(right, left.integer());
  }
  Unfit(op == "**" ? "** or pow()" : op, left, right);
}

bool Interpreter::Compare(std::string_view op, const Value& left, const Value& right) {
  if (op == "in" || op == "not in") {
    if (right.is_generator()) Materialize(*right.sequence());  // its size is part of the cost
    int64_t cost = right.weight();
    if (right.dict() != nullptr) {
      cost = left.str() != nullptr ? 1 : static_cast<int64_t>(right.dict()->entries().size());
    } else if (const Sequence* s = right.sequence()) {
      cost = static_cast<int64_t>(s->items.size()) * left.weight();
    }
    Charge(std::min(cost, std::max(right.weight(), left.weight())));
    return Contains(right, left) == (op == "in");
  }
  Charge(std::min(left.weight(), right.weight()));
  if (op == "==") return Equal(left, right);
  if (op == "!=") return !Equal(left, right);
  if (op == "<") return Less(left, right, "<");
  if (op == ">") return Less(right, left, ">");
  const bool less = op == "<=" ? Less(left, right, "<=") : Less(right, left, ">=");
  return less || Equal(left, right);
}

}  // namespace baton::jinja::internal
