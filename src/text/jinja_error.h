// The one exception of the interpreter: thrown while a template is parsed or rendered, caught by
// Template::Parse and Template::Render, never seen outside. Exceptions mirror Python's here, which
// keeps thirty filters and methods free of error plumbing.
#ifndef BATON_TEXT_JINJA_ERROR_H_
#define BATON_TEXT_JINJA_ERROR_H_

#include <string>
#include <string_view>
#include <utility>

namespace baton::jinja::internal {

struct Failure {
  std::string kind;  // Python's exception class, or kLimit
  std::string reason;
  int line = 0;  // 0: not known where it was thrown
};

inline constexpr std::string_view kLimit = "LimitReached";

[[noreturn]] inline void Fail(std::string_view kind, std::string reason, int line = 0) {
  throw Failure{std::string(kind), std::move(reason), line};
}
[[noreturn]] inline void TypeError(std::string reason) { Fail("TypeError", std::move(reason)); }
[[noreturn]] inline void Unsupported(std::string what) {
  Fail("Unsupported", what + " exists in jinja2 but not in this interpreter");
}

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_ERROR_H_
