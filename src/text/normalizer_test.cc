#include "text/normalizer.h"

#include <cstdlib>
#include <string>

#include "base/rng.h"
#include "gtest/gtest.h"
#include "text/utf8.h"
#include "utf8proc.h"

namespace baton {
namespace {

Normalizer Nfc() {
  const auto document = JsonDocument::Parse(R"({"type": "NFC"})");
  return *Normalizer::Read((*document)->root());
}

// The whole text at once, by the library.
std::string Reference(const std::string& text) {
  utf8proc_uint8_t* mapped = nullptr;
  const auto size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                 static_cast<utf8proc_ssize_t>(text.size()), &mapped,
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
  return out;
}

char32_t RandomCodePoint(SplitMix64* rng) {
  switch (rng->Below(6)) {
    case 0:
      return static_cast<char32_t>(rng->Below(0x300));
    case 1:
      return static_cast<char32_t>(0x300 + rng->Below(0x70));  // combining marks
    case 2:
      return static_cast<char32_t>(0x1100 + rng->Below(0x100));  // Jamo
    case 3:
      return static_cast<char32_t>(0x900 + rng->Below(0x900));  // Indic scripts
    case 4:
      return static_cast<char32_t>(0x1E00 + rng->Below(0x200));
    default: {
      const auto c = static_cast<char32_t>(rng->Below(0x30000));
      return c >= 0xD800 && c <= 0xDFFF ? U'a' : c;
    }
  }
}

TEST(Normalizer, NfcInPartsEqualsNfcOfTheWhole) {
  const Normalizer nfc = Nfc();
  SplitMix64 rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t n = rng.Below(12); n > 0; --n) AppendUtf8(RandomCodePoint(&rng), &text);
    ASSERT_EQ(*nfc.Run(text), Reference(text)) << "round " << round;
  }
}

// Every code point between letters and marks it might combine with.
TEST(Normalizer, NfcInPartsHoldsForEveryCodePoint) {
  const Normalizer nfc = Nfc();
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text = "a";
    for (const char32_t around : {c, char32_t{0x301}, c, char32_t{0x1161}, c, c, char32_t{0x3099}}) {
      AppendUtf8(around, &text);
    }
    ASSERT_EQ(*nfc.Run(text), Reference(text)) << std::hex << static_cast<uint32_t>(c);
  }
}

}  // namespace
}  // namespace baton
