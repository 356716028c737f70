#include "text/normalizer.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/byte_level.h"
#include "text/utf8.h"
#include "utf8proc.h"

namespace baton {
namespace {

// Code points that never combine with what stands before them and are their own NFC: a text can be
// normalized in parts that start at one of them. Below U+0300 all are; above, these ranges hold
// most of what is written.
constexpr std::pair<char32_t, char32_t> kInertRanges[] = {
    {0x3A3, 0x482},     {0x48A, 0x52F},     {0x531, 0x556},     {0x5D0, 0x5EA},
    {0x621, 0x64A},     {0x671, 0x6D3},     {0x904, 0x939},     {0xE01, 0xE30},
    {0x10D0, 0x10FF},   {0x1E00, 0x1F15},   {0x2010, 0x205E},   {0x20A0, 0x20C0},
    {0x2190, 0x2328},   {0x2460, 0x2ADB},   {0x3001, 0x3029},   {0x3041, 0x3096},
    {0x309B, 0x30FF},   {0x3105, 0x312F},   {0x3400, 0x9FFF},   {0xAC00, 0xD7A3},
    {0xFF01, 0xFFBE},   {0x1F300, 0x1F64F}, {0x1F680, 0x1F6D7}, {0x1F900, 0x1FA53},
    {0x20000, 0x2A6DF},
};

bool IsInert(char32_t c) {
  if (c < 0x300) return true;
  const auto* it = std::upper_bound(
      std::begin(kInertRanges), std::end(kInertRanges), c,
      [](char32_t value, const auto& range) { return value < range.first; });
  return it != std::begin(kInertRanges) && c <= std::prev(it)->second;
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

std::string Utf8procMap(std::string_view text, int options) {
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size = utf8proc_map(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(text.size()), &mapped,
      static_cast<utf8proc_option_t>(options));
  // Fails only for broken UTF-8, which does not get here, or without memory.
  if (size < 0) return std::string(text);
  std::string out(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
  std::free(mapped);
  return out;
}

// NFC, part by part: only the parts that are not inert reach utf8proc (a quarter of the time of
// encoding English went there before).
std::string Nfc(std::string_view text) {
  std::string out;
  size_t copied = 0;    // text before this is in `out`
  size_t previous = 0;  // start of the code point before pos
  for (size_t pos = 0; pos < text.size();) {
    const size_t begin = pos;
    if (static_cast<uint8_t>(text[pos]) < 0xCC) {  // lead bytes of code points below U+0300
      pos += Utf8Length(text[pos]);
      previous = begin;
      continue;
    }
    if (IsInert(NextCodePoint(text, &pos))) {
      previous = begin;
      continue;
    }
    // From the inert code point before, which this one may combine with, to the next inert one.
    while (pos < text.size()) {
      size_t next = pos;
      if (IsInert(NextCodePoint(text, &next))) break;
      pos = next;
    }
    out.append(text.substr(copied, previous - copied));
    out += Utf8procMap(text.substr(previous, pos - previous), UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    copied = previous = pos;
  }
  return out.append(text.substr(copied));
}

// Code point by code point, as Rust's char::to_lowercase: no final sigma.
std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, &pos);
    if (c == 0x130) {
      out += "i\xCC\x87";
    } else {
      AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))), &out);
    }
  }
  return out;
}

std::string WithoutMarks(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const char32_t c = NextCodePoint(text, &pos);
    const utf8proc_category_t category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
    if (category != UTF8PROC_CATEGORY_MN && category != UTF8PROC_CATEGORY_MC &&
        category != UTF8PROC_CATEGORY_ME) {
      AppendUtf8(c, &out);
    }
  }
  return out;
}

}  // namespace

StatusOr<Normalizer> Normalizer::Read(const JsonNode& node) {
  Normalizer normalizer;
  if (!node.is_null()) BATON_RETURN_IF_ERROR(normalizer.Append(node, 0));
  return normalizer;
}

