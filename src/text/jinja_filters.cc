// Filters on text, numbers and single values, and the table of all filters.
#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace baton::jinja::internal {
namespace {

// jinja2's soft_str: text stays what it is (markup stays markup), all else becomes str().
Value SoftText(Interpreter& in, const Value& v) {
  if (v.str() != nullptr) return v;
  in.Charge(v.weight());
  return in.Text(ToText(v));
}

// A text filter that maps the text and keeps its safe mark.
template <class Fn>
Value MapText(Interpreter& in, const Value& operand, const Fn& fn) {
  const Value text = SoftText(in, operand);
  in.Charge(text.weight());
  return in.Text(std::string(fn(text.str()->text)), text.str()->safe);
}

Value Abs(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters none("abs", arguments, {});
  RequireDefined(v);
  if (!v.is_number()) {
    TypeError(absl::StrCat("bad operand type for abs(): '", TypeName(v), "'"));
  }
  if (v.is_float()) return Value(std::fabs(v.number()));
  if (v.integer() == INT64_MIN) Fail("OverflowError", "an integer result is beyond 64 bits");
  return Value(std::abs(v.integer()));
}

Value Attr(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("attr", arguments, {"name"}, 1);
  // As a.name, without falling back to a["name"].
  if (v.dict() != nullptr && !FindMethod(v, p.Text(0)).has_value()) {
    return Value::Undefined(absl::StrCat("'dict object' has no attribute ", StringRepr(p.Text(0))));
  }
  return in.GetAttribute(v, p.Text(0));
}

Value Capitalize(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("capitalize", arguments, {});
  return MapText(in, v, ToCapitalized);
}

Value Center(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("center", arguments, {"width"});
  Arguments width;
  width.positional.push_back(Value(p.Integer(0, 80)));
  return FindTextMethod("center")(in, SoftText(in, v), width);
}

Value Default(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  const bool use = v.undefined() != nullptr || (p.Boolean(1, false) && !Truth(v));
  if (!use) return v;
  return p.Has(0) ? *p[0] : Value(std::string());
}

Value Escape(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("escape", arguments, {});
  if (v.str() != nullptr && v.str()->safe) return v;
  in.Charge(v.weight());
  return in.Text(EscapeHtml(ToText(v)), true);
}

Value ForceEscape(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("forceescape", arguments, {});
  in.Charge(v.weight());
  return in.Text(EscapeHtml(ToText(v)), true);
}

Value Float(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("float", arguments, {"default"});
  if (v.is_number()) return Value(v.number());
  if (const Str* text = v.str()) {
    if (const std::optional<double> parsed = ParseFloat(text->text)) return Value(*parsed);
  }
  RequireDefined(v);
  return p.Has(0) ? *p[0] : Value(0.0);
}

Value Int(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("int", arguments, {"default", "base"});
  const Value otherwise = p.Has(0) ? *p[0] : Value(int64_t{0});
  if (v.is_integral()) return Value(v.integer());
  std::optional<double> number;
  if (v.is_float()) number = v.number();
  if (const Str* text = v.str()) {
    const int64_t base = p.Integer(1, 10);
    if (base == 0 || (base >= 2 && base <= 36)) {
      if (const auto parsed = ParseInt(text->text, static_cast<int>(base))) return Value(*parsed);
    }
    number = ParseFloat(text->text);
  }
  RequireDefined(v);
  if (!number.has_value() || std::isnan(*number)) return otherwise;
  if (std::isinf(*number)) Fail("OverflowError", "cannot convert float infinity to integer");
  if (std::fabs(*number) >= 9.2e18) Fail("OverflowError", "an integer is beyond 64 bits");
  return Value(static_cast<int64_t>(*number));
}

Value Format(Interpreter& in, const Value& v, const Arguments& arguments) {
  if (!arguments.named.empty()) Unsupported("the format filter with keyword arguments");
  return in.Text(FormatPercent(in, ToText(v), Value::Tuple(arguments.positional)));
}

Value Indent(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("indent", arguments, {"width", "first", "blank"});
  RequireDefined(v);
  if (v.str() == nullptr) TypeError(absl::StrCat("cannot indent '", TypeName(v), "'"));
  std::string indention;
  if (p.Has(0) && p[0]->str() != nullptr) {
    indention = p[0]->str()->text;
  } else {
    const int64_t width = std::max<int64_t>(p.Integer(0, 4), 0);
    in.CheckTextSize(static_cast<size_t>(width));
    indention.assign(static_cast<size_t>(width), ' ');
  }
  if (v.str()->safe && p.Has(0) && p[0]->str() != nullptr && !p[0]->str()->safe) {
    Unsupported("indenting markup by plain text");
  }
  in.Charge(v.weight());
  const bool blank = p.Boolean(2, false);
  std::string out;
  bool first_line = true;
  for (const std::string& line : SplitLines(v.str()->text + "\n", false)) {
    if (!first_line) out += "\n";
    if (first_line ? p.Boolean(1, false) : (blank || !line.empty())) out += indention;
    out += line;
    in.CheckTextSize(out.size());
    first_line = false;
  }
  return in.Text(std::move(out), v.str()->safe);
}

Value LengthFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("length", arguments, {});
  if (const Str* text = v.str()) in.Charge(TextWeight(text->text.size()));
  return Value(Length(v));
}

