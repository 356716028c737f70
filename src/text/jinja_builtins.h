// The filters, tests, methods and global functions of the language, found by name.
// Thread rule: free functions over immutable tables.
#ifndef BATON_TEXT_JINJA_BUILTINS_H_
#define BATON_TEXT_JINJA_BUILTINS_H_

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace baton::jinja::internal {

class Interpreter;

using FilterFunction = Value (*)(Interpreter& in, const Value& operand, const Arguments& arguments);
using TestFunction = bool (*)(Interpreter& in, const Value& operand, const Arguments& arguments);

// Null if jinja2 has no such filter or test. A filter that jinja2 has and this interpreter does not
// is found, and fails as Unsupported when called.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);

// The parts of FindFilter, by file: jinja_filters.cc (text and numbers), jinja_sequence_filters.cc.
FilterFunction FindTextFilter(std::string_view name);
FilterFunction FindSequenceFilter(std::string_view name);

// Whether Python's type of `value` has an attribute `name` (its methods), and if so what the
// sandbox lets a template see of it: a callable, or undefined (SecurityError when used) for what
// changes a list or dict. A method that Python has and this interpreter does not is found, and
// fails as Unsupported when called.
std::optional<Value> FindMethod(const Value& value, std::string_view name);

// Methods of text by name; null if absent here (jinja_text_methods.cc).
using MethodFunction = Value (*)(Interpreter& in, const Value& self, const Arguments& arguments);
MethodFunction FindTextMethod(std::string_view name);

// range, dict, namespace, raise_exception, strftime_now, and what jinja2 has besides (Unsupported).
std::optional<Value> FindGlobal(std::string_view name);

// json.dumps of a value. TypeError for what JSON does not know.
struct JsonOptions {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // one level
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
  size_t bytes_max = SIZE_MAX;
};
std::string ToJson(const Value& value, const JsonOptions& options);

// `format % arguments` for text.
std::string FormatPercent(Interpreter& in, std::string_view format, const Value& arguments);

// Arguments matched to parameter names as Python does for builtin functions; TypeError otherwise.
class Parameters {
 public:
  // The first `required` names must be given.
  Parameters(std::string_view function, const Arguments& arguments,
             std::initializer_list<std::string_view> names, size_t required = 0);
  // Null if not given.
  const Value* operator[](size_t i) const { return values_[i]; }
  bool Has(size_t i) const { return values_[i] != nullptr; }
  // Given and not None.
  bool HasValue(size_t i) const { return Has(i) && !values_[i]->is_none(); }
  const std::string& Text(size_t i) const;  // TypeError if not text
  int64_t Integer(size_t i, int64_t otherwise) const;
  bool Boolean(size_t i, bool otherwise) const { return Has(i) ? Truth(*values_[i]) : otherwise; }

 private:
  std::string function_;
  std::vector<const Value*> values_;
};

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_BUILTINS_H_
