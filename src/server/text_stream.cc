#include "server/text_stream.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace baton::server {

TextStream::TextStream(std::unique_ptr<TextDecoder> decoder, Options options)
    : decoder_(std::move(decoder)), options_(std::move(options)) {}

std::string TextStream::Push(TokenId id) {
  if (stopped_) return {};
  ++tokens_;
  std::string piece = decoder_->Push(id);
  if (options_.stop.empty() || tokens_ <= options_.min_tokens) return piece;
  return Release(std::move(piece));
}

std::string TextStream::Finish() {
  if (stopped_) return {};
  std::string text = options_.stop.empty() || tokens_ <= options_.min_tokens
                         ? decoder_->Finish()
                         : Release(decoder_->Finish());
  if (!stopped_) text += std::exchange(held_, {});
  return text;
}

std::string TextStream::Release(std::string piece) {
  held_ += piece;
  // The match that ends first is the one a reader of single characters would see; of those that end
  // together, the longest.
  size_t best_end = std::string::npos;
  const std::string* best = nullptr;
  for (const std::string& stop : options_.stop) {
    const size_t begin = held_.find(stop);
    if (begin == std::string::npos) continue;
    const size_t end = begin + stop.size();
    if (end < best_end || (end == best_end && stop.size() > best->size())) {
      best_end = end;
      best = &stop;
    }
  }
  if (best != nullptr) {
    stopped_ = true;
    stop_string_ = *best;
    std::string text =
        held_.substr(0, options_.include_stop_str ? best_end : best_end - best->size());
    held_.clear();
    return text;
  }
  const size_t keep = PartialMatch();
  std::string text = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return text;
}

size_t TextStream::PartialMatch() const {
  size_t longest = 0;
  const std::string_view held = held_;
  for (const std::string& stop : options_.stop) {
    for (size_t n = std::min(held.size(), stop.size() - 1); n > longest; --n) {
      if (held.substr(held.size() - n) == std::string_view(stop).substr(0, n)) {
        longest = n;
        break;
      }
    }
  }
  return longest;
}

}  // namespace baton::server
