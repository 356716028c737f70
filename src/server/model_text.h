// The text side of a model directory: tokenizer.json, the chat template and the defaults of
// generation_config.json behind TextFrontend.
// Thread rule: immutable after Load.
#ifndef BATON_SERVER_MODEL_TEXT_H_
#define BATON_SERVER_MODEL_TEXT_H_

#include <memory>
#include <string>

#include "base/status.h"
#include "server/text_frontend.h"

namespace baton::server {

struct ModelTextOptions {
  std::string chat_template;               // file to use instead of the model's; "" = the model's
  std::string generation_config = "auto";  // "auto": the model's sampling values; "vllm": neutral
};

class ModelText : public TextFrontend {
 public:
  // A directory without chat template loads; its chat requests are then refused. Eos ids come from
  // the model whatever `generation_config` says.
  static StatusOr<std::unique_ptr<ModelText>> Load(const std::string& dir,
                                                   const ModelTextOptions& options);
};

}  // namespace baton::server

#endif  // BATON_SERVER_MODEL_TEXT_H_
