// For jinja_differential.py: renders templates from standard input. The first line is the JSON
// object of variables, every other a template as a JSON string; each is answered by one line,
// {"text"} or {"error"}.
#include <cstdio>
#include <iostream>
#include <string>

#include "base/json.h"
#include "text/jinja.h"

namespace baton {
namespace {

Json Answer(const std::string& source, const OrderedJson& variables) {
  const auto parsed = jinja::Template::Parse(source);
  if (!parsed.ok()) return Json{{"error", std::string(parsed.status().message())}};
  jinja::RenderInput input;
  input.variables = variables;
  const auto text = parsed->Render(input);
  if (!text.ok()) return Json{{"error", std::string(text.status().message())}};
  return Json{{"text", *text}};
}

int Main() {
  std::string line;
  std::getline(std::cin, line);
  const auto variables = ParseJsonOrdered(line);
  if (!variables.ok()) return 2;
  while (std::getline(std::cin, line)) {
    const auto source = ParseJsonLenient(line);
    if (!source.ok() || !source->is_string()) return 2;
    std::puts(Answer(source->get<std::string>(), *variables).dump(-1, ' ', true).c_str());
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main() { return baton::Main(); }
