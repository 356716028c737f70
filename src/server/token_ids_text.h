// The text side of a model directory without a tokenizer: token ids go in and come out, text is
// refused. Thread rule: immutable.
#ifndef BATON_SERVER_TOKEN_IDS_TEXT_H_
#define BATON_SERVER_TOKEN_IDS_TEXT_H_

#include <memory>
#include <string>
#include <vector>

#include "server/text_frontend.h"

namespace baton::server {

class TokenIdsText final : public TextFrontend {
 public:
  bool has_tokenizer() const override { return false; }
  StatusOr<std::vector<TokenId>> Encode(std::string_view, bool) const override {
    return std::vector<TokenId>();
  }
  std::string Decode(std::span<const TokenId>, bool) const override { return ""; }
  std::unique_ptr<TextDecoder> NewDecoder(bool) const override {
    struct Silent final : TextDecoder {
      std::string Push(TokenId) override { return ""; }
      std::string Finish() override { return ""; }
    };
    return std::make_unique<Silent>();
  }
  std::string TokenBytes(TokenId) const override { return ""; }
  StatusOr<std::string> RenderChat(const ChatRender&) const override {
    return absl::FailedPreconditionError(
        "this model has no tokenizer; send token ids to /v1/completions");
  }
  const RequestDefaults& defaults() const override { return defaults_; }

 private:
  RequestDefaults defaults_;
};

}  // namespace baton::server

#endif  // BATON_SERVER_TOKEN_IDS_TEXT_H_
