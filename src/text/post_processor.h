// The "post_processor" of a tokenizer.json for a single text: tokens put before and behind it.
// Thread rule: immutable.
#ifndef BATON_TEXT_POST_PROCESSOR_H_
#define BATON_TEXT_POST_PROCESSOR_H_

#include <vector>

#include "base/status.h"
#include "base/types.h"
#include "text/tokenizer_json.h"

namespace baton {

class PostProcessor {
 public:
  // Adds nothing.
  PostProcessor() = default;
  // Puts these around every text.
  PostProcessor(std::vector<TokenId> before, std::vector<TokenId> behind)
      : before_(std::move(before)), behind_(std::move(behind)) {}
  static StatusOr<PostProcessor> Read(const JsonNode& node);

  const std::vector<TokenId>& before() const { return before_; }
  const std::vector<TokenId>& behind() const { return behind_; }

 private:
  Status Append(const JsonNode& node, int depth);
  Status AppendTemplate(const JsonNode& node);
  std::vector<TokenId> before_;
  std::vector<TokenId> behind_;
};

}  // namespace baton

#endif  // BATON_TEXT_POST_PROCESSOR_H_
