// For tests: text whose tokens are its bytes, with 256 = <bos>, 257 = <eos>, 258 = <user>,
// 259 = <assistant>. Thread rule: immutable.
#ifndef BATON_SERVER_FAKE_TEXT_H_
#define BATON_SERVER_FAKE_TEXT_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/text_frontend.h"

namespace baton::server {

class FakeText final : public TextFrontend {
 public:
  static constexpr TokenId kBos = 256;
  static constexpr TokenId kEos = 257;
  static constexpr TokenId kUser = 258;
  static constexpr TokenId kAssistant = 259;

  FakeText() { defaults_.eos_token_ids = {kEos}; }

  StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                        bool add_special_tokens) const override {
    if (text.find("unsplittable") != std::string_view::npos) {
      return absl::ResourceExhaustedError("a regular expression of the tokenizer gave up");
    }
    std::vector<TokenId> ids;
    if (add_special_tokens) ids.push_back(kBos);
    for (size_t i = 0; i < text.size(); ++i) {
      bool special = false;
      for (const auto& [name, id] : kNames) {
        if (text.substr(i, name.size()) != name) continue;
        ids.push_back(id);
        i += name.size() - 1;
        special = true;
        break;
      }
      if (!special) ids.push_back(static_cast<uint8_t>(text[i]));
    }
    return ids;
  }

  std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const override {
    auto decoder = NewDecoder(skip_special_tokens);
    std::string text;
    for (const TokenId id : ids) text += decoder->Push(id);
    return text + decoder->Finish();
  }

  std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const override {
    return std::make_unique<Decoder>(this, skip_special_tokens);
  }

  std::string TokenBytes(TokenId id) const override {
    if (id < 256) return std::string(1, static_cast<char>(id));
    for (const auto& [name, special] : kNames)
      if (special == id) return std::string(name);
    return {};
  }

  StatusOr<std::string> RenderChat(const ChatRender& chat) const override {
    std::string text = "<bos>";
    const OrderedJson& last = chat.messages.back();
    for (const OrderedJson& message : chat.messages) {
      const std::string role = message["role"].get<std::string>();
      if (role != "user" && role != "assistant" && role != "system") {
        return absl::InvalidArgumentError("template: unknown role " + role);
      }
      text += role == "assistant" ? "<assistant>" : "<user>";
      if (chat.extra.is_object() && chat.extra.contains("shout")) text += "!";
      text += message["content"].get<std::string>();
      if (&message != &last || !chat.continue_final_message) text += "<eos>";
    }
    if (chat.add_generation_prompt) text += "<assistant>";
    return text;
  }

  const RequestDefaults& defaults() const override { return defaults_; }
  RequestDefaults* mutable_defaults() { return &defaults_; }

 private:
  static constexpr std::pair<std::string_view, TokenId> kNames[] = {
      {"<bos>", kBos}, {"<eos>", kEos}, {"<user>", kUser}, {"<assistant>", kAssistant}};

  class Decoder final : public TextDecoder {
   public:
    Decoder(const FakeText* text, bool skip) : text_(text), skip_(skip) {}
    std::string Push(TokenId id) override {
      if (id >= 256) return skip_ ? Finish() : Finish() + text_->TokenBytes(id);
      pending_.push_back(static_cast<char>(id));
      const auto lead = static_cast<uint8_t>(pending_[0]);
      const size_t need = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
      return pending_.size() >= need ? std::exchange(pending_, {}) : std::string();
    }
    std::string Finish() override {
      return std::exchange(pending_, {}).empty() ? std::string() : "\xEF\xBF\xBD";
    }

   private:
    const FakeText* const text_;
    const bool skip_;
    std::string pending_;
  };

  RequestDefaults defaults_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_FAKE_TEXT_H_
