// Python's values as chat templates see them. Values are immutable and cheap to copy; the only
// things that change are a Namespace's attributes, a generator's position and a loop's state.
//
// Nesting is bounded (kValueDepthMax) because comparing, printing and destroying recurse. Shared
// items make a small value big to walk ([x, x] of [y, y] of ...), so every value also has a weight,
// what walking all of it costs in steps, bounded as well. Both are counted when a container is made.
// Namespaces may form cycles: the interpreter that made them clears them at the end of a render.
// Thread rule: values of one render belong to one thread.
#ifndef BATON_TEXT_JINJA_VALUE_H_
#define BATON_TEXT_JINJA_VALUE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/json.h"

namespace baton::jinja::internal {

inline constexpr int kValueDepthMax = 200;
inline constexpr int64_t kValueWeightMax = 20'000'000;

// Steps that producing or walking `bytes` of text costs.
constexpr int64_t TextWeight(size_t bytes) { return 1 + static_cast<int64_t>(bytes / 64); }

class Value;
class Callable;
class LoopState;

// What using an undefined value says. Python class "UndefinedError" or "SecurityError".
struct UndefinedInfo {
  std::string message;
  bool security = false;
};

struct Str {
  std::string text;    // valid UTF-8
  bool safe = false;   // markupsafe.Markup, made by the `safe` and `escape` filters
  bool ascii = false;  // code points are bytes
};

enum class SequenceKind : uint8_t {
  kList,
  kTuple,
  kRange,
  kView,       // dict.items(), .keys(), .values(): has a length, no subscript
  kGenerator,  // filters such as map and select: always true, no length, runs out
};

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  mutable std::vector<Value> items;  // of a generator: empty until Materialize
  int depth = 1;
  int64_t weight = 1;
  mutable size_t position = 0;                             // of a generator
  mutable std::function<std::vector<Value>()> produce;  // of a generator not yet run
  // What a printed view says, "dict_items" and so on; for groupby's tuples "group".
  const char* label = "";
};

// A dict in insertion order. Strings are indexed once there are many; other keys are compared.
class Dict {
 public:
  using Entry = std::pair<Value, Value>;
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
  // Adds or replaces. `key` must be hashable.
  void Set(Value key, Value value);
  const std::vector<Entry>& entries() const { return entries_; }
  int depth() const { return depth_; }
  int64_t weight() const { return weight_; }

 private:
  size_t IndexOf(const Value& key) const;
  std::vector<Entry> entries_;
  absl::flat_hash_map<std::string, size_t> index_;
  int depth_ = 1;
  int64_t weight_ = 1;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> attributes;
};

using UndefinedPtr = std::shared_ptr<const UndefinedInfo>;
using StrPtr = std::shared_ptr<const Str>;
using SequencePtr = std::shared_ptr<const Sequence>;
using DictPtr = std::shared_ptr<const Dict>;
using NamespacePtr = std::shared_ptr<Namespace>;
using LoopPtr = std::shared_ptr<LoopState>;
using CallablePtr = std::shared_ptr<const Callable>;

class Value {
 public:
  Value() : data_(std::monostate{}) {}  // None
  explicit Value(bool b) : data_(b) {}
  explicit Value(int64_t i) : data_(i) {}
  explicit Value(double d) : data_(d) {}
  explicit Value(std::string text, bool safe = false);
  explicit Value(const char* text, bool safe = false) : Value(std::string(text), safe) {}
  template <class T>
  explicit Value(T*) = delete;  // a pointer is not a bool
  explicit Value(NamespacePtr ns) : data_(std::move(ns)) {}
  explicit Value(LoopPtr loop) : data_(std::move(loop)) {}
  explicit Value(CallablePtr callable) : data_(std::move(callable)) {}
  explicit Value(DictPtr dict) : data_(std::move(dict)) {}
  explicit Value(SequencePtr sequence) : data_(std::move(sequence)) {}

