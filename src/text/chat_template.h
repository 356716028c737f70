// Renders a conversation to the prompt text of a model, with the model's own Jinja chat template,
// as transformers' apply_chat_template does. Encode the result with add_special_tokens = false:
// templates write BOS themselves.
//
// Not here: choosing or checking messages (templates do that and refuse by raise_exception),
// tokenisation, parsing of the model's answer.
//
// Thread rule: immutable after construction; any number of threads may render.
#ifndef BATON_TEXT_CHAT_TEMPLATE_H_
#define BATON_TEXT_CHAT_TEMPLATE_H_

#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "text/jinja.h"

namespace baton {

// Special tokens by the name templates know them: "bos_token", "eos_token", "pad_token", ...
using SpecialTokens = std::map<std::string, std::string>;

// Ordered JSON throughout: tool schemas are printed into the prompt in the order of the request.
struct RenderOptions {
  bool add_generation_prompt = false;
  // Leave the last message open, without what the template writes after its content.
  bool continue_final_message = false;
  OrderedJson tools;      // list, or null for none (templates then see none)
  OrderedJson documents;  // list, or null
  // chat_template_kwargs: an object of further variables, e.g. {"enable_thinking": false}. They
  // win over special tokens and must not be named like one of the fields above. Null for none.
  OrderedJson extra;
  // Local civil time for strftime_now. Absent: a template that asks for it is refused.
  std::optional<std::tm> now;
  jinja::Limits limits;
};

class ChatTemplate {
 public:
  // DIR/chat_template.jinja, else "chat_template" of DIR/tokenizer_config.json: a string, or a
  // list of {name, template} of which "default" is used, and "tool_use", if there is one, for
  // requests with tools. Special tokens come from
  // tokenizer_config.json (strings or AddedToken objects). NotFound if there is no template.
  static StatusOr<ChatTemplate> FromModelDir(const std::string& dir);
  // Template text given by the user (--chat-template), special tokens as given.
  static StatusOr<ChatTemplate> FromString(std::string_view source, SpecialTokens tokens = {});

  // `messages` is a list of {role, content, ...}. InvalidArgument with line and reason if the
  // template refuses the input; ResourceExhausted if a limit was reached.
  StatusOr<std::string> Render(const OrderedJson& messages, const RenderOptions& options) const;

  const SpecialTokens& special_tokens() const { return tokens_; }

 private:
  ChatTemplate(jinja::Template tmpl, SpecialTokens tokens);
  jinja::Template template_;
  std::optional<jinja::Template> with_tools_;  // absent: template_ is for tools as well
  SpecialTokens tokens_;
};

// The special tokens named in DIR/tokenizer_config.json; empty if the file is absent.
StatusOr<SpecialTokens> ReadSpecialTokens(const std::string& dir);

}  // namespace baton

#endif  // BATON_TEXT_CHAT_TEMPLATE_H_
