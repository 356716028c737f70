#include "text/decoder.h"

#include <charconv>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace baton {
namespace {

std::string ReplaceAll(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  for (;;) {
    const size_t at = text.find(from);
    if (at == std::string_view::npos) return out.append(text);
    out.append(text.substr(0, at));
    out.append(to);
    text.remove_prefix(at + from.size());
  }
}

// "<0x0A>" as its byte.
std::optional<uint8_t> FallbackByte(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [last, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || last != token.data() + 5) return std::nullopt;
  return byte;
}

}  // namespace

StatusOr<Decoder> Decoder::Read(const JsonNode& node) {
  Decoder decoder;
  if (node.is_null()) return decoder;
  decoder.joined_by_space_ = false;
  BATON_RETURN_IF_ERROR(decoder.Append(node, 0));
  return decoder;
}

Status Decoder::Append(const JsonNode& node, int depth) {
  if (depth > 8) return node.Error("sequences nested too deeply");
  BATON_ASSIGN_OR_RETURN(const std::string type, node.TextMember("type"));
  if (type == "Sequence") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "decoders"}));
    BATON_ASSIGN_OR_RETURN(const JsonNode list, node.Require("decoders"));
    BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) BATON_RETURN_IF_ERROR(Append(item, depth + 1));
    return absl::OkStatus();
  }
  if (type == "Fuse") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type"}));
    fused_ = true;
    return absl::OkStatus();
  }
  if (type == "Strip") return AppendStrip(node);
  if (fused_) {
    return node.Unsupported(absl::StrCat("the decoder \"", type, "\" behind Fuse or ByteLevel"));
  }
  if (!steps_.empty() && std::holds_alternative<ByteFallback>(steps_.back())) {
    return node.Unsupported(
        absl::StrCat("the decoder \"", type, "\" between ByteFallback and Fuse"));
  }
  if (type == "ByteLevel") {
    // These settings concern encoding.
    BATON_RETURN_IF_ERROR(
        node.AllowMembers({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
    steps_.emplace_back(ByteLevel{});
    fused_ = true;
    return absl::OkStatus();
  }
  if (type == "ByteFallback") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type"}));
    steps_.emplace_back(ByteFallback{});
    return absl::OkStatus();
  }
  if (type == "Metaspace") return AppendMetaspace(node);
  if (type == "Replace") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "pattern", "content"}));
    BATON_ASSIGN_OR_RETURN(const JsonNode pattern, node.Require("pattern"));
    if (!pattern.Find("String").has_value()) {
      return pattern.Unsupported("a decoder's regular expression");
    }
    Replace step;
    BATON_ASSIGN_OR_RETURN(step.from, pattern.TextMember("String"));
    BATON_ASSIGN_OR_RETURN(step.to, node.TextMember("content"));
    if (step.from.empty()) return pattern.Error("an empty string");
    steps_.emplace_back(std::move(step));
    return absl::OkStatus();
  }
  return node.Unsupported(absl::StrCat("the decoder \"", type, "\""));
}

Status Decoder::AppendStrip(const JsonNode& node) {
  BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "content", "start", "stop"}));
  BATON_ASSIGN_OR_RETURN(const std::string content, node.TextMember("content"));
  if (content.empty() || Utf8Length(content[0]) != content.size()) {
    return node.Error("\"content\" must be one code point");
  }
  Strip step{content, 0, 0};
  for (const auto& [key, slot] : {std::pair{"start", &step.start}, std::pair{"stop", &step.stop}}) {
    BATON_ASSIGN_OR_RETURN(const JsonNode member, node.Require(key));
    BATON_ASSIGN_OR_RETURN(const int64_t value, member.Integer());
    if (value < 0 || value > 1000) return member.Error("expected 0 to 1000");
    *slot = static_cast<size_t>(value);
  }
  if (!fused_) {
    if (!steps_.empty() && std::holds_alternative<ByteFallback>(steps_.back())) {
      return node.Unsupported("the decoder \"Strip\" between ByteFallback and Fuse");
    }
    steps_.emplace_back(std::move(step));
    return absl::OkStatus();
  }
  if (step.stop > 0) return node.Unsupported("Strip at the end of the whole text");
  if (text_prefix_.has_value()) return node.Unsupported("a second Strip of the whole text");
  text_prefix_ = std::move(step);
  return absl::OkStatus();
}