  static Value Undefined(std::string message, bool security = false);
  // Fails with LimitReached if the items are nested too deeply or weigh too much.
  static Value MakeSequence(SequenceKind kind, std::vector<Value> items, const char* label = "");
  // A generator whose items are computed when they are first asked for, as in Python: errors in
  // one that nobody reads do not matter. `source` is what it reads.
  static Value Generator(const Value& source, std::function<std::vector<Value>()> produce);
  static Value List(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kList, std::move(items));
  }
  static Value Tuple(std::vector<Value> items) {
    return MakeSequence(SequenceKind::kTuple, std::move(items));
  }
  static Value MakeDict(Dict dict);
  // Text that is not UTF-8 gets U+FFFD; integers beyond 64 bits are refused.
  static Value FromJson(const OrderedJson& json, int depth = 0);

  bool is_none() const { return std::holds_alternative<std::monostate>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_integral() const { return is_bool() || is_int(); }

  // Null unless the value is of that kind.
  const UndefinedInfo* undefined() const { return Get<UndefinedPtr>(); }
  const Str* str() const { return Get<StrPtr>(); }
  const Sequence* sequence() const { return Get<SequencePtr>(); }
  const Dict* dict() const { return Get<DictPtr>(); }
  Namespace* name_space() const { return Get<NamespacePtr>(); }
  LoopState* loop() const { return Get<LoopPtr>(); }
  const Callable* callable() const { return Get<CallablePtr>(); }
  SequencePtr sequence_ptr() const { return std::get<SequencePtr>(data_); }

  bool boolean() const { return std::get<bool>(data_); }
  // Of a bool or an int.
  int64_t integer() const { return is_bool() ? (boolean() ? 1 : 0) : std::get<int64_t>(data_); }
  // Of any number.
  double number() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(integer());
  }
  bool is_list() const { return IsSequence(SequenceKind::kList); }
  bool is_tuple() const { return IsSequence(SequenceKind::kTuple); }
  bool is_generator() const { return IsSequence(SequenceKind::kGenerator); }

  int depth() const;
  int64_t weight() const;
  // Same object (or same singleton or scalar).
  bool SameAs(const Value& other) const { return data_ == other.data_; }

 private:
  template <class Ptr>
  auto Get() const -> decltype(std::declval<const Ptr&>().get()) {
    const Ptr* p = std::get_if<Ptr>(&data_);
    return p == nullptr ? nullptr : p->get();
  }
  bool IsSequence(SequenceKind kind) const {
    const Sequence* s = sequence();
    return s != nullptr && s->kind == kind;
  }

  std::variant<std::monostate, bool, int64_t, double, UndefinedPtr, StrPtr, SequencePtr, DictPtr,
               NamespacePtr, LoopPtr, CallablePtr>
      data_;
};

// Arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

class Interpreter;

// Something a template can call. Implementations are final and immutable.
class Callable {
 public:
  virtual ~Callable() = default;
  virtual Value Call(Interpreter& interpreter, Arguments arguments) const = 0;
  // What printing it shows, without the address Python adds.
  virtual std::string Describe() const = 0;
  virtual int depth() const { return 1; }
};

// Python's type name: "str", "list", "NoneType", "Undefined", ...
std::string TypeName(const Value& value);
// UndefinedError (or SecurityError) if the value is undefined.
void RequireDefined(const Value& value);

bool Truth(const Value& value);
// len(); TypeError if it has none.
int64_t Length(const Value& value);
// str() and repr().
std::string ToText(const Value& value);
std::string Repr(const Value& value);

bool Equal(const Value& a, const Value& b);
// a < b; TypeError if the types have no order. `op` is the operator as written: for > and >= the
// caller has swapped the operands.
bool Less(const Value& a, const Value& b, const char* op = "<");
// item in container.
bool Contains(const Value& container, const Value& item);
bool IsHashable(const Value& value);

// Runs a generator that has not run yet.
void Materialize(const Sequence& generator);

// What a for loop walks over; a generator is exhausted by it. TypeError if not iterable.
SequencePtr Iterate(const Value& value);
bool IsIterable(const Value& value);

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_VALUE_H_