Status Normalizer::Append(const JsonNode& node, int depth) {
  if (depth > 8) return node.Error("sequences nested too deeply");
  BATON_ASSIGN_OR_RETURN(const std::string type, node.TextMember("type"));
  const auto form = [&]() -> std::optional<Form> {
    if (type == "NFC") return Form::kNfc;
    if (type == "NFD") return Form::kNfd;
    if (type == "NFKC") return Form::kNfkc;
    if (type == "NFKD") return Form::kNfkd;
    return std::nullopt;
  }();
  if (form.has_value() || type == "Lowercase" || type == "StripAccents" || type == "ByteLevel") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type"}));
    if (form.has_value()) {
      steps_.emplace_back(*form);
    } else if (type == "Lowercase") {
      steps_.emplace_back(Lowercase{});
    } else if (type == "StripAccents") {
      steps_.emplace_back(StripAccents{});
    } else {
      steps_.emplace_back(Bytes{});
    }
    return absl::OkStatus();
  }
  if (type == "Prepend") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "prepend"}));
    BATON_ASSIGN_OR_RETURN(std::string text, node.TextMember("prepend"));
    steps_.emplace_back(Prepend{std::move(text)});
    return absl::OkStatus();
  }
  if (type == "Replace") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "pattern", "content"}));
    BATON_ASSIGN_OR_RETURN(Regex pattern, node.Pattern("pattern"));
    BATON_ASSIGN_OR_RETURN(std::string content, node.TextMember("content"));
    steps_.emplace_back(Replace{std::move(pattern), std::move(content)});
    return absl::OkStatus();
  }
  if (type == "Strip") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "strip_left", "strip_right"}));
    BATON_ASSIGN_OR_RETURN(const bool left, node.Flag("strip_left", true));
    BATON_ASSIGN_OR_RETURN(const bool right, node.Flag("strip_right", true));
    steps_.emplace_back(Strip{left, right});
    return absl::OkStatus();
  }
  if (type == "Sequence") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "normalizers"}));
    BATON_ASSIGN_OR_RETURN(const JsonNode list, node.Require("normalizers"));
    BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) BATON_RETURN_IF_ERROR(Append(item, depth + 1));
    return absl::OkStatus();
  }
  return node.Unsupported(absl::StrCat("the normalizer \"", type, "\""));
}

StatusOr<std::string> Normalizer::Apply(const Step& step, std::string text) {
  if (const Form* form = std::get_if<Form>(&step)) {
    if (IsAscii(text)) return text;
    if (*form == Form::kNfc) return Nfc(text);
    const bool compose = *form == Form::kNfkc;
    const bool compat = *form == Form::kNfkc || *form == Form::kNfkd;
    return Utf8procMap(text, UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                 (compat ? UTF8PROC_COMPAT : 0));
  }
  if (std::holds_alternative<Lowercase>(step)) return Lower(text);
  if (std::holds_alternative<StripAccents>(step)) return WithoutMarks(text);
  if (std::holds_alternative<Bytes>(step)) return BytesToLetters(text);
  if (const auto* prepend = std::get_if<Prepend>(&step)) {
    return text.empty() ? text : prepend->text + text;
  }
  if (const auto* strip = std::get_if<Strip>(&step)) {
    return std::string(StripPythonSpace(text, strip->left, strip->right));
  }
  const auto& replace = std::get<Replace>(step);
  std::string out;
  size_t copied = 0;
  BATON_ASSIGN_OR_RETURN(const std::vector<TextRange> matches, replace.pattern.FindAll(text));
  for (const TextRange& match : matches) {
    out.append(text, copied, match.begin - copied);
    out.append(replace.content);
    copied = match.end;
  }
  if (copied == 0 && out.empty()) return text;
  return out.append(text, copied);
}

StatusOr<std::string> Normalizer::Run(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    BATON_ASSIGN_OR_RETURN(out, Apply(step, std::move(out)));
  }
  return out;
}

}  // namespace baton
