// Filters on sequences and mappings.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "text/jinja_builtins.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_text.h"

namespace baton::jinja::internal {
namespace {

SequencePtr Items(Interpreter& in, const Value& v) {
  if (v.str() != nullptr) in.Charge(static_cast<int64_t>(v.str()->text.size()));
  SequencePtr items = Iterate(v);
  in.Charge(static_cast<int64_t>(items->items.size()));
  return items;
}

// Filters that are generators in Python: run when their items are read. The interpreter outlives
// every value of its render.
using ItemsFunction = std::vector<Value> (*)(Interpreter&, const Value&, const Arguments&);
template <ItemsFunction kFunction>
Value Lazy(Interpreter& in, const Value& v, const Arguments& arguments) {
  // All that the generator holds counts for its depth.
  std::vector<Value> held = arguments.positional;
  held.push_back(v);
  for (const auto& named : arguments.named) held.push_back(named.second);
  in.Charge(static_cast<int64_t>(held.size()));
  return Value::Generator(Value::Tuple(std::move(held)),
                          [&in, v, arguments] { return kFunction(in, v, arguments); });
}

Value IgnoreCase(Interpreter& in, const Value& v) {
  return v.str() == nullptr ? v : in.Text(ToLower(v.str()->text));
}

// jinja2's attribute paths: "a.b.0", looked up by subscript; an integer is one index.
class AttributePath {
 public:
  explicit AttributePath(const Value* attribute) {
    if (attribute == nullptr || attribute->is_none()) return;
    if (attribute->str() == nullptr) {
      parts_.push_back(*attribute);
      return;
    }
    for (const std::string& part : Split(attribute->str()->text, ".", -1)) {
      if (IsDigitText(part)) {
        const std::optional<int64_t> index = ParseInt(part, 10);
        if (index.has_value()) {
          parts_.emplace_back(*index);
          continue;
        }
      }
      parts_.emplace_back(part);
    }
  }
  // Undefined on the way is replaced by `otherwise` if there is one.
  Value Get(Interpreter& in, Value item, const Value* otherwise = nullptr) const {
    for (const Value& part : parts_) {
      item = in.GetItem(item, part);
      if (otherwise != nullptr && !otherwise->is_none() && item.undefined() != nullptr) {
        item = *otherwise;
      }
    }
    return item;
  }

 private:
  std::vector<Value> parts_;
};

// A stable sort that charges each comparison.
template <class Key>
void SortBy(Interpreter& in, std::vector<Value>* items, bool reverse, const Key& key) {
  std::vector<std::pair<Value, Value>> keyed;
  for (Value& item : *items) {
    Value k = key(item);
    keyed.emplace_back(std::move(k), std::move(item));
  }
  const auto less = [&](const auto& a, const auto& b) {
    in.Charge(std::min(a.first.weight(), b.first.weight()));
    return Less(a.first, b.first);
  };
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(), less);
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  for (size_t i = 0; i < keyed.size(); ++i) (*items)[i] = std::move(keyed[i].second);
}

std::vector<Value> Batch(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("batch", arguments, {"linecount", "fill_with"}, 1);
  const int64_t count = p.Integer(0, 1);
  std::vector<Value> batches;
  std::vector<Value> batch;
  const SequencePtr sequence = Items(in, v);
  for (const Value& item : sequence->items) {
    if (static_cast<int64_t>(batch.size()) == count) {
      batches.push_back(Value::List(std::exchange(batch, {})));
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    if (p.HasValue(1) && static_cast<int64_t>(batch.size()) < count) {
      in.Charge(count);
      batch.resize(static_cast<size_t>(count), *p[1]);
    }
    batches.push_back(Value::List(std::move(batch)));
  }
  return batches;
}

std::vector<Value> SliceFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("slice", arguments, {"slices", "fill_with"}, 1);
  const SequencePtr items = Items(in, v);
  const int64_t slices = p.Integer(0, 1);
  if (slices <= 0) Fail("ZeroDivisionError", "integer division or modulo by zero");
  in.Charge(slices);
  const auto length = static_cast<int64_t>(items->items.size());
  const int64_t per_slice = length / slices;
  const int64_t with_extra = length % slices;
  std::vector<Value> out;
  int64_t at = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const int64_t end = at + per_slice + (i < with_extra ? 1 : 0);
    std::vector<Value> part(items->items.begin() + at, items->items.begin() + end);
    if (p.HasValue(1) && i >= with_extra) part.push_back(*p[1]);
    out.push_back(Value::List(std::move(part)));
    at = end;
  }
  return out;
}