Value Lower(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("lower", arguments, {});
  return MapText(in, v, ToLower);
}

Value Upper(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("upper", arguments, {});
  return MapText(in, v, ToUpper);
}

Value ReplaceFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  in.Charge(v.weight());
  return in.Text(Replace(ToText(v), ToText(*p[0]), ToText(*p[1]),
                         p.HasValue(2) ? p.Integer(2, -1) : -1, in.text_bytes_max()));
}

Value Round(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("round", arguments, {"precision", "method"});
  if (!v.is_number()) {
    TypeError(absl::StrCat("type ", TypeName(v), " doesn't define __round__ method"));
  }
  const int64_t precision = p.Integer(0, 0);
  const std::string method = p.Has(1) ? p.Text(1) : "common";
  if (std::abs(precision) > 300) Unsupported("rounding to so many digits");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  if (method == "ceil") return Value(std::ceil(v.number() * scale) / scale);
  if (method == "floor") return Value(std::floor(v.number() * scale) / scale);
  if (method != "common") {
    Fail("FilterArgumentError", "method must be common, ceil or floor");
  }
  if (v.is_integral()) {
    if (precision >= 0) return Value(v.integer());
    Unsupported("rounding integers to tens");
  }
  if (!std::isfinite(v.number())) return v;
  if (precision < 0) return Value(std::nearbyint(v.number() * scale) / scale);
  // Correctly rounded decimal, then read back: what Python's round does.
  const int digits = static_cast<int>(std::min<int64_t>(precision, 30));
  const int size = std::snprintf(nullptr, 0, "%.*f", digits, v.number());
  std::string text(static_cast<size_t>(size) + 1, '\0');
  std::snprintf(text.data(), text.size(), "%.*f", digits, v.number());
  text.pop_back();
  return Value(*ParseFloat(text));
}

Value Safe(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("safe", arguments, {});
  in.Charge(v.weight());
  return in.Text(ToText(v), true);
}

Value StringFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("string", arguments, {});
  return SoftText(in, v);
}

// jinja2's own title: a word starts behind white space, a hyphen or an opening bracket.
Value Title(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("title", arguments, {});
  Value titled = MapText(in, v, [](const std::string& text) {
    const auto is_separator = [](char32_t c) {
      return c == '-' || c == '(' || c == '{' || c == '[' || c == '<' || IsPythonSpace(c);
    };
    std::string out;
    for (size_t pos = 0; pos < text.size();) {
      // A run of separators or a word; its first code point in upper case, the rest in lower.
      size_t end = pos;
      size_t first_end = 0;
      bool separators = false;
      while (end < text.size()) {
        size_t next = end;
        const bool is = is_separator(NextCodePoint(text, &next));
        if (end == pos) {
          separators = is;
          first_end = next;
        } else if (is != separators) {
          break;
        }
        end = next;
      }
      out += ToUpper(std::string_view(text).substr(pos, first_end - pos));
      out += ToLower(std::string_view(text).substr(first_end, end - first_end));
      pos = end;
    }
    return out;
  });
  return in.Text(titled.str()->text);
}

