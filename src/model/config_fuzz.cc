// Any text as a config.json: never a crash, and an accepted config has a layout and a binding.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "model/config.h"
#include "model/model_layout.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;
  const auto json = ParseJsonLenient({reinterpret_cast<const char*>(data), size});
  if (!json.ok()) return 0;
  const auto config = model::ParseConfig(*json);
  if (!config.ok()) return 0;
  (void)model::BuildLayout(*config, Sha256());
  (void)model::CanonicalText(*config);
  return 0;
}