Value DictSort(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = p.Has(1) ? p.Text(1) : "key";
  if (by != "key" && by != "value") {
    Fail("FilterArgumentError", "You can only sort by either \"key\" or \"value\"");
  }
  RequireDefined(v);
  if (v.dict() == nullptr) {
    Fail("AttributeError", absl::StrCat("'", TypeName(v), "' object has no attribute 'items'"));
  }
  std::vector<Value> items;
  for (const auto& [key, value] : v.dict()->entries()) items.push_back(Value::Tuple({key, value}));
  in.Charge(static_cast<int64_t>(items.size()));
  SortBy(in, &items, p.Boolean(2, false), [&](const Value& pair) {
    const Value& key = pair.sequence()->items[by == "key" ? 0 : 1];
    return p.Boolean(0, false) ? key : IgnoreCase(in, key);
  });
  return Value::List(std::move(items));
}

Value First(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("first", arguments, {});
  if (const Str* text = v.str(); text != nullptr && !text->text.empty()) {
    return in.GetItem(v, Value(int64_t{0}));
  }
  if (v.is_generator()) {
    const Sequence* s = v.sequence();
    Materialize(*s);
    if (s->position < s->items.size()) return s->items[s->position++];
  } else {
    const SequencePtr items = Items(in, v);
    if (!items->items.empty()) return items->items[0];
  }
  return Value::Undefined("No first item, sequence was empty.");
}

Value Last(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("last", arguments, {});
  if (v.is_generator()) TypeError("'generator' object is not reversible");
  const SequencePtr items = Items(in, v);
  if (!items->items.empty()) return items->items.back();
  return Value::Undefined("No last item, sequence was empty.");
}

Value GroupBy(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1);
  const AttributePath path(p[0]);
  const auto key = [&](const Value& item) {
    const Value k = path.Get(in, item, p[1]);
    return p.Boolean(2, false) ? k : IgnoreCase(in, k);
  };
  std::vector<Value> items = Items(in, v)->items;
  SortBy(in, &items, false, key);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    const Value k = key(items[i]);
    std::vector<Value> members;
    const Value shown = path.Get(in, items[i], p[1]);
    for (; i < items.size() && Equal(key(items[i]), k); ++i) members.push_back(items[i]);
    groups.push_back(Value::MakeSequence(
        SequenceKind::kTuple, {shown, Value::List(std::move(members))}, "group"));
  }
  return Value::List(std::move(groups));
}

std::vector<Value> ItemsFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("items", arguments, {});
  std::vector<Value> pairs;
  if (v.undefined() != nullptr) return {};
  if (v.dict() == nullptr) TypeError("Can only get item pairs from a mapping.");
  for (const auto& [key, value] : v.dict()->entries()) pairs.push_back(Value::Tuple({key, value}));
  in.Charge(static_cast<int64_t>(pairs.size()));
  return pairs;
}

Value Join(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  const std::string separator = p.Has(0) ? ToText(*p[0]) : "";
  const AttributePath path(p[1]);
  std::string out;
  bool first = true;
  const SequencePtr sequence = Items(in, v);
  for (const Value& item : sequence->items) {
    if (!first) out += separator;
    first = false;
    const Value part = path.Get(in, item);
    in.Charge(part.weight());
    out += ToText(part);
    in.CheckTextSize(out.size());
  }
  return in.Text(std::move(out));
}

Value ListFilter(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("list", arguments, {});
  return Value::List(Items(in, v)->items);
}

std::vector<Value> Map(Interpreter& in, const Value& v, const Arguments& arguments) {
  std::vector<Value> out;
  if (!Truth(v)) return {};
  if (arguments.positional.empty()) {
    const Parameters p("map", arguments, {"attribute", "default"});
    if (!p.Has(0)) Fail("FilterArgumentError", "map requires a filter argument");
    const AttributePath path(p[0]);
    const SequencePtr sequence = Items(in, v);
    for (const Value& item : sequence->items) out.push_back(path.Get(in, item, p[1]));
  } else {
    const std::string name = ToText(arguments.positional[0]);
    Arguments rest = arguments;
    rest.positional.erase(rest.positional.begin());
    const SequencePtr sequence = Items(in, v);
    for (const Value& item : sequence->items) {
      out.push_back(in.ApplyFilter(name, item, rest));
    }
  }
  return out;
}

