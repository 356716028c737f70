// A SentencePiece model and tokenizer_config.json as the parts of a Tokenizer: libsentencepiece
// cuts and looks up, the rest (added tokens, BOS, decoding) is what transformers' LlamaTokenizer
// does around it.
#include <charconv>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "text/sentencepiece.h"
#include "text/tokenizer_json.h"
#include "text/tokenizer_loader.h"

namespace baton {
namespace {

constexpr size_t kConfigBytesMax = size_t{16} << 20;

// What decodes such tokens; the last step only where the model puts a space before a text.
constexpr std::string_view kDecoder =
    R"({"type":"Sequence","decoders":[
        {"type":"Replace","pattern":{"String":"▁"},"content":" "},
        {"type":"ByteFallback"},{"type":"Fuse"}]})";
constexpr std::string_view kDecoderWithStrip =
    R"({"type":"Sequence","decoders":[
        {"type":"Replace","pattern":{"String":"▁"},"content":" "},
        {"type":"ByteFallback"},{"type":"Fuse"},
        {"type":"Strip","content":" ","start":1,"stop":0}]})";

StatusOr<Decoder> MakeDecoder(const SentencePiece& model) {
  BATON_ASSIGN_OR_RETURN(const auto document,
                         JsonDocument::Parse(model.adds_space() ? kDecoderWithStrip : kDecoder));
  return Decoder::Read(document->root());
}

// "added_tokens_decoder": {"32000": {"content", "special", ...}}.
Status ReadAddedDecoder(const JsonNode& config, std::vector<AddedToken>* tokens) {
  const std::optional<JsonNode> list = config.Find("added_tokens_decoder");
  if (!list.has_value()) return absl::OkStatus();
  simdjson::dom::object object;
  if (list->element().get(object) != simdjson::SUCCESS) return list->Error("expected an object");
  for (const auto field : object) {
    const JsonNode node(field.value, absl::StrCat(list->path(), "/", std::string(field.key)));
    AddedToken token;
    const char* end = field.key.data() + field.key.size();
    const auto [last, bad] = std::from_chars(field.key.data(), end, token.id);
    if (bad != std::errc() || last != end || token.id >= kTokenIdMax)
      return node.Error("not a token id");
    BATON_ASSIGN_OR_RETURN(token.content, node.TextMember("content"));
    BATON_ASSIGN_OR_RETURN(token.special, node.Flag("special", false));
    BATON_ASSIGN_OR_RETURN(token.lstrip, node.Flag("lstrip", false));
    BATON_ASSIGN_OR_RETURN(token.rstrip, node.Flag("rstrip", false));
    BATON_ASSIGN_OR_RETURN(token.single_word, node.Flag("single_word", false));
    if (!token.content.empty()) tokens->push_back(std::move(token));
  }
  return absl::OkStatus();
}

struct Config {
  std::vector<AddedToken> added;
  bool bos = true;
  bool eos = false;
};

StatusOr<Config> ReadTokenizerConfig(const std::string& path) {
  Config config;
  if (!FileExists(path)) return config;
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFileBytes(path, kConfigBytesMax));
  BATON_ASSIGN_OR_RETURN(const auto document, JsonDocument::Parse(text));
  const JsonNode root = document->root();
  if (!root.is_object()) return root.Error("expected an object");
  BATON_ASSIGN_OR_RETURN(config.bos, root.Flag("add_bos_token", true));
  BATON_ASSIGN_OR_RETURN(config.eos, root.Flag("add_eos_token", false));
  BATON_RETURN_IF_ERROR(ReadAddedDecoder(root, &config.added));
  return config;
}

void SetToken(TokenizerParts* parts, TokenId id, const std::string& text, bool special) {
  if (id >= parts->tokens.size()) {
    parts->tokens.resize(id + 1);
    parts->special.resize(id + 1, false);
  }
  parts->tokens[id] = text;
  parts->special[id] = parts->special[id] || special;
  parts->ids.emplace(text, id);
}

}  // namespace

StatusOr<TokenizerParts> LoadSentencePiece(std::string_view bytes, const std::string& config_path) {
  std::string error;
  std::unique_ptr<SentencePiece> model = SentencePiece::Load(bytes, &error);
  if (model == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("not a SentencePiece model: ", error));
  if (model->size() > kTokenIdMax)
    return absl::InvalidArgumentError(absl::StrCat(model->size(), " pieces are too many"));
  StatusOr<Config> read = ReadTokenizerConfig(config_path);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(config_path, ": ", read.status().message()));
  }
  Config config = *std::move(read);
  TokenizerParts parts;
  for (uint32_t id = 0; id < model->size(); ++id) {
    const SentencePiece::Kind kind = model->KindOf(id);
    const bool special =
        kind == SentencePiece::Kind::kControl || kind == SentencePiece::Kind::kUnknown;
    SetToken(&parts, id, model->Piece(id), special);
    // In a text, these stand for themselves; the library alone would spell them.
    if (kind == SentencePiece::Kind::kControl) {
      AddedToken token;
      token.id = id;
      token.content = model->Piece(id);
      token.special = true;
      config.added.push_back(std::move(token));
    }
  }
  std::vector<std::string> contents;
  for (const AddedToken& token : config.added) {
    SetToken(&parts, token.id, token.content, token.special);
    contents.push_back(token.content);
  }
  parts.raw_tokens = AddedTokenMatcher(std::move(config.added), contents);
  std::vector<TokenId> before, behind;
  if (config.bos && model->bos().has_value()) before.push_back(*model->bos());
  if (config.eos && model->eos().has_value()) behind.push_back(*model->eos());
  parts.post_processor = PostProcessor(std::move(before), std::move(behind));
  BATON_ASSIGN_OR_RETURN(parts.decoder, MakeDecoder(*model));
  parts.sentencepiece = std::move(model);
  return parts;
}

}  // namespace baton
