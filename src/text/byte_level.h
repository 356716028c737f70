// The byte-level alphabet of GPT-2: every byte has a printable letter, so that a vocabulary of
// strings can spell any bytes. Thread rule: free functions over immutable tables.
#ifndef BATON_TEXT_BYTE_LEVEL_H_
#define BATON_TEXT_BYTE_LEVEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace baton {

// The letter of a byte: itself if it prints in Latin-1, else one from U+0100 on.
char32_t ByteLetter(uint8_t byte);
// The byte of a letter, if the code point is one.
std::optional<uint8_t> LetterByte(char32_t letter);

// Every byte's letter, as UTF-8.
std::string BytesToLetters(std::string_view bytes);
// The inverse; nullopt if any code point is no letter. `text` must be valid UTF-8.
std::optional<std::string> LettersToBytes(std::string_view text);

}  // namespace baton

#endif  // BATON_TEXT_BYTE_LEVEL_H_