Value MinMax(Interpreter& in, const Value& v, const Arguments& arguments, bool want_max) {
  const Parameters p(want_max ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(p[1]);
  const auto key = [&](const Value& item) {
    const Value k = path.Get(in, item);
    return p.Boolean(0, false) ? k : IgnoreCase(in, k);
  };
  const SequencePtr items = Items(in, v);
  if (items->items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  Value best = items->items[0];
  Value best_key = key(best);
  for (size_t i = 1; i < items->items.size(); ++i) {
    Value k = key(items->items[i]);
    in.Charge(std::min(k.weight(), best_key.weight()));
    if (want_max ? Less(best_key, k, ">") : Less(k, best_key)) {
      best = items->items[i];
      best_key = std::move(k);
    }
  }
  return best;
}
Value Min(Interpreter& in, const Value& v, const Arguments& arguments) {
  return MinMax(in, v, arguments, false);
}
Value Max(Interpreter& in, const Value& v, const Arguments& arguments) {
  return MinMax(in, v, arguments, true);
}

std::vector<Value> SelectReject(Interpreter& in, const Value& v, const Arguments& arguments,
                                bool want, bool by_attribute) {
  if (!Truth(v)) return {};
  Arguments rest = arguments;
  const auto take = [&] {
    Value first = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return first;
  };
  Value attribute;
  if (by_attribute) {
    if (rest.positional.empty()) {
      Fail("FilterArgumentError", "Missing parameter for attribute name");
    }
    attribute = take();
  }
  const AttributePath path(by_attribute ? &attribute : nullptr);
  std::optional<std::string> test;
  if (!rest.positional.empty()) test = ToText(take());
  std::vector<Value> out;
  const SequencePtr sequence = Items(in, v);
  for (const Value& item : sequence->items) {
    const Value subject = path.Get(in, item);
    const bool holds = test.has_value() ? in.ApplyTest(*test, subject, rest) : Truth(subject);
    if (holds == want) out.push_back(item);
  }
  return out;
}
std::vector<Value> Select(Interpreter& in, const Value& v, const Arguments& arguments) {
  return SelectReject(in, v, arguments, true, false);
}
std::vector<Value> Reject(Interpreter& in, const Value& v, const Arguments& arguments) {
  return SelectReject(in, v, arguments, false, false);
}
std::vector<Value> SelectAttr(Interpreter& in, const Value& v, const Arguments& arguments) {
  return SelectReject(in, v, arguments, true, true);
}
std::vector<Value> RejectAttr(Interpreter& in, const Value& v, const Arguments& arguments) {
  return SelectReject(in, v, arguments, false, true);
}

Value Reverse(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters none("reverse", arguments, {});
  std::vector<Value> items = Items(in, v)->items;
  std::reverse(items.begin(), items.end());
  if (v.str() == nullptr) return Value::MakeSequence(SequenceKind::kGenerator, std::move(items));
  std::string out;
  for (const Value& item : items) out += item.str()->text;
  return in.Text(std::move(out), v.str()->safe);
}

Value Sort(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (p.HasValue(2) && p[2]->str() != nullptr) {
    for (const std::string& part : Split(p[2]->str()->text, ",", -1)) {
      const Value attribute(part);
      paths.emplace_back(&attribute);
    }
  } else {
    paths.emplace_back(p[2]);
  }
  std::vector<Value> items = Items(in, v)->items;
  SortBy(in, &items, p.Boolean(0, false), [&](const Value& item) {
    std::vector<Value> keys;
    for (const AttributePath& path : paths) {
      const Value k = path.Get(in, item);
      keys.push_back(p.Boolean(1, false) ? k : IgnoreCase(in, k));
    }
    return Value::List(std::move(keys));
  });
  return Value::List(std::move(items));
}

Value Sum(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  const AttributePath path(p[0]);
  Value sum = p.Has(1) ? *p[1] : Value(int64_t{0});
  if (sum.str() != nullptr) TypeError("sum() can't sum strings [use ''.join(seq) instead]");
  const SequencePtr sequence = Items(in, v);
  for (const Value& item : sequence->items) sum = in.Binary("+", sum, path.Get(in, item));
  return sum;
}

std::vector<Value> Unique(Interpreter& in, const Value& v, const Arguments& arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(p[1]);
  Dict seen;
  std::vector<Value> out;
  const SequencePtr sequence = Items(in, v);
  for (const Value& item : sequence->items) {
    Value key = path.Get(in, item);
    if (!p.Boolean(0, false)) key = IgnoreCase(in, key);
    if (!IsHashable(key)) TypeError(absl::StrCat("unhashable type: '", TypeName(key), "'"));
    if (key.str() == nullptr) in.Charge(static_cast<int64_t>(seen.entries().size()));
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value());
    out.push_back(item);
  }
  return out;
}

struct Entry {
  std::string_view name;
  FilterFunction function;
};
constexpr Entry kFilters[] = {
    {"batch", Lazy<Batch>},
    {"dictsort", DictSort},
    {"first", First},
    {"groupby", GroupBy},
    {"items", Lazy<ItemsFilter>},
    {"join", Join},
    {"last", Last},
    {"list", ListFilter},
    {"map", Lazy<Map>},
    {"max", Max},
    {"min", Min},
    {"reject", Lazy<Reject>},
    {"rejectattr", Lazy<RejectAttr>},
    {"reverse", Reverse},
    {"select", Lazy<Select>},
    {"selectattr", Lazy<SelectAttr>},
    {"slice", Lazy<SliceFilter>},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Lazy<Unique>},
};

}  // namespace

FilterFunction FindSequenceFilter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const Entry& e) { return e.name == name; });
  return it == std::end(kFilters) ? nullptr : it->function;
}

}  // namespace baton::jinja::internal