Status Decoder::AppendMetaspace(const JsonNode& node) {
  BATON_RETURN_IF_ERROR(node.AllowMembers(
      {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  Metaspace step;
  BATON_ASSIGN_OR_RETURN(step.replacement, node.TextMember("replacement"));
  BATON_ASSIGN_OR_RETURN(step.drop_at_start, node.Flag("add_prefix_space", true));
  if (const std::optional<JsonNode> member = node.Find("prepend_scheme")) {
    BATON_ASSIGN_OR_RETURN(const std::string scheme, member->Text());
    step.drop_at_start = scheme != "never";
  }
  if (step.replacement.empty()) return node.Error("\"replacement\" is empty");
  steps_.emplace_back(std::move(step));
  return absl::OkStatus();
}

std::string Decoder::Apply(const Step& step, std::string token, bool first) {
  if (std::holds_alternative<ByteLevel>(step)) {
    // A token that is not spelled in letters (an added one) stands for itself.
    std::optional<std::string> bytes = LettersToBytes(token);
    return bytes.has_value() ? *std::move(bytes) : token;
  }
  if (std::holds_alternative<ByteFallback>(step)) {
    const std::optional<uint8_t> byte = FallbackByte(token);
    return byte.has_value() ? std::string(1, static_cast<char>(*byte)) : token;
  }
  if (const auto* replace = std::get_if<Replace>(&step)) {
    return ReplaceAll(token, replace->from, replace->to);
  }
  if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
    return ReplaceAll(token, metaspace->replacement,
                      first && metaspace->drop_at_start ? "" : " ");
  }
  const auto& strip = std::get<Strip>(step);
  std::string_view text = token;
  const auto& c = strip.content;
  for (size_t i = 0; i < strip.start && text.substr(0, c.size()) == c; ++i) {
    text.remove_prefix(c.size());
  }
  for (size_t i = 0; i < strip.stop && text.size() >= c.size() &&
                     text.substr(text.size() - c.size()) == c;
       ++i) {
    text.remove_suffix(c.size());
  }
  return std::string(text);
}

std::string Decoder::TokenBytes(std::string_view token, bool first) const {
  std::string bytes(token);
  for (const Step& step : steps_) bytes = Apply(step, std::move(bytes), first);
  if (joined_by_space_ && !first) bytes.insert(0, " ");
  return bytes;
}

bool Decoder::first_differs() const {
  bool differs = joined_by_space_;
  for (const Step& step : steps_) {
    const auto* metaspace = std::get_if<Metaspace>(&step);
    differs = differs || (metaspace != nullptr && metaspace->drop_at_start);
  }
  return differs;
}

std::string Decoder::Advance(State* state, std::string_view bytes, bool end) const {
  std::string& pending = state->pending;
  pending.append(bytes);
  std::string out;
  std::string_view rest = pending;
  while (!rest.empty()) {
    const Utf8Unit unit = ReadUtf8(rest);
    if (unit.state == Utf8Unit::State::kIncomplete && !end) break;
    const std::string_view text =
        unit.state == Utf8Unit::State::kValid ? rest.substr(0, unit.bytes) : kReplacementCharacter;
    rest.remove_prefix(unit.bytes);
    if (text_prefix_.has_value() && !state->cut_done) {
      if (state->cut < text_prefix_->start && text == text_prefix_->content) {
        ++state->cut;
        continue;
      }
      state->cut_done = true;
    }
    out.append(text);
  }
  pending.erase(0, pending.size() - rest.size());
  return out;
}

}  // namespace baton
