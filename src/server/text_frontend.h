// What the HTTP layer knows of text: encode, decode, render a conversation. The real one
// (ModelText) wraps the model's tokenizer and chat template; tests use a byte-level fake.
//
// Thread rule: implementations are immutable and may be used from any thread. A TextDecoder belongs
// to one request and must not outlive its frontend.
#ifndef BATON_SERVER_TEXT_FRONTEND_H_
#define BATON_SERVER_TEXT_FRONTEND_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "base/types.h"

namespace baton::server {

// Decoding of a growing sequence: the concatenation of all results is the text of all ids, and no
// result ends inside a code point.
class TextDecoder {
 public:
  virtual ~TextDecoder() = default;
  virtual std::string Push(TokenId id) = 0;
  virtual std::string Finish() = 0;
};

// Values for what a request leaves out; from the model's generation_config.json.
struct RequestDefaults {
  std::vector<TokenId> eos_token_ids;  // end a generation unless ignore_eos
  double temperature = 1.0;
  int64_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  double repetition_penalty = 1.0;
  std::optional<int64_t> max_new_tokens;
};

struct ChatRender {
  OrderedJson messages;   // list of {role, content, ...}
  OrderedJson extra;      // chat_template_kwargs, object or null
  OrderedJson tools;      // list or null
  OrderedJson documents;  // list or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;
};

class TextFrontend {
 public:
  virtual ~TextFrontend() = default;

  // False: only token ids can be used, and text comes out empty.
  virtual bool has_tokenizer() const { return true; }
  virtual StatusOr<std::vector<TokenId>> Encode(std::string_view text,
                                                bool add_special_tokens) const = 0;
  virtual std::string Decode(std::span<const TokenId> ids, bool skip_special_tokens) const = 0;
  virtual std::unique_ptr<TextDecoder> NewDecoder(bool skip_special_tokens) const = 0;
  // The bytes a token stands for; not necessarily UTF-8.
  virtual std::string TokenBytes(TokenId id) const = 0;

  // InvalidArgument if the template refuses the messages; FailedPrecondition if the model has none.
  virtual StatusOr<std::string> RenderChat(const ChatRender& chat) const = 0;

  virtual const RequestDefaults& defaults() const = 0;
};

}  // namespace baton::server

#endif  // BATON_SERVER_TEXT_FRONTEND_H_
