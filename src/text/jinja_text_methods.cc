// Methods of str, and printf-style formatting.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace baton::jinja::internal {
namespace {

const std::string& TextOf(const Value& self) { return self.str()->text; }

// Markup's methods escape plain text arguments; a template that meets this is not a chat template.
void RefuseForMarkup(const Value& self, const char* method) {
  if (self.str()->safe) Unsupported(absl::StrCat("Markup.", method));
}

template <std::string (*kMap)(std::string_view)>
Value Mapped(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters none("method", arguments, {});
  return in.Text(kMap(TextOf(self)), self.str()->safe);
}

std::string SwapCase(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    NextCodePoint(text, &pos);
    const std::string_view c = text.substr(begin, pos - begin);
    out += IsUpperText(c) ? ToLower(c) : IsLowerText(c) ? ToUpper(c) : std::string(c);
  }
  return out;
}

template <bool (*kPredicate)(std::string_view)>
Value Predicate(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters none("method", arguments, {});
  return Value(kPredicate(TextOf(self)));
}
bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<signed char>(c) >= 0; });
}

template <bool kLeft, bool kRight>
Value Strip(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  std::optional<std::string_view> chars;
  if (p.HasValue(0)) chars = p.Text(0);
  return in.Text(std::string(StripChars(TextOf(self), chars, kLeft, kRight)), self.str()->safe);
}

Value TextList(Interpreter& in, std::vector<std::string> parts, bool safe) {
  std::vector<Value> items;
  items.reserve(parts.size());
  in.Charge(static_cast<int64_t>(parts.size()));
  for (std::string& part : parts) items.emplace_back(std::move(part), safe);
  return Value::List(std::move(items));
}

template <bool kFromRight>
Value SplitMethod(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  std::optional<std::string_view> separator;
  if (p.HasValue(0)) separator = p.Text(0);
  if (separator.has_value() && separator->empty()) Fail("ValueError", "empty separator");
  const int64_t limit = p.Integer(1, -1);
  // One list entry per byte at worst.
  in.Charge(self.weight());
  std::vector<std::string> parts = kFromRight ? SplitFromRight(TextOf(self), separator, limit)
                                              : Split(TextOf(self), separator, limit);
  return TextList(in, std::move(parts), self.str()->safe);
}

Value SplitLinesMethod(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"});
  return TextList(in, SplitLines(TextOf(self), p.Boolean(0, false)), self.str()->safe);
}

// Text or a tuple of texts.
template <bool kStart>
Value StartsEnds(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p(kStart ? "startswith" : "endswith", arguments, {"prefix", "start", "end"}, 1);
  if (p.Has(1) || p.Has(2)) Unsupported("a range in startswith or endswith");
  const auto matches = [&](const Value& v) {
    if (v.str() == nullptr) {
      TypeError(absl::StrCat(kStart ? "startswith" : "endswith",
                             " first arg must be str or a tuple of str, not ", TypeName(v)));
    }
    const std::string_view text = TextOf(self);
    const std::string& part = TextOf(v);
    if (part.size() > text.size()) return false;
    return text.substr(kStart ? 0 : text.size() - part.size(), part.size()) == part;
  };
  if (!p[0]->is_tuple()) return Value(matches(*p[0]));
  const std::vector<Value>& choices = p[0]->sequence()->items;
  in.Charge(static_cast<int64_t>(choices.size()));
  return Value(std::any_of(choices.begin(), choices.end(), matches));
}

Value ReplaceMethod(Interpreter& in, const Value& self, const Arguments& arguments) {
  RefuseForMarkup(self, "replace");
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return in.Text(
      Replace(TextOf(self), p.Text(0), p.Text(1), p.Integer(2, -1), in.text_bytes_max()));
}

