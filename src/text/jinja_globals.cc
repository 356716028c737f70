// Attributes of values (methods) and the global functions.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace baton::jinja::internal {
namespace {

bool IsListed(std::string_view names, std::string_view name) {
  // `names` is a list of words, each between spaces.
  return names.find(absl::StrCat(" ", std::string(name), " ")) != std::string_view::npos;
}

// Everything that Python's types have; what a table below does not implement is Unsupported.
constexpr std::string_view kStrNames =
    " capitalize casefold center count encode endswith expandtabs find format format_map index "
    "isalnum isalpha isascii isdecimal isdigit isidentifier islower isnumeric isprintable isspace "
    "istitle isupper join ljust lower lstrip maketrans partition removeprefix removesuffix replace "
    "rfind rindex rjust rpartition rsplit rstrip split splitlines startswith strip swapcase title "
    "translate upper zfill ";
constexpr std::string_view kMarkupNames = " escape striptags unescape ";
constexpr std::string_view kDictNames = " copy fromkeys get items keys values ";
constexpr std::string_view kDictMutators = " clear pop popitem setdefault update ";
constexpr std::string_view kListNames = " clear copy count index pop ";
constexpr std::string_view kListMutators = " append extend insert remove reverse sort ";
constexpr std::string_view kTupleNames = " count index ";
constexpr std::string_view kRangeNames = " count index start step stop ";
constexpr std::string_view kViewNames = " isdisjoint mapping ";
constexpr std::string_view kGeneratorNames = " close send throw gi_code gi_frame gi_running ";
constexpr std::string_view kIntNames =
    " as_integer_ratio bit_count bit_length conjugate denominator from_bytes imag numerator real "
    "to_bytes ";
constexpr std::string_view kFloatNames =
    " as_integer_ratio conjugate fromhex hex imag is_integer real ";
constexpr std::string_view kLoopNames = " changed cycle ";
constexpr std::string_view kMacroNames =
    " arguments caller catch_kwargs catch_varargs explicit_caller name ";

Value DictItems(const Dict& dict) {
  std::vector<Value> items;
  for (const auto& [key, value] : dict.entries()) items.push_back(Value::Tuple({key, value}));
  return Value::MakeSequence(SequenceKind::kView, std::move(items), "dict_items");
}

Value DictColumn(const Dict& dict, bool keys) {
  std::vector<Value> items;
  for (const auto& entry : dict.entries()) items.push_back(keys ? entry.first : entry.second);
  return Value::MakeSequence(SequenceKind::kView, std::move(items),
                             keys ? "dict_keys" : "dict_values");
}

Value CallDictMethod(Interpreter& in, const Value& self, const std::string& name,
                     const Arguments& arguments) {
  const Dict& dict = *self.dict();
  if (name == "get") {
    const Parameters p("get", arguments, {"key", "default"}, 1);
    if (!IsHashable(*p[0])) TypeError(absl::StrCat("unhashable type: '", TypeName(*p[0]), "'"));
    if (p[0]->str() == nullptr) in.Charge(static_cast<int64_t>(dict.entries().size()));
    const Value* found = dict.Find(*p[0]);
    return found != nullptr ? *found : p.Has(1) ? *p[1] : Value();
  }
  const Parameters none(name, arguments, {});
  in.Charge(static_cast<int64_t>(dict.entries().size()));
  if (name == "items") return DictItems(dict);
  if (name == "keys") return DictColumn(dict, true);
  if (name == "values") return DictColumn(dict, false);
  if (name == "copy") return self;
  Unsupported(absl::StrCat("dict.", name));
}

Value CallListMethod(Interpreter& in, const Value& self, const std::string& name,
                     const Arguments& arguments) {
  const std::vector<Value>& items = self.sequence()->items;
  in.Charge(static_cast<int64_t>(items.size()));
  if (name == "copy" && self.is_list()) {
    const Parameters none(name, arguments, {});
    return self;
  }
  if (name == "count" || name == "index") {
    const Parameters p(name, arguments, {"value"}, 1);
    const auto equals = [&](const Value& v) {
      in.Charge(std::min(v.weight(), p[0]->weight()));
      return Equal(v, *p[0]);
    };
    if (name == "count") return Value(int64_t{std::count_if(items.begin(), items.end(), equals)});
    const auto it = std::find_if(items.begin(), items.end(), equals);
    if (it != items.end()) return Value(static_cast<int64_t>(it - items.begin()));
    Fail("ValueError", absl::StrCat(ToText(*p[0]), " is not in list"));
  }
  Unsupported(absl::StrCat(TypeName(self), ".", name));
}

Value CallLoopMethod(LoopState* loop, const std::string& name, const Arguments& arguments) {
  if (name == "changed") return Value(loop->Changed(Value::Tuple(arguments.positional)));
  if (arguments.positional.empty()) TypeError("no items for cycling given");
  return arguments.positional[loop->index0() % arguments.positional.size()];
}

class BoundMethod final : public Callable {
 public:
  BoundMethod(Value self, std::string name) : self_(std::move(self)), name_(std::move(name)) {
    if (self_.depth() + 1 > kValueDepthMax) Fail(kLimit, "a value is nested too deeply");
  }
  Value Call(Interpreter& in, Arguments arguments) const override {
    in.Charge(1);
    if (self_.str() != nullptr) {
      in.Charge(self_.weight());
      if (const MethodFunction method = FindTextMethod(name_)) return method(in, self_, arguments);
      Unsupported(absl::StrCat("str.", name_));
    }
    if (self_.dict() != nullptr) return CallDictMethod(in, self_, name_, arguments);
    if (self_.loop() != nullptr) return CallLoopMethod(self_.loop(), name_, arguments);
    if (self_.is_list() || self_.is_tuple()) return CallListMethod(in, self_, name_, arguments);
    Unsupported(absl::StrCat(TypeName(self_), ".", name_));
  }
  std::string Describe() const override {
    return absl::StrCat("<built-in method ", name_, " of ", TypeName(self_), " object>");
  }
  int depth() const override { return self_.depth() + 1; }

