#include "text/jinja_value.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_error.h"
#include "text/jinja_loop.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

namespace baton::jinja::internal {
namespace {

// From this size on string keys are found by hash.
constexpr size_t kIndexFrom = 8;

int CheckedDepth(int depth) {
  if (depth > kValueDepthMax) {
    Fail(kLimit, absl::StrCat("a value is nested deeper than ", kValueDepthMax, " levels"));
  }
  return depth;
}

int64_t CheckedWeight(int64_t weight) {
  if (weight > kValueWeightMax) Fail(kLimit, "a value is too big");
  return weight;
}

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), Equal);
}

bool EqualDicts(const Dict& a, const Dict& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr || !Equal(value, *other)) return false;
  }
  return true;
}

// Exact order of an int and a float: a 64-bit integer fits the significand of long double.
long double Exact(const Value& v) {
  return v.is_float() ? static_cast<long double>(v.number())
                      : static_cast<long double>(v.integer());
}

std::string JoinRepr(const std::vector<Value>& items) {
  std::string out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    out += Repr(items[i]);
  }
  return out;
}

std::string ReprSequence(const Sequence& s) {
  switch (s.kind) {
    case SequenceKind::kList:
      return absl::StrCat("[", JoinRepr(s.items), "]");
    case SequenceKind::kTuple:
      return absl::StrCat("(", JoinRepr(s.items), s.items.size() == 1 ? ",)" : ")");
    case SequenceKind::kRange:
      if (s.items.empty()) return "range(0, 0)";
      if (s.items.size() > 1) {
        const int64_t step = s.items[1].integer() - s.items[0].integer();
        if (step != 1) {
          return absl::StrCat("range(", s.items[0].integer(), ", ",
                              s.items.back().integer() + step, ", ", step, ")");
        }
      }
      return absl::StrCat("range(", s.items[0].integer(), ", ", s.items.back().integer() + 1, ")");
    case SequenceKind::kView:
      return absl::StrCat(s.label, "([", JoinRepr(s.items), "])");
    case SequenceKind::kGenerator:
      break;
  }
  return "<generator object>";
}

std::string ReprDict(const Dict& dict) {
  std::string out = "{";
  for (const auto& [key, value] : dict.entries()) {
    if (out.size() > 1) out += ", ";
    absl::StrAppend(&out, Repr(key), ": ", Repr(value));
  }
  return out + "}";
}

}  // namespace

Value::Value(std::string text, bool safe) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<signed char>(c) >= 0; });
  data_ = std::make_shared<const Str>(Str{std::move(text), safe, ascii});
}

Value Value::Undefined(std::string message, bool security) {
  Value v;
  v.data_ = std::make_shared<const UndefinedInfo>(UndefinedInfo{std::move(message), security});
  return v;
}

Value Value::MakeSequence(SequenceKind kind, std::vector<Value> items, const char* label) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = kind;
  for (const Value& item : items) {
    sequence->depth = std::max(sequence->depth, item.depth() + 1);
    sequence->weight = CheckedWeight(sequence->weight + item.weight());
  }
  CheckedDepth(sequence->depth);
  sequence->items = std::move(items);
  sequence->label = label;
  return Value(SequencePtr(std::move(sequence)));
}

Value Value::Generator(const Value& source, std::function<std::vector<Value>()> produce) {
  auto sequence = std::make_shared<Sequence>();
  sequence->kind = SequenceKind::kGenerator;
  sequence->depth = CheckedDepth(source.depth() + 1);
  sequence->weight = CheckedWeight(source.weight() + 1);
  sequence->produce = std::move(produce);
  return Value(SequencePtr(std::move(sequence)));
}

Value Value::MakeDict(Dict dict) { return Value(std::make_shared<const Dict>(std::move(dict))); }

Value Value::FromJson(const OrderedJson& json, int depth) {
  CheckedDepth(depth);
  switch (json.type()) {
    case OrderedJson::value_t::boolean:
      return Value(json.get<bool>());
    case OrderedJson::value_t::number_integer:
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_unsigned:
      if (json.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
        Fail("OverflowError", "an integer in the input is beyond 64 bits");
      }
      return Value(json.get<int64_t>());
    case OrderedJson::value_t::number_float:
      return Value(json.get<double>());
    case OrderedJson::value_t::string: {
      const std::string& text = json.get_ref<const std::string&>();
      return Value(IsValidUtf8(text) ? text : ReplaceInvalidUtf8(text));
    }
    case OrderedJson::value_t::array: {
      std::vector<Value> items;
      items.reserve(json.size());
      for (const OrderedJson& item : json) items.push_back(FromJson(item, depth + 1));
      return List(std::move(items));
    }
    case OrderedJson::value_t::object: {
      Dict dict;
      for (const auto& [key, value] : json.items()) {
        dict.Set(Value(ReplaceInvalidUtf8(key)), FromJson(value, depth + 1));
      }
      return MakeDict(std::move(dict));
    }
    default:
      return Value();
  }
}

