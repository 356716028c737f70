#include "text/tokenizer_loader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/tokenizer_json.h"

namespace baton {
namespace {

using Vocabulary = std::vector<std::pair<std::string, TokenId>>;

// A stage of the pipeline; absent or null is its default.
template <class Stage>
StatusOr<Stage> ReadStage(const JsonNode& root, std::string_view key) {
  const std::optional<JsonNode> node = root.Find(key);
  if (!node.has_value()) return Stage();
  return Stage::Read(*node);
}

// Gives `token` the id, in both directions.
Status Register(const JsonNode& where, const std::string& token, int64_t id,
                TokenizerParts* parts) {
  if (id < 0 || id >= int64_t{kTokenIdMax}) {
    return where.Error(absl::StrCat("the id ", id, " is not in 0..", kTokenIdMax - 1));
  }
  const auto at = static_cast<size_t>(id);
  if (at >= parts->tokens.size()) {
    parts->tokens.resize(at + 1);
    parts->special.resize(at + 1, false);
  }
  const auto [it, inserted] = parts->ids.emplace(token, static_cast<TokenId>(id));
  if (!inserted && it->second != static_cast<TokenId>(id)) {
    return where.Error(absl::StrCat("\"", token, "\" has the ids ", it->second, " and ", id));
  }
  if (!inserted) return absl::OkStatus();
  if (!parts->tokens[at].empty()) {
    return where.Error(absl::StrCat("the id ", id, " is both \"", parts->tokens[at], "\" and \"",
                                    token, "\""));
  }
  parts->tokens[at] = token;
  return absl::OkStatus();
}

StatusOr<Vocabulary> ReadVocabulary(const JsonNode& model, TokenizerParts* parts) {
  BATON_ASSIGN_OR_RETURN(const JsonNode node, model.Require("vocab"));
  simdjson::dom::object object;
  if (node.element().get(object) != simdjson::SUCCESS) return node.Error("expected an object");
  Vocabulary vocabulary;
  vocabulary.reserve(object.size());
  for (const auto field : object) {
    int64_t id = 0;
    if (field.value.get(id) != simdjson::SUCCESS) {
      return node.Error(absl::StrCat("the id of \"", std::string(field.key),
                                     "\" is not an integer"));
    }
    BATON_RETURN_IF_ERROR(Register(node, std::string(field.key), id, parts));
    vocabulary.emplace_back(std::string(field.key), static_cast<TokenId>(id));
  }
  return vocabulary;
}

// "a b", or ["a", "b"] in newer files.
StatusOr<std::vector<Bpe::Merge>> ReadMerges(const JsonNode& model) {
  BATON_ASSIGN_OR_RETURN(const JsonNode node, model.Require("merges"));
  simdjson::dom::array array;
  if (node.element().get(array) != simdjson::SUCCESS) return node.Error("expected a list");
  std::vector<Bpe::Merge> merges;
  for (const simdjson::dom::element item : array) {
    const auto bad = [&] {
      return node.Error(absl::StrCat("entry ", merges.size(),
                                     " is neither \"left right\" nor [\"left\", \"right\"]"));
    };
    std::string_view text;
    simdjson::dom::array pair;
    if (item.get(text) == simdjson::SUCCESS) {
      const size_t space = text.find(' ');
      if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
        return bad();
      }
      merges.emplace_back(text.substr(0, space), text.substr(space + 1));
    } else if (item.get(pair) == simdjson::SUCCESS) {
      std::string_view left, right;
      if (pair.size() != 2 || pair.at(0).get(left) != simdjson::SUCCESS ||
          pair.at(1).get(right) != simdjson::SUCCESS) {
        return bad();
      }
      merges.emplace_back(left, right);
    } else {
      return bad();
    }
  }
  return merges;
}

Status ReadModel(const JsonNode& model, TokenizerParts* parts) {
  const std::optional<JsonNode> type = model.Find("type");
  if (type.has_value()) {
    BATON_ASSIGN_OR_RETURN(const std::string name, type->Text());
    if (name != "BPE") return type->Unsupported(absl::StrCat("the model \"", name, "\""));
  }
  BATON_RETURN_IF_ERROR(model.AllowMembers(
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"}));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    const std::optional<JsonNode> member = model.Find(key);
    if (!member.has_value()) continue;
    BATON_ASSIGN_OR_RETURN(const std::string affix, member->Text());
    if (!affix.empty()) return member->Unsupported("a value other than \"\"");
  }
  if (const std::optional<JsonNode> dropout = model.Find("dropout")) {
    double value = 0;
    if (dropout->element().get(value) != simdjson::SUCCESS || value != 0) {
      return dropout->Unsupported("dropout (it makes the prompt random)");
    }
  }
  BpeOptions options;
  options.byte_words = parts->pre_tokenizer.gives_bytes();
  BATON_ASSIGN_OR_RETURN(options.fuse_unk, model.Flag("fuse_unk", false));
  BATON_ASSIGN_OR_RETURN(options.byte_fallback, model.Flag("byte_fallback", false));
  BATON_ASSIGN_OR_RETURN(options.ignore_merges, model.Flag("ignore_merges", false));
  if (const std::optional<JsonNode> unk = model.Find("unk_token")) {
    BATON_ASSIGN_OR_RETURN(options.unk_token, unk->Text());
  }
  BATON_ASSIGN_OR_RETURN(const Vocabulary vocabulary, ReadVocabulary(model, parts));
  BATON_ASSIGN_OR_RETURN(const std::vector<Bpe::Merge> merges, ReadMerges(model));
  StatusOr<Bpe> bpe = Bpe::Build(vocabulary, merges, std::move(options));
  if (!bpe.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokenizer.json: ", bpe.status().message()));
  }
  parts->bpe = *std::move(bpe);
  return absl::OkStatus();
}

StatusOr<AddedToken> ReadAddedToken(const JsonNode& node) {
  BATON_RETURN_IF_ERROR(node.AllowMembers(
      {"id", "content", "special", "lstrip", "rstrip", "single_word", "normalized"}));
  AddedToken token;
  BATON_ASSIGN_OR_RETURN(token.content, node.TextMember("content"));
  BATON_ASSIGN_OR_RETURN(const JsonNode id_node, node.Require("id"));
  BATON_ASSIGN_OR_RETURN(const int64_t id, id_node.Integer());
  if (id < 0 || id >= int64_t{kTokenIdMax}) return id_node.Error("not a token id");
  token.id = static_cast<TokenId>(id);
  BATON_ASSIGN_OR_RETURN(token.special, node.Flag("special", false));
  BATON_ASSIGN_OR_RETURN(token.lstrip, node.Flag("lstrip", false));
  BATON_ASSIGN_OR_RETURN(token.rstrip, node.Flag("rstrip", false));
  BATON_ASSIGN_OR_RETURN(token.single_word, node.Flag("single_word", false));
  BATON_ASSIGN_OR_RETURN(token.normalized, node.Flag("normalized", !token.special));
  return token;
}

Status ReadAddedTokens(const JsonNode& root, TokenizerParts* parts) {
  const std::optional<JsonNode> list = root.Find("added_tokens");
  if (!list.has_value()) return absl::OkStatus();
  BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list->Items());
  std::vector<AddedToken> raw, normalized;
  std::vector<std::string> raw_contents, normalized_contents;
  for (const JsonNode& item : items) {
    BATON_ASSIGN_OR_RETURN(AddedToken token, ReadAddedToken(item));
    if (token.content.empty()) continue;  // as the Rust library
    BATON_RETURN_IF_ERROR(Register(item, token.content, int64_t{token.id}, parts));
    if (token.special) parts->special[token.id] = true;
    if (token.normalized) {
      // Recent versions of the Rust library also print such a token in its normalized form.
      BATON_ASSIGN_OR_RETURN(std::string content, parts->normalizer.Run(token.content));
      normalized_contents.push_back(std::move(content));
      parts->tokens[token.id] = normalized_contents.back();
      normalized.push_back(std::move(token));
    } else {
      raw_contents.push_back(token.content);
      raw.push_back(std::move(token));
    }
  }
  parts->raw_tokens = AddedTokenMatcher(std::move(raw), raw_contents);
  parts->normalized_tokens = AddedTokenMatcher(std::move(normalized), normalized_contents);
  return absl::OkStatus();
}

}  // namespace

