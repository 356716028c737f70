// A small interpreter for the Jinja2 language of published chat templates. It behaves as jinja2's
// ImmutableSandboxedEnvironment set up by transformers: trim_blocks, lstrip_blocks, loop controls,
// no autoescape, default Undefined, `tojson` without HTML escapes, raise_exception(msg),
// strftime_now(format) and {% generation %}. Values are Python's: strings index by code point,
// printing a list gives its repr, integers are 64 bit (overflow is an error).
//
// Not here: include, import, extends, block, autoescape, do, trans; the filters pprint, random,
// urlize, urlencode, wordwrap, xmlattr, striptags, filesizeformat. They are refused, not ignored.
//
// Every render is bounded in steps, depth and output bytes, so a hostile template costs a bounded
// amount of time and memory. Thread rule: a Template is immutable; any thread may render it.
#ifndef BATON_TEXT_JINJA_H_
#define BATON_TEXT_JINJA_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace baton::jinja {

namespace internal {
struct Program;
}

struct Limits {
  // One step per evaluated node and per 64 bytes of text produced; a long chat takes about 1e5.
  int64_t steps_max = 20'000'000;
  int depth_max = 600;  // nested evaluations, macro calls included
  size_t output_bytes_max = size_t{64} << 20;
};

struct RenderInput {
  OrderedJson variables;      // an object, or null
  std::optional<std::tm> now;  // for strftime_now
  Limits limits;
};

class Template {
 public:
  // InvalidArgument "template line N: reason" if the text is not a template of the language above.
  static StatusOr<Template> Parse(std::string_view source);

  // InvalidArgument "template line N: kind: reason", where kind is Python's exception class
  // (UndefinedError, TypeError, TemplateError for raise_exception, SecurityError, ...), or
  // ResourceExhausted if a limit was reached. No partial output.
  StatusOr<std::string> Render(const RenderInput& input) const;

 private:
  explicit Template(std::shared_ptr<const internal::Program> program);
  std::shared_ptr<const internal::Program> program_;
};

}  // namespace baton::jinja

#endif  // BATON_TEXT_JINJA_H_
