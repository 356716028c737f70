#include "server/model_text.h"

#include <ctime>
#include <optional>
#include <utility>

#include "base/file.h"
#include "server/cat.h"
#include "text/chat_template.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"

namespace baton::server {
namespace {

constexpr size_t kTemplateBytesMax = size_t{4} << 20;

class Decoder final : public TextDecoder {
 public:
  Decoder(const Tokenizer* tokenizer, bool skip_special) : decoder_(tokenizer, skip_special) {}
  std::string Push(TokenId id) override { return decoder_.Push(id); }
  std::string Finish() override { return decoder_.Finish(); }

 private:
  IncrementalDecoder decoder_;
};

class Impl final : public ModelText {
 public:
  Impl(std::unique_ptr<Tokenizer> tokenizer,
       std::optional<ChatTemplate> chat_template,
       RequestDefaults defaults)
      : tokenizer_(std::move(tokenizer)),
        template_(std::move(chat_template)),
        defaults_(std::move(defaults)) {}

  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool add_special_tokens) const override {
    EncodeOptions options;
    options.add_special_tokens = add_special_tokens;
    return tokenizer_->Encode(text, options);
  }
  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    return tokenizer_->Decode(ids, skip_special_tokens);
  }
  std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const override {
    return std::make_unique<Decoder>(tokenizer_.get(), skip_special_tokens);
  }
  std::string TokenBytes(TokenId id) const override { return tokenizer_->IdToToken(id); }

  StatusOr<std::string> RenderChat(const ChatRender& chat) const override {
    if (!template_.has_value()) {
      return absl::FailedPreconditionError(
          "this model has no chat template; use /v1/completions or start the server with "
          "--chat-template FILE");
    }
    RenderOptions options;
    options.add_generation_prompt = chat.add_generation_prompt;
    options.continue_final_message = chat.continue_final_message;
    options.extra = chat.extra;
    options.tools = chat.tools;
    options.documents = chat.documents;
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    if (localtime_r(&now, &local) != nullptr) options.now = local;
    return template_->Render(chat.messages, options);
  }

  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  const std::unique_ptr<Tokenizer> tokenizer_;
  const std::optional<ChatTemplate> template_;
  const RequestDefaults defaults_;
};

StatusOr<std::optional<ChatTemplate>> LoadTemplate(const std::string& dir,
                                                   const std::string& file) {
  if (!file.empty()) {
    BATON_ASSIGN_OR_RETURN(const std::string source, ReadFileBytes(file, kTemplateBytesMax));
    BATON_ASSIGN_OR_RETURN(SpecialTokens tokens, ReadSpecialTokens(dir));
    BATON_ASSIGN_OR_RETURN(ChatTemplate chat, ChatTemplate::FromString(source, std::move(tokens)));
    return std::optional<ChatTemplate>(std::move(chat));
  }
  auto chat = ChatTemplate::FromModelDir(dir);
  if (absl::IsNotFound(chat.status())) return std::optional<ChatTemplate>();
  if (!chat.ok()) return chat.status();
  return std::optional<ChatTemplate>(*std::move(chat));
}

RequestDefaults ToDefaults(const GenerationDefaults& model, bool neutral) {
  RequestDefaults defaults;
  defaults.eos_token_ids = model.eos_token_ids;
  if (neutral) return defaults;
  // do_sample is not looked at, as in vLLM: temperature alone decides.
  defaults.temperature = model.temperature.value_or(defaults.temperature);
  defaults.top_k = model.top_k.value_or(defaults.top_k);
  defaults.top_p = model.top_p.value_or(defaults.top_p);
  defaults.min_p = model.min_p.value_or(defaults.min_p);
  defaults.repetition_penalty = model.repetition_penalty.value_or(defaults.repetition_penalty);
  defaults.max_new_tokens = model.max_new_tokens;
  return defaults;
}

}  // namespace

StatusOr<std::unique_ptr<ModelText>> ModelText::Load(const std::string& dir,
                                                     const ModelTextOptions& options) {
  if (options.generation_config != "auto" && options.generation_config != "vllm") {
    return absl::InvalidArgumentError(
        Cat("--generation-config must be 'auto' or 'vllm', got '", options.generation_config, "'"));
  }
  BATON_ASSIGN_OR_RETURN(std::unique_ptr<Tokenizer> tokenizer,
                         Tokenizer::FromModelDir(dir));
  BATON_ASSIGN_OR_RETURN(std::optional<ChatTemplate> chat,
                         LoadTemplate(dir, options.chat_template));
  BATON_ASSIGN_OR_RETURN(const GenerationDefaults defaults,
                         ReadGenerationDefaults(dir, tokenizer.get()));
  return std::unique_ptr<ModelText>(
      std::make_unique<Impl>(std::move(tokenizer), std::move(chat),
                             ToDefaults(defaults, options.generation_config == "vllm")));
}

}  // namespace baton::server
