// Two parts, chosen by the first byte: any file as tokenizer.json, and any bytes as text and as
// token ids of a good one. Decoding in steps must equal decoding at once.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer.h"
#include "text/utf8.h"

namespace {

using baton::TokenId;
using baton::Tokenizer;

void Exercise(const Tokenizer& tokenizer, std::string_view bytes) {
  for (const bool parse_special : {false, true}) {
    const auto encoded = tokenizer.Encode(bytes, {true, parse_special});
    if (!encoded.ok()) continue;
    const auto& ids = *encoded;
    tokenizer.Decode(ids, true);
  }
  std::vector<TokenId> ids;
  for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
    ids.push_back(static_cast<uint8_t>(bytes[i]) | (static_cast<uint8_t>(bytes[i + 1]) & 7u) << 8);
  }
  const std::string whole = tokenizer.Decode(ids, false);
  baton::IncrementalDecoder decoder(&tokenizer, false);
  std::string steps;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    if (!baton::IsValidUtf8(part)) __builtin_trap();
    steps += part;
  }
  steps += decoder.Finish();
  if (steps != whole) __builtin_trap();
}

const Tokenizer& Good(const char* name) {
  static const auto* byte_level =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/src/text/testdata/byte_level.json")->release();
  static const auto* metaspace =
      Tokenizer::FromFile(BATON_SOURCE_DIR "/src/text/testdata/metaspace.json")->release();
  return name[0] == 'b' ? *byte_level : *metaspace;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] == '{') {
    const auto tokenizer = Tokenizer::FromJson(std::string_view(bytes.data() - 1, size));
    if (tokenizer.ok()) Exercise(**tokenizer, bytes);
    return 0;
  }
  Exercise(Good(data[0] % 2 == 0 ? "byte_level" : "metaspace"), bytes);
  return 0;
}