Value ToJsonFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonOptions options;
  options.ensure_ascii = p.Boolean(0, false);
  options.sort_keys = p.Boolean(3, false);
  options.bytes_max = in.text_bytes_max();
  if (p.HasValue(1)) {
    if (const Str* text = p[1]->str()) {
      options.indent = text->text;
    } else {
      options.indent = std::string(
          static_cast<size_t>(std::clamp<int64_t>(p.Integer(1, 0), 0, 1000)), ' ');
    }
    options.item_separator = ",";
  }
  if (p.HasValue(2)) {
    const Sequence* pair = p[2]->sequence();
    if (pair == nullptr || pair->items.size() != 2 || pair->items[0].str() == nullptr ||
        pair->items[1].str() == nullptr) {
      TypeError("separators must be a pair of texts");
    }
    options.item_separator = pair->items[0].str()->text;
    options.key_separator = pair->items[1].str()->text;
  }
  in.Charge(v.weight());
  return in.Text(ToJson(v, options));
}

Value Trim(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("trim", arguments, {"chars"});
  std::optional<std::string_view> chars;
  if (p.HasValue(0)) chars = p.Text(0);
  return MapText(in, v, [&](const std::string& t) { return StripChars(t, chars, true, true); });
}

Value Truncate(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("truncate", arguments, {"length", "killwords", "end", "leeway"});
  const int64_t length = p.Integer(0, 255);
  const Value end = p.Has(2) ? *p[2] : Value("...");
  const int64_t leeway = p.HasValue(3) ? p.Integer(3, 5) : 5;
  if (length < Length(end) || leeway < 0) {
    Fail("AssertionError", "truncate: length must hold the end text, leeway must not be negative");
  }
  in.Charge(v.weight());
  if (Length(v) <= length + leeway) return v;
  if (v.str() == nullptr) TypeError(absl::StrCat("cannot truncate '", TypeName(v), "'"));
  const auto keep = static_cast<size_t>(length - Length(end));
  std::string_view head = SubstringByCodePoint(v.str()->text, 0, keep);
  if (!p.Boolean(1, false)) head = head.substr(0, head.rfind(' '));
  return in.Text(absl::StrCat(std::string(head), ToText(end)), v.str()->safe);
}

Value WordCount(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("wordcount", arguments, {});
  const Value text = SoftText(in, v);
  in.Charge(text.weight());
  int64_t count = 0;
  bool in_word = false;
  for (size_t pos = 0; pos < text.str()->text.size();) {
    const size_t begin = pos;
    NextCodePoint(text.str()->text, &pos);
    const std::string_view c = std::string_view(text.str()->text).substr(begin, pos - begin);
    const bool word = c == "_" || IsAlnumText(c);
    count += word && !in_word;
    in_word = word;
  }
  return Value(count);
}

template <int kWhich>
Value UnsupportedFilter(Interpreter&, const Value&, const Arguments&) {
  static constexpr const char* kNames[] = {"filesizeformat", "pprint",   "random",    "striptags",
                                           "urlencode",      "urlize",   "wordwrap",  "xmlattr"};
  Unsupported(absl::StrCat("the filter '", kNames[kWhich], "'"));
}

struct Entry {
  std::string_view name;
  FilterFunction function;
};
constexpr Entry kFilters[] = {
    {"abs", Abs},
    {"attr", Attr},
    {"capitalize", Capitalize},
    {"center", Center},
    {"count", LengthFilter},
    {"d", Default},
    {"default", Default},
    {"e", Escape},
    {"escape", Escape},
    {"filesizeformat", UnsupportedFilter<0>},
    {"float", Float},
    {"forceescape", ForceEscape},
    {"format", Format},
    {"indent", Indent},
    {"int", Int},
    {"length", LengthFilter},
    {"lower", Lower},
    {"pprint", UnsupportedFilter<1>},
    {"random", UnsupportedFilter<2>},
    {"replace", ReplaceFilter},
    {"round", Round},
    {"safe", Safe},
    {"string", StringFilter},
    {"striptags", UnsupportedFilter<3>},
    {"title", Title},
    {"tojson", ToJsonFilter},
    {"trim", Trim},
    {"truncate", Truncate},
    {"upper", Upper},
    {"urlencode", UnsupportedFilter<4>},
    {"urlize", UnsupportedFilter<5>},
    {"wordcount", WordCount},
    {"wordwrap", UnsupportedFilter<6>},
    {"xmlattr", UnsupportedFilter<7>},
};

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const Entry& e) { return e.name == name; });
  return it == std::end(kFilters) ? nullptr : it->function;
}

FilterFunction FindFilter(std::string_view name) {
  const FilterFunction found = FindTextFilter(name);
  return found != nullptr ? found : FindSequenceFilter(name);
}

}  // namespace baton::jinja::internal
