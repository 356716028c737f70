// JSON for configs and request bodies: parsing that cannot throw, overflow the stack or turn
// quadratic, and names the byte offset of what is wrong. Values are nlohmann's, whose accessors
// throw on a type mismatch: test with is_number() and friends first (or use value()/find() only
// after such a test), because no exception may leave a module.
// Thread rule: free functions.
#ifndef BATON_BASE_JSON_H_
#define BATON_BASE_JSON_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "nlohmann/json.hpp"

namespace baton {

using Json = nlohmann::json;                 // keys sorted
using OrderedJson = nlohmann::ordered_json;  // keys in the order of the text; look-up is linear

inline constexpr size_t kJsonDepthMax = 128;
// Members per object in ParseJsonOrdered, whose look-up is linear in them.
inline constexpr size_t kOrderedJsonMembersMax = 1024;

// For files written by Python's json.dump (published config.json files contain bare tokens that
// RFC 8259 does not know). Outside strings, `Infinity` becomes the largest finite double,
// `-Infinity` its negative and `NaN` becomes null; `1e308` stays what it is. Nothing else is
// relaxed. A UTF-8 byte order mark at the start is skipped. Of duplicate keys the last one wins.
// InvalidArgument names the byte offset in `text`; nesting deeper than `depth_max` is refused.
StatusOr<Json> ParseJsonLenient(std::string_view text, size_t depth_max = kJsonDepthMax);

// ParseJsonLenient of a file; every error names the path.
StatusOr<Json> ReadJsonFile(const std::string& path, size_t bytes_max = size_t{64} << 20);

// Strict RFC 8259, keeping the order of keys: for request bodies whose tool schemas are printed
// into the prompt, where the order of keys is part of the text. Same errors; an object with more
// than kOrderedJsonMembersMax members is refused.
StatusOr<OrderedJson> ParseJsonOrdered(std::string_view text, size_t depth_max = kJsonDepthMax);

// Compact text of a value. Never throws: bytes that are not UTF-8 become U+FFFD.
std::string DumpJson(const Json& value);
std::string DumpJson(const OrderedJson& value);

}  // namespace baton

#endif  // BATON_BASE_JSON_H_
