// Reads typed, range-checked fields of a JSON object. The first thing wrong is kept as an error
// that names the field, the value found and what is allowed; later reads then return their default.
// JSON null counts as absent. Thread rule: one reader per thread.
#ifndef BATON_SERVER_FIELD_READER_H_
#define BATON_SERVER_FIELD_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/types.h"
#include "server/api_error.h"

namespace baton::server {

// A short printing of a value for messages; long values are cut.
std::string ShowJson(const OrderedJson& value);

struct NumberRange {
  double min = 0;
  double max = 0;
  bool min_open = false;  // min itself is not allowed
};

class FieldReader {
 public:
  // `object` must be an object and outlive the reader.
  explicit FieldReader(const OrderedJson& object) : object_(object) {}

  // The field, or null if absent or JSON null.
  const OrderedJson* Find(std::string_view name) const;

  std::optional<bool> Bool(std::string_view name);
  std::optional<int64_t> Int(std::string_view name, int64_t min, int64_t max);
  std::optional<double> Number(std::string_view name, const NumberRange& range);
  std::optional<std::string> String(std::string_view name, size_t bytes_max);
  // A string or a list of at most `count_max` strings.
  std::vector<std::string> Strings(std::string_view name, size_t count_max, size_t bytes_max);
  // A list of token ids below `vocab_size`.
  std::vector<TokenId> TokenIds(std::string_view name, int64_t vocab_size, size_t count_max);

  // Records an error unless there is one already.
  void Fail(ApiError error);
  void FailType(std::string_view name, std::string_view expected, const OrderedJson& found);
  bool failed() const { return error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }

 private:
  const OrderedJson& object_;
  std::optional<ApiError> error_;
};

// Token ids of a JSON list; the error names `name` and the first bad element.
std::optional<ApiError> ReadTokenIds(const OrderedJson& list,
                                     std::string_view name,
                                     int64_t vocab_size,
                                     std::vector<TokenId>* out);

}  // namespace baton::server

#endif  // BATON_SERVER_FIELD_READER_H_
