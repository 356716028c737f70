#include "text/added_tokens.h"

#include <algorithm>
#include <utility>

#include "text/utf8.h"
#include "utf8proc.h"

namespace baton {
namespace {

// \w of the Rust library's regular expressions: letters, marks, digits and connectors.
bool IsWord(char32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return c == 0x200C || c == 0x200D;
  }
}

bool StartsWithWord(std::string_view text) {
  size_t pos = 0;
  return !text.empty() && IsWord(NextCodePoint(text, &pos));
}

bool EndsWithWord(std::string_view text) {
  size_t pos = text.size();
  return !text.empty() && IsWord(PreviousCodePoint(text, &pos));
}

// Unicode's White_Space, unlike Python's without U+001C to U+001F.
bool IsSpace(char32_t c) { return IsPythonSpace(c) && !(c >= 0x1C && c <= 0x1F); }

size_t SpaceAtStart(std::string_view text) {
  size_t end = 0;
  while (end < text.size()) {
    size_t next = end;
    if (!IsSpace(NextCodePoint(text, &next))) break;
    end = next;
  }
  return end;
}

// Where the white space at the end of `text` begins.
size_t SpaceAtEnd(std::string_view text) {
  size_t begin = text.size();
  while (begin > 0) {
    size_t previous = begin;
    if (!IsSpace(PreviousCodePoint(text, &previous))) break;
    begin = previous;
  }
  return begin;
}

constexpr uint64_t EdgeKey(uint32_t node, char byte) {
  return uint64_t{node} << 8 | static_cast<uint8_t>(byte);
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(std::vector<AddedToken> tokens,
                                     const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)), node_token_(1, -1) {
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (contents[i].empty()) continue;
    first_bytes_[static_cast<uint8_t>(contents[i][0])] = true;
    uint32_t node = 0;
    for (const char byte : contents[i]) {
      const auto [edge, inserted] =
          edges_.emplace(EdgeKey(node, byte), static_cast<uint32_t>(node_token_.size()));
      if (inserted) node_token_.push_back(-1);
      node = edge->second;
    }
    if (node_token_[node] < 0) node_token_[node] = static_cast<int32_t>(i);
  }
}

AddedTokenMatcher::Match AddedTokenMatcher::MatchAt(std::string_view text) const {
  Match longest;
  uint32_t node = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto edge = edges_.find(EdgeKey(node, text[i]));
    if (edge == edges_.end()) break;
    node = edge->second;
    if (node_token_[node] >= 0) {
      longest = {i + 1, &tokens_[static_cast<size_t>(node_token_[node])]};
    }
  }
  return longest;
}

std::vector<AddedTokenMatcher::Piece> AddedTokenMatcher::Split(std::string_view text,
                                                               bool parse_special) const {
  std::vector<Piece> pieces;
  size_t done = 0;  // end of the last piece
  for (size_t at = 0; at < text.size();) {
    if (!first_bytes_[static_cast<uint8_t>(text[at])]) {
      ++at;
      continue;
    }
    const Match match = MatchAt(text.substr(at));
    if (match.token == nullptr) {
      ++at;
      continue;
    }
    // As in the Rust library, a match that does not count still consumes its text.
    size_t begin = at;
    size_t end = at + match.bytes;
    at = end;
    const AddedToken& token = *match.token;
    if (token.special && !parse_special) continue;
    if (token.single_word &&
        (EndsWithWord(text.substr(0, begin)) || StartsWithWord(text.substr(end)))) {
      continue;
    }
    if (token.lstrip) begin = std::max(SpaceAtEnd(text.substr(0, begin)), done);
    if (token.rstrip) end += SpaceAtStart(text.substr(end));
    if (done < begin) pieces.push_back({text.substr(done, begin - done), std::nullopt});
    pieces.push_back({text.substr(begin, end - begin), token.id});
    done = end;
    at = std::max(at, end);
  }
  if (done < text.size()) pieces.push_back({text.substr(done), std::nullopt});
  return pieces;
}

}  // namespace baton
