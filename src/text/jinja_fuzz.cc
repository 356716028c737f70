// Any template with any input ends within its limits: parse, render, no crash, no leak.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "text/jinja.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = baton::jinja::Template::Parse(source);
  if (!parsed.ok()) return 0;
  baton::jinja::RenderInput input;
  input.variables = {
      {"s", "h\xc3\xa9llo \xf0\x9f\x99\x82"},
      {"n", 7},
      {"f", 2.5},
      {"l", {3, 1, 2}},
      {"d", {{"a", 1}, {"b", {1, nullptr, true}}}},
      {"messages", {{{"role", "user"}, {"content", "x"}}}},
  };
  input.now = std::tm{};
  input.limits.steps_max = 20'000;
  input.limits.depth_max = 200;
  input.limits.output_bytes_max = 1 << 16;
  const auto text = parsed->Render(input);
  if (text.ok() && text->size() > input.limits.output_bytes_max) __builtin_trap();
  return 0;
}
