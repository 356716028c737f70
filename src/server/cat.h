// String concatenation that takes std::string_view (Debian's Abseil has a string_view type of its
// own, which std::string_view does not convert to). Thread rule: free functions.
#ifndef BATON_SERVER_CAT_H_
#define BATON_SERVER_CAT_H_

#include <string>
#include <string_view>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace baton::server {

inline absl::string_view AbslView(std::string_view s) { return {s.data(), s.size()}; }

namespace internal {
template <class T>
decltype(auto) Piece(const T& value) {
  if constexpr (std::is_same_v<T, std::string_view>) {
    return AbslView(value);
  } else {
    return (value);
  }
}
}  // namespace internal

template <class... Args>
std::string Cat(const Args&... args) {
  return absl::StrCat(internal::Piece(args)...);
}

template <class... Args>
void CatTo(std::string* out, const Args&... args) {
  absl::StrAppend(out, internal::Piece(args)...);
}

}  // namespace baton::server

#endif  // BATON_SERVER_CAT_H_