int Value::depth() const {
  if (const Sequence* s = sequence()) return s->depth;
  if (const Dict* d = dict()) return d->depth();
  if (const LoopState* l = loop()) return l->depth();
  if (const Callable* c = callable()) return c->depth();
  return 1;
}

int64_t Value::weight() const {
  if (const Str* s = str()) return TextWeight(s->text.size());
  if (const Sequence* s = sequence()) return s->weight;
  if (const Dict* d = dict()) return d->weight();
  return 1;
}

size_t Dict::IndexOf(const Value& key) const {
  if (!index_.empty() && key.str() != nullptr) {
    const auto it = index_.find(key.str()->text);
    return it == index_.end() ? entries_.size() : it->second;
  }
  size_t i = 0;
  while (i < entries_.size() && !Equal(entries_[i].first, key)) ++i;
  return i;
}

const Value* Dict::Find(const Value& key) const {
  const size_t i = IndexOf(key);
  return i == entries_.size() ? nullptr : &entries_[i].second;
}

const Value* Dict::Find(std::string_view key) const {
  if (!index_.empty()) {
    const auto it = index_.find(absl::string_view(key.data(), key.size()));
    return it == index_.end() ? nullptr : &entries_[it->second].second;
  }
  for (const auto& [k, v] : entries_) {
    if (k.str() != nullptr && k.str()->text == key) return &v;
  }
  return nullptr;
}

void Dict::Set(Value key, Value value) {
  depth_ = CheckedDepth(std::max({depth_, key.depth() + 1, value.depth() + 1}));
  weight_ = CheckedWeight(weight_ + key.weight() + value.weight());
  const size_t i = IndexOf(key);
  if (i < entries_.size()) {
    entries_[i].second = std::move(value);
    return;
  }
  entries_.emplace_back(std::move(key), std::move(value));
  if (index_.empty() && entries_.size() < kIndexFrom) return;
  // The first time all keys enter the index, then each new one.
  for (size_t k = index_.empty() ? 0 : i; k < entries_.size(); ++k) {
    if (const Str* s = entries_[k].first.str()) index_.emplace(s->text, k);
  }
}

std::string TypeName(const Value& value) {
  if (value.is_none()) return "NoneType";
  if (value.is_bool()) return "bool";
  if (value.is_int()) return "int";
  if (value.is_float()) return "float";
  if (value.undefined() != nullptr) return "Undefined";
  if (value.str() != nullptr) return value.str()->safe ? "Markup" : "str";
  if (value.dict() != nullptr) return "dict";
  if (value.name_space() != nullptr) return "Namespace";
  if (value.loop() != nullptr) return "LoopContext";
  if (const Sequence* s = value.sequence()) {
    switch (s->kind) {
      case SequenceKind::kList:
        return "list";
      case SequenceKind::kTuple:
        return "tuple";
      case SequenceKind::kRange:
        return "range";
      case SequenceKind::kView:
        return s->label;
      case SequenceKind::kGenerator:
        return "generator";
    }
  }
  return "function";
}

void RequireDefined(const Value& value) {
  if (const UndefinedInfo* info = value.undefined()) {
    Fail(info->security ? "SecurityError" : "UndefinedError", info->message);
  }
}

bool Truth(const Value& value) {
  if (value.is_none() || value.undefined() != nullptr) return false;
  if (value.is_float()) return value.number() != 0;
  if (value.is_integral()) return value.integer() != 0;
  if (value.name_space() != nullptr || value.callable() != nullptr || value.is_generator()) {
    return true;
  }
  return Length(value) != 0;
}

int64_t Length(const Value& value) {
  if (value.undefined() != nullptr) return 0;
  if (const Str* s = value.str()) {
    return static_cast<int64_t>(s->ascii ? s->text.size() : CountCodePoints(s->text));
  }
  if (const Dict* d = value.dict()) return static_cast<int64_t>(d->entries().size());
  if (const LoopState* l = value.loop()) return static_cast<int64_t>(l->size());
  if (const Sequence* s = value.sequence(); s != nullptr && !value.is_generator()) {
    return static_cast<int64_t>(s->items.size());
  }
  TypeError(absl::StrCat("object of type '", TypeName(value), "' has no len()"));
}

std::string ToText(const Value& value) {
  if (const Str* s = value.str()) return s->text;
  if (value.undefined() != nullptr) return "";
  return Repr(value);
}

std::string Repr(const Value& value) {
  if (value.is_none()) return "None";
  if (value.is_bool()) return value.boolean() ? "True" : "False";
  if (value.is_int()) return absl::StrCat(value.integer());
  if (value.is_float()) return FloatRepr(value.number());
  if (value.undefined() != nullptr) return "Undefined";
  if (const Str* s = value.str()) {
    return s->safe ? absl::StrCat("Markup(", StringRepr(s->text), ")") : StringRepr(s->text);
  }
  if (const Sequence* s = value.sequence()) return ReprSequence(*s);
  if (const Dict* d = value.dict()) return ReprDict(*d);
  if (const Callable* c = value.callable()) return c->Describe();
  // What a namespace holds may contain itself.
  if (value.name_space() != nullptr) Unsupported("printing a namespace");
  return absl::StrCat("<", TypeName(value), ">");
}

