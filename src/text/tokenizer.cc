#include "text/tokenizer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "text/tokenizer_loader.h"
#include "text/utf8.h"

namespace baton {

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts p) : parts(std::move(p)) {
    // Decoding is a table look-up; a second table where the first token of a text reads otherwise.
    bytes.reserve(parts.tokens.size());
    for (const std::string& token : parts.tokens) {
      bytes.push_back(token.empty() ? "" : parts.decoder.TokenBytes(token, false));
    }
  }

  // Bytes of a token at the start of a text or within it; empty for an unknown id.
  std::string BytesOf(TokenId id, bool first) const {
    if (id >= parts.tokens.size() || parts.tokens[id].empty()) return "";
    return first && parts.decoder.first_differs() ? parts.decoder.TokenBytes(parts.tokens[id], true)
                                                  : bytes[id];
  }

  // Adds `id` to a text being decoded.
  std::string Decode(TokenId id, bool skip_special, Decoder::State* state) const {
    const bool known = id < parts.tokens.size() && !parts.tokens[id].empty();
    if (!known || (skip_special && parts.special[id])) return "";
    const bool first = !std::exchange(state->any_token, true);
    if (first && parts.decoder.first_differs()) {
      return parts.decoder.Advance(state, BytesOf(id, true), false);
    }
    return parts.decoder.Advance(state, bytes[id], false);
  }

  Status EncodeText(std::string_view text, bool at_start, std::vector<TokenId>* ids) const {
    if (parts.sentencepiece != nullptr) {
      std::vector<uint32_t> made;
      if (!parts.sentencepiece->Encode(text, &made))
        return absl::ResourceExhaustedError("libsentencepiece gave up on a text");
      ids->insert(ids->end(), made.begin(), made.end());
      return absl::OkStatus();
    }
    Words words;
    words.words.push_back({text, at_start});
    BATON_RETURN_IF_ERROR(parts.pre_tokenizer.Run(&words));
    std::vector<TokenId> scratch;
    for (const Words::Word& word : words.words) parts.bpe.EncodeWord(word.text, &scratch, ids);
    return absl::OkStatus();
  }

  TokenizerParts parts;
  std::vector<std::string> bytes;  // by id, for tokens within a text
};

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromFile(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const std::string json, ReadFileBytes(path, kFileBytesMax));
  StatusOr<std::unique_ptr<Tokenizer>> tokenizer = FromJson(json);
  if (tokenizer.ok()) return tokenizer;
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", tokenizer.status().message()));
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json) {
  BATON_ASSIGN_OR_RETURN(TokenizerParts parts, LoadTokenizer(json));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(std::move(parts))));
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromModelDir(const std::string& dir) {
  const std::string json = dir + "/tokenizer.json";
  const std::string model = dir + "/tokenizer.model";
  if (FileExists(json)) return FromFile(json);
  if (!FileExists(model)) {
    return absl::NotFoundError(
        absl::StrCat("neither \"", json, "\" nor \"", model, "\" is there; fetch the tokenizer"));
  }
  BATON_ASSIGN_OR_RETURN(const std::string bytes, ReadFileBytes(model, kFileBytesMax));
  StatusOr<TokenizerParts> parts = LoadSentencePiece(bytes, dir + "/tokenizer_config.json");
  if (!parts.ok())
    return absl::InvalidArgumentError(absl::StrCat(model, ": ", parts.status().message()));
  return std::unique_ptr<Tokenizer>(new Tokenizer(std::make_unique<Impl>(*std::move(parts))));
}

StatusOr<std::vector<TokenId>> Tokenizer::Encode(std::string_view text,
                                                 const EncodeOptions& options) const {
  const TokenizerParts& parts = impl_->parts;
  std::string repaired;
  if (!IsValidUtf8(text)) {
    repaired = ReplaceInvalidUtf8(text);
    text = repaired;
  }
  std::vector<TokenId> ids;
  if (options.add_special_tokens) ids = parts.post_processor.before();
  const auto encode_normalized = [&](std::string_view piece, bool at_start) -> Status {
    if (parts.normalized_tokens.empty()) return impl_->EncodeText(piece, at_start, &ids);
    for (const auto& part : parts.normalized_tokens.Split(piece, options.parse_special)) {
      if (part.id.has_value()) {
        ids.push_back(*part.id);
      } else {
        BATON_RETURN_IF_ERROR(
            impl_->EncodeText(part.text, at_start && part.text.data() == piece.data(), &ids));
      }
    }
    return absl::OkStatus();
  };
  for (const auto& piece : parts.raw_tokens.Split(text, options.parse_special)) {
    if (piece.id.has_value()) {
      ids.push_back(*piece.id);
      continue;
    }
    const bool at_start = piece.text.data() == text.data();
    if (parts.normalizer.empty()) {
      BATON_RETURN_IF_ERROR(encode_normalized(piece.text, at_start));
    } else {
      BATON_ASSIGN_OR_RETURN(const std::string normalized, parts.normalizer.Run(piece.text));
      BATON_RETURN_IF_ERROR(encode_normalized(normalized, at_start));
    }
  }
  if (options.add_special_tokens) {
    const std::vector<TokenId>& behind = parts.post_processor.behind();
    ids.insert(ids.end(), behind.begin(), behind.end());
  }
  return ids;
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool skip_special) const {
  Decoder::State state;
  std::string text;
  for (const TokenId id : ids) text += impl_->Decode(id, skip_special, &state);
  text += impl_->parts.decoder.Advance(&state, "", true);
  return text;
}

size_t Tokenizer::vocab_size() const { return impl_->parts.tokens.size(); }

std::optional<TokenId> Tokenizer::TokenToId(std::string_view token) const {
  const auto it = impl_->parts.ids.find(absl::string_view(token.data(), token.size()));
  if (it == impl_->parts.ids.end()) return std::nullopt;
  return it->second;
}

std::string Tokenizer::IdToToken(TokenId id) const { return impl_->BytesOf(id, false); }

bool Tokenizer::IsSpecial(TokenId id) const {
  return id < impl_->parts.special.size() && impl_->parts.special[id];
}

struct IncrementalDecoder::State : Decoder::State {};

IncrementalDecoder::IncrementalDecoder(const Tokenizer* tokenizer, bool skip_special)
    : tokenizer_(tokenizer), skip_special_(skip_special), state_(std::make_unique<State>()) {}
IncrementalDecoder::~IncrementalDecoder() = default;
IncrementalDecoder::IncrementalDecoder(IncrementalDecoder&&) noexcept = default;
IncrementalDecoder& IncrementalDecoder::operator=(IncrementalDecoder&&) noexcept = default;

std::string IncrementalDecoder::Push(TokenId id) {
  return tokenizer_->impl_->Decode(id, skip_special_, state_.get());
}

std::string IncrementalDecoder::Finish() {
  std::string rest = tokenizer_->impl_->parts.decoder.Advance(state_.get(), "", true);
  *state_ = State();
  return rest;
}

}  // namespace baton
