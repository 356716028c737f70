// The text of one growing answer: decoding plus stop strings, which may span token borders. Text
// that could still turn out to be the beginning of a stop string is held back.
// Thread rule: one stream per answer, one thread at a time.
#ifndef BATON_SERVER_TEXT_STREAM_H_
#define BATON_SERVER_TEXT_STREAM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "server/text_frontend.h"

namespace baton::server {

class TextStream {
 public:
  struct Options {
    std::vector<std::string> stop;  // none empty
    bool include_stop_str = false;  // the matched string belongs to the text
    int64_t min_tokens = 0;         // text of the first so many tokens is not searched
  };

  TextStream(std::unique_ptr<TextDecoder> decoder, Options options);

  // The text that became certain with `id`. After a stop string has been found, nothing.
  std::string Push(TokenId id);
  // The text still held back, at the end of a generation.
  std::string Finish();

  bool stopped() const { return stopped_; }
  const std::string& stop_string() const { return stop_string_; }  // once stopped

 private:
  std::string Release(std::string piece);
  // Length of the longest end of held_ that begins a stop string.
  size_t PartialMatch() const;

  std::unique_ptr<TextDecoder> decoder_;
  const Options options_;
  std::string held_;
  std::string stop_string_;
  int64_t tokens_ = 0;
  bool stopped_ = false;
};

}  // namespace baton::server

#endif  // BATON_SERVER_TEXT_STREAM_H_