bool Equal(const Value& a, const Value& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() == b.integer();
    return Exact(a) == Exact(b);
  }
  if (a.str() != nullptr && b.str() != nullptr) return a.str()->text == b.str()->text;
  if (a.undefined() != nullptr && b.undefined() != nullptr) return true;
  if (a.dict() != nullptr && b.dict() != nullptr) return EqualDicts(*a.dict(), *b.dict());
  const Sequence* x = a.sequence();
  const Sequence* y = b.sequence();
  if (x != nullptr && y != nullptr && x->kind == y->kind && x->kind != SequenceKind::kGenerator) {
    return EqualItems(x->items, y->items);
  }
  return a.SameAs(b);
}

bool Less(const Value& a, const Value& b, const char* op) {
  RequireDefined(a);
  RequireDefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.integer() < b.integer();
    return Exact(a) < Exact(b);
  }
  // Byte order of UTF-8 is the order of code points.
  if (a.str() != nullptr && b.str() != nullptr) return a.str()->text < b.str()->text;
  if ((a.is_list() && b.is_list()) || (a.is_tuple() && b.is_tuple())) {
    const std::vector<Value>& x = a.sequence()->items;
    const std::vector<Value>& y = b.sequence()->items;
    for (size_t i = 0; i < x.size() && i < y.size(); ++i) {
      if (!Equal(x[i], y[i])) return Less(x[i], y[i], op);
    }
    return x.size() < y.size();
  }
  const bool swapped = op[0] == '>';
  TypeError(absl::StrCat("'", op, "' not supported between instances of '",
                         TypeName(swapped ? b : a), "' and '", TypeName(swapped ? a : b), "'"));
}

bool IsHashable(const Value& value) {
  if (value.dict() != nullptr) return false;
  const Sequence* s = value.sequence();
  if (s == nullptr || s->kind == SequenceKind::kRange || s->kind == SequenceKind::kGenerator) {
    return true;
  }
  if (s->kind != SequenceKind::kTuple) return false;
  return std::all_of(s->items.begin(), s->items.end(), IsHashable);
}

bool Contains(const Value& container, const Value& item) {
  if (const Str* s = container.str()) {
    if (item.str() == nullptr) {
      TypeError(absl::StrCat("'in <string>' requires string as left operand, not ",
                             TypeName(item)));
    }
    return s->text.find(item.str()->text) != std::string::npos;
  }
  if (const Dict* d = container.dict()) {
    if (!IsHashable(item)) TypeError(absl::StrCat("unhashable type: '", TypeName(item), "'"));
    return d->Find(item) != nullptr;
  }
  if (!IsIterable(container)) {
    TypeError(absl::StrCat("argument of type '", TypeName(container), "' is not iterable"));
  }
  if (container.is_generator()) {
    // Runs up to the item found; what follows stays for the next reader.
    const Sequence* s = container.sequence();
    Materialize(*s);
    while (s->position < s->items.size()) {
      if (Equal(s->items[s->position++], item)) return true;
    }
    return false;
  }
  const SequencePtr items = Iterate(container);
  return std::any_of(items->items.begin(), items->items.end(),
                     [&](const Value& v) { return Equal(v, item); });
}

bool IsIterable(const Value& value) {
  return value.undefined() != nullptr || value.str() != nullptr || value.sequence() != nullptr ||
         value.dict() != nullptr || value.loop() != nullptr;
}

void Materialize(const Sequence& generator) {
  if (generator.produce == nullptr) return;
  const auto produce = std::exchange(generator.produce, nullptr);
  generator.items = produce();
}

SequencePtr Iterate(const Value& value) {
  auto out = std::make_shared<Sequence>();
  if (value.undefined() != nullptr) return out;
  if (const Sequence* s = value.sequence()) {
    if (!value.is_generator()) return value.sequence_ptr();
    Materialize(*s);
    out->items.assign(s->items.begin() + static_cast<int64_t>(s->position), s->items.end());
    s->position = s->items.size();
    return out;
  }
  if (const Str* s = value.str()) {
    for (size_t pos = 0; pos < s->text.size();) {
      const size_t n = Utf8Length(s->text[pos]);
      out->items.emplace_back(s->text.substr(pos, n), s->safe);
      pos += n;
    }
    return out;
  }
  if (const Dict* d = value.dict()) {
    out->items.reserve(d->entries().size());
    for (const auto& entry : d->entries()) out->items.push_back(entry.first);
    return out;
  }
  TypeError(absl::StrCat("'", TypeName(value), "' object is not iterable"));
}

}  // namespace baton::jinja::internal