template <bool kLast, bool kMustExist>
Value Find(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("find", arguments, {"sub", "start", "end"}, 1);
  if (p.Has(1) || p.Has(2)) Unsupported("a range in find or index");
  const std::string& text = TextOf(self);
  const size_t at = kLast ? text.rfind(p.Text(0)) : text.find(p.Text(0));
  if (at == std::string::npos) {
    if (kMustExist) Fail("ValueError", "substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(CountCodePoints(std::string_view(text).substr(0, at))));
}

Value Count(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub"}, 1);
  const std::string& text = TextOf(self);
  if (p.Text(0).empty()) return Value(static_cast<int64_t>(CountCodePoints(text)) + 1);
  int64_t count = 0;
  for (size_t at = text.find(p.Text(0)); at != std::string::npos;
       at = text.find(p.Text(0), at + p.Text(0).size())) {
    ++count;
  }
  return Value(count);
}

Value JoinMethod(Interpreter& in, const Value& self, const Arguments& arguments) {
  RefuseForMarkup(self, "join");
  const Parameters p("join", arguments, {"iterable"}, 1);
  std::string out;
  const SequencePtr items = Iterate(*p[0]);
  for (size_t i = 0; i < items->items.size(); ++i) {
    const Value& item = items->items[i];
    if (item.str() == nullptr) {
      TypeError(absl::StrCat("sequence item ", i, ": expected str instance, ", TypeName(item),
                             " found"));
    }
    in.Charge(item.weight());
    if (i > 0) out += TextOf(self);
    out += TextOf(item);
    in.CheckTextSize(out.size());
  }
  return in.Text(std::move(out));
}

// Fill on the left, right, or both sides as str.rjust, ljust and center do.
enum class Side { kLeft, kRight, kBoth };
template <Side kSide>
Value Justify(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("justify", arguments, {"width", "fillchar"}, 1);
  const std::string fill = p.Has(1) ? p.Text(1) : " ";
  if (CountCodePoints(fill) != 1) {
    TypeError("The fill character must be exactly one character long");
  }
  const int64_t width = p.Integer(0, 0);
  const int64_t missing = std::max<int64_t>(0, width - Length(self));
  in.CheckTextSize(static_cast<size_t>(missing));
  int64_t left = kSide == Side::kLeft ? missing : 0;
  if (kSide == Side::kBoth) left = missing / 2 + (missing & width & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += TextOf(self);
  for (int64_t i = left; i < missing; ++i) out += fill;
  return in.Text(std::move(out), self.str()->safe);
}

Value ZFill(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("zfill", arguments, {"width"}, 1);
  const int64_t missing = std::max<int64_t>(0, p.Integer(0, 0) - Length(self));
  in.CheckTextSize(static_cast<size_t>(missing));
  const std::string& text = TextOf(self);
  const size_t sign = !text.empty() && (text[0] == '-' || text[0] == '+') ? 1 : 0;
  return in.Text(absl::StrCat(text.substr(0, sign),
                              std::string(static_cast<size_t>(missing), '0'), text.substr(sign)));
}

template <bool kPrefix>
Value RemoveAffix(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p(kPrefix ? "removeprefix" : "removesuffix", arguments, {"affix"}, 1);
  std::string_view text = TextOf(self);
  const std::string& affix = p.Text(0);
  if (affix.size() <= text.size()) {
    if (kPrefix && text.substr(0, affix.size()) == affix) {
      text.remove_prefix(affix.size());
    } else if (!kPrefix && text.substr(text.size() - affix.size()) == affix) {
      text.remove_suffix(affix.size());
    }
  }
  return in.Text(std::string(text), self.str()->safe);
}

template <bool kLast>
Value Partition(Interpreter& in, const Value& self, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  if (p.Text(0).empty()) Fail("ValueError", "empty separator");
  const std::string& text = TextOf(self);
  const size_t at = kLast ? text.rfind(p.Text(0)) : text.find(p.Text(0));
  const bool safe = self.str()->safe;
  const Value none = Value("", safe);
  if (at == std::string::npos) {
    return kLast ? Value::Tuple({none, none, self}) : Value::Tuple({self, none, none});
  }
  return Value::Tuple({in.Text(text.substr(0, at), safe), in.Text(p.Text(0), safe),
                       in.Text(text.substr(at + p.Text(0).size()), safe)});
}

struct Entry {
  std::string_view name;
  MethodFunction function;
};
constexpr Entry kMethods[] = {
    {"capitalize", Mapped<ToCapitalized>},
    {"center", Justify<Side::kBoth>},
    {"count", Count},
    {"endswith", StartsEnds<false>},
    {"find", Find<false, false>},
    {"index", Find<false, true>},
    {"isalnum", Predicate<IsAlnumText>},
    {"isalpha", Predicate<IsAlphaText>},
    {"isascii", Predicate<IsAscii>},
    {"isdigit", Predicate<IsDigitText>},
    {"islower", Predicate<IsLowerText>},
    {"isspace", Predicate<IsSpaceText>},
    {"isupper", Predicate<IsUpperText>},
    {"join", JoinMethod},
    {"ljust", Justify<Side::kRight>},
    {"lower", Mapped<ToLower>},
    {"lstrip", Strip<true, false>},
    {"partition", Partition<false>},
    {"removeprefix", RemoveAffix<true>},
    {"removesuffix", RemoveAffix<false>},
    {"replace", ReplaceMethod},
    {"rfind", Find<true, false>},
    {"rindex", Find<true, true>},
    {"rjust", Justify<Side::kLeft>},
    {"rpartition", Partition<true>},
    {"rsplit", SplitMethod<true>},
    {"rstrip", Strip<false, true>},
    {"split", SplitMethod<false>},
    {"splitlines", SplitLinesMethod},
    {"startswith", StartsEnds<true>},
    {"strip", Strip<true, true>},
    {"swapcase", Mapped<SwapCase>},
    {"title", Mapped<ToTitle>},
    {"upper", Mapped<ToUpper>},
    {"zfill", ZFill},
};

std::string FormatNumber(const Value& v, char conversion, const std::string& flags) {
  RequireDefined(v);
  if (!v.is_number()) {
    TypeError(absl::StrCat("%", std::string(1, conversion), " format: a number is required, not ",
                           TypeName(v)));
  }
  char buffer[512];
  int size = 0;
  if (conversion == 'd' || conversion == 'i' || conversion == 'u') {
    if (v.is_float() && std::fabs(v.number()) >= 9.2e18) Unsupported("%d of such a number");
    const int64_t i = v.is_float() ? static_cast<int64_t>(v.number()) : v.integer();
    size = std::snprintf(buffer, sizeof(buffer), absl::StrCat(flags, "lld").c_str(),
                         static_cast<long long>(i));
  } else {
    size = std::snprintf(buffer, sizeof(buffer),
                         absl::StrCat(flags, std::string(1, conversion)).c_str(), v.number());
  }
  if (size < 0 || static_cast<size_t>(size) >= sizeof(buffer)) Unsupported("so wide a number");
  return std::string(buffer, static_cast<size_t>(size));
}

}  // namespace

MethodFunction FindTextMethod(std::string_view name) {
  const auto* it = std::find_if(std::begin(kMethods), std::end(kMethods),
                                [&](const Entry& e) { return e.name == name; });
  return it == std::end(kMethods) ? nullptr : it->function;
}

std::string FormatPercent(Interpreter& in, std::string_view format, const Value& arguments) {
  std::vector<Value> items;
  if (arguments.is_tuple()) {
    items = arguments.sequence()->items;
  } else {
    items.push_back(arguments);
  }
  std::string out;
  size_t next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      out.push_back(format[i]);
      continue;
    }
    std::string flags = "%";
    for (++i; i < format.size() && std::string_view("-+ 0123456789.").find(format[i]) !=
                                       std::string_view::npos;
         ++i) {
      flags.push_back(format[i]);
      if (flags.size() > 8) Unsupported("so long a format");
    }
    if (i == format.size()) Fail("ValueError", "incomplete format");
    const char conversion = format[i];
    if (conversion == '%') {
      out.push_back('%');
      continue;
    }
    if (next == items.size()) TypeError("not enough arguments for format string");
    const Value& item = items[next++];
    in.Charge(item.weight());
    if ((conversion == 's' || conversion == 'r') && flags == "%") {
      out += conversion == 's' ? ToText(item) : Repr(item);
    } else if (std::string_view("diufFeEgG").find(conversion) != std::string_view::npos) {
      out += FormatNumber(item, conversion, flags);
    } else {
      Unsupported(absl::StrCat("the format ", flags, std::string(1, conversion)));
    }
    in.CheckTextSize(out.size());
  }
  if (next < items.size() && (arguments.is_tuple() || arguments.dict() == nullptr)) {
    TypeError("not all arguments converted during string formatting");
  }
  return out;
}

}  // namespace baton::jinja::internal