StatusOr<TokenizerParts> LoadTokenizer(std::string_view json) {
  BATON_ASSIGN_OR_RETURN(const std::unique_ptr<JsonDocument> document, JsonDocument::Parse(json));
  const JsonNode root = document->root();
  // truncation and padding are limits of a training or batch run; requests bring their own.
  BATON_RETURN_IF_ERROR(root.AllowMembers({"version", "truncation", "padding", "added_tokens",
                                           "normalizer", "pre_tokenizer", "post_processor",
                                           "decoder", "model"}));
  if (const std::optional<JsonNode> version = root.Find("version")) {
    BATON_ASSIGN_OR_RETURN(const std::string text, version->Text());
    if (text != "1.0") return version->Unsupported(absl::StrCat("the version \"", text, "\""));
  }
  TokenizerParts parts;
  BATON_ASSIGN_OR_RETURN(parts.normalizer, ReadStage<Normalizer>(root, "normalizer"));
  BATON_ASSIGN_OR_RETURN(parts.pre_tokenizer, ReadStage<PreTokenizer>(root, "pre_tokenizer"));
  BATON_ASSIGN_OR_RETURN(parts.post_processor, ReadStage<PostProcessor>(root, "post_processor"));
  BATON_ASSIGN_OR_RETURN(parts.decoder, ReadStage<Decoder>(root, "decoder"));
  BATON_ASSIGN_OR_RETURN(const JsonNode model, root.Require("model"));
  BATON_RETURN_IF_ERROR(ReadModel(model, &parts));
  BATON_RETURN_IF_ERROR(ReadAddedTokens(root, &parts));
  return parts;
}

}  // namespace baton