 private:
  Value self_;
  std::string name_;
};

Value Range(Interpreter& in, const Arguments& arguments) {
  static constexpr int64_t kRangeMax = 100000;  // the sandbox's MAX_RANGE
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t first = p.Integer(0, 0);
  const int64_t start = p.Has(1) ? first : 0;
  const int64_t stop = p.Has(1) ? p.Integer(1, 0) : first;
  const int64_t step = p.Integer(2, 1);
  if (step == 0) Fail("ValueError", "range() arg 3 must not be zero");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kRangeMax) {
      Fail("OverflowError", absl::StrCat("Range too big. The sandbox blocks ranges larger than "
                                         "MAX_RANGE (", kRangeMax, ")."));
    }
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  in.Charge(static_cast<int64_t>(items.size()));
  return Value::MakeSequence(SequenceKind::kRange, std::move(items));
}

// dict(mapping or pairs, **more)
Dict MakeDict(Interpreter& in, const Arguments& arguments) {
  Dict dict;
  if (arguments.positional.size() > 1) TypeError("dict expected at most 1 argument");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) {
      dict = *source.dict();
      in.Charge(static_cast<int64_t>(dict.entries().size()));
    } else {
      const SequencePtr sequence = Iterate(source);
      for (const Value& pair : sequence->items) {
        const SequencePtr parts = Iterate(pair);
        if (parts->items.size() != 2) {
          Fail("ValueError", "dictionary update sequence element has another length than 2");
        }
        if (!IsHashable(parts->items[0])) TypeError("unhashable type");
        in.Charge(1 + (parts->items[0].str() == nullptr
                           ? static_cast<int64_t>(dict.entries().size())
                           : 0));
        dict.Set(parts->items[0], parts->items[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.named) dict.Set(Value(name), value);
  return dict;
}

Value MakeNamespace(Interpreter& in, const Arguments& arguments) {
  Namespace ns;
  const Dict dict = MakeDict(in, arguments);
  for (const auto& [key, value] : dict.entries()) {
    ns.attributes.emplace_back(ToText(key), value);
  }
  return in.NewNamespace(std::move(ns));
}

Value RaiseException(Interpreter&, const Arguments& arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  Fail("TemplateError", ToText(*p[0]));
}

Value StrftimeNow(Interpreter& in, const Arguments& arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  if (!in.now().has_value()) {
    Fail("TemplateError", "strftime_now was called and the caller gave no clock");
  }
  std::tm now = *in.now();
  timegm(&now);  // fills in the day of the week and of the year
  // What C does not know or fills from the process's time zone: a naive datetime has no zone.
  std::string format;
  const std::string& given = p.Text(0);
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i] != '%' || i + 1 == given.size()) {
      format.push_back(given[i]);
      continue;
    }
    const char c = given[++i];
    if (c == 'f') {
      format += "000000";
    } else if (c != 'z' && c != 'Z') {
      format.push_back('%');
      format.push_back(c);
    }
  }
  if (format.empty()) return in.Text("");
  if (format.size() > 1024) Unsupported("so long a time format");
  std::string out(format.size() * 16 + 64, '\0');
  out.resize(std::strftime(out.data(), out.size(), format.c_str(), &now));
  return in.Text(ReplaceInvalidUtf8(out));
}

