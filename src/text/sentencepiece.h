// A SentencePiece model ("tokenizer.model"), read and run by libsentencepiece. Standard types only:
// its header declares names of Abseil's that are not Abseil's, so no file may include both.
// Thread rule: immutable after Load.
#ifndef BATON_TEXT_SENTENCEPIECE_H_
#define BATON_TEXT_SENTENCEPIECE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace baton {

class SentencePiece {
 public:
  enum class Kind : uint8_t { kNormal, kControl, kUnknown, kByte, kUnused };

  // Null, with the reason in `error`, if `bytes` are no SentencePiece model.
  static std::unique_ptr<SentencePiece> Load(std::string_view bytes, std::string* error);
  ~SentencePiece();

  // Ids of valid UTF-8, without BOS and EOS; false if the library refuses it.
  bool Encode(std::string_view text, std::vector<uint32_t>* ids) const;

  uint32_t size() const;
  std::string Piece(uint32_t id) const;  // "\u2581the", "<0x0A>", "<s>"
  Kind KindOf(uint32_t id) const;
  std::optional<uint32_t> bos() const;
  std::optional<uint32_t> eos() const;
  // A space is put before every text (and dropped again in decoding).
  bool adds_space() const { return adds_space_; }

 private:
  struct Impl;
  explicit SentencePiece(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
  bool adds_space_ = false;
};

}  // namespace baton

#endif  // BATON_TEXT_SENTENCEPIECE_H_
