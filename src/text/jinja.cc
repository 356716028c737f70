#include "text/jinja.h"

#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/jinja_error.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_parser.h"

namespace baton::jinja {
namespace {

Status ToStatus(const internal::Failure& failure, int line) {
  if (failure.line > 0) line = failure.line;
  const std::string text =
      absl::StrCat("template line ", line, ": ", failure.kind, ": ", failure.reason);
  if (failure.kind == internal::kLimit) return absl::ResourceExhaustedError(text);
  return absl::InvalidArgumentError(text);
}

}  // namespace

Template::Template(std::shared_ptr<const internal::Program> program)
    : program_(std::move(program)) {}

StatusOr<Template> Template::Parse(std::string_view source) {
  static constexpr size_t kSourceBytesMax = size_t{4} << 20;
  if (source.size() > kSourceBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("a template of ", source.size(),
                                                   " bytes exceeds the limit of ",
                                                   kSourceBytesMax));
  }
  try {
    return Template(
        std::make_shared<const internal::Program>(internal::ParseProgram(source)));
  } catch (const internal::Failure& failure) {
    return ToStatus(failure, 1);
  }
}

StatusOr<std::string> Template::Render(const RenderInput& input) const {
  internal::Interpreter interpreter(*program_, input);
  try {
    return interpreter.Run();
  } catch (const internal::Failure& failure) {
    return ToStatus(failure, interpreter.line());
  }
}

}  // namespace baton::jinja