using GlobalFunction = Value (*)(Interpreter&, const Arguments&);

class Global final : public Callable {
 public:
  Global(const char* name, GlobalFunction function) : name_(name), function_(function) {}
  Value Call(Interpreter& in, Arguments arguments) const override {
    if (function_ == nullptr) Unsupported(absl::StrCat("the function '", name_, "'"));
    return function_(in, arguments);
  }
  std::string Describe() const override { return absl::StrCat("<function ", name_, ">"); }

 private:
  const char* name_;
  GlobalFunction function_;
};

}  // namespace

std::optional<Value> FindMethod(const Value& value, std::string_view name) {
  std::string_view names;
  std::string_view mutators;
  if (value.str() != nullptr) {
    names = kStrNames;
    if (value.str()->safe && IsListed(kMarkupNames, name)) names = kMarkupNames;
  } else if (value.dict() != nullptr) {
    names = kDictNames;
    mutators = kDictMutators;
  } else if (const Sequence* s = value.sequence()) {
    if (std::strcmp(s->label, "group") == 0) {
      if (name == "grouper") return s->items[0];
      if (name == "list") return s->items[1];
    }
    switch (s->kind) {
      case SequenceKind::kList:
        names = kListNames;
        mutators = kListMutators;
        break;
      case SequenceKind::kTuple:
        names = kTupleNames;
        break;
      case SequenceKind::kRange:
        names = kRangeNames;
        break;
      case SequenceKind::kView:
        names = kViewNames;
        break;
      case SequenceKind::kGenerator:
        names = kGeneratorNames;
        break;
    }
  } else if (value.is_integral()) {
    names = kIntNames;
  } else if (value.is_float()) {
    names = kFloatNames;
  } else if (value.loop() != nullptr) {
    names = kLoopNames;
  } else if (value.callable() != nullptr) {
    names = kMacroNames;
  }
  if (IsListed(mutators, name)) {
    return Value::Undefined(absl::StrCat("access to attribute ", StringRepr(name), " of '",
                                         TypeName(value), "' object is unsafe."),
                            true);
  }
  if (!IsListed(names, name)) return std::nullopt;
  return Value(CallablePtr(std::make_shared<BoundMethod>(value, std::string(name))));
}

std::optional<Value> FindGlobal(std::string_view name) {
  struct Entry {
    const char* name;
    GlobalFunction function;
  };
  static constexpr Entry kGlobals[] = {
      {"cycler", nullptr},
      {"dict", [](Interpreter& in, const Arguments& a) { return Value::MakeDict(MakeDict(in, a)); }},
      {"joiner", nullptr},
      {"lipsum", nullptr},
      {"namespace", MakeNamespace},
      {"raise_exception", RaiseException},
      {"range", Range},
      {"strftime_now", StrftimeNow},
  };
  for (const Entry& entry : kGlobals) {
    if (name == entry.name) {
      return Value(CallablePtr(std::make_shared<Global>(entry.name, entry.function)));
    }
  }
  return std::nullopt;
}

Parameters::Parameters(std::string_view function, const Arguments& arguments,
                       std::initializer_list<std::string_view> names, size_t required)
    : function_(function), values_(names.size(), nullptr) {
  if (arguments.positional.size() > names.size()) {
    TypeError(absl::StrCat(function_, "() takes at most ", names.size(), " argument(s) (",
                           arguments.positional.size(), " given)"));
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto it = std::find(names.begin(), names.end(), name);
    if (it == names.end()) {
      TypeError(absl::StrCat(function_, "() got an unexpected keyword argument '", name, "'"));
    }
    const Value*& slot = values_[static_cast<size_t>(it - names.begin())];
    if (slot != nullptr) {
      TypeError(absl::StrCat(function_, "() got multiple values for argument '", name, "'"));
    }
    slot = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (values_[i] == nullptr) {
      TypeError(absl::StrCat(function_, "() missing required argument '",
                             std::string(*(names.begin() + i)), "'"));
    }
  }
}

const std::string& Parameters::Text(size_t i) const {
  RequireDefined(*values_[i]);
  if (values_[i]->str() == nullptr) {
    TypeError(absl::StrCat(function_, "() argument must be str, not ", TypeName(*values_[i])));
  }
  return values_[i]->str()->text;
}

int64_t Parameters::Integer(size_t i, int64_t otherwise) const {
  if (values_[i] == nullptr) return otherwise;
  RequireDefined(*values_[i]);
  if (!values_[i]->is_integral()) {
    TypeError(absl::StrCat(function_, "() argument must be int, not ", TypeName(*values_[i])));
  }
  return values_[i]->integer();
}

}  // namespace baton::jinja::internal
