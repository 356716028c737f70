#include "text/sentencepiece.h"

#include <sentencepiece_processor.h>

#include <utility>

namespace baton {

struct SentencePiece::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

SentencePiece::SentencePiece(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SentencePiece::~SentencePiece() = default;

std::unique_ptr<SentencePiece> SentencePiece::Load(std::string_view bytes, std::string* error) {
  auto impl = std::make_unique<Impl>();
  const auto status = impl->processor.LoadFromSerializedProto(bytes);
  if (!status.ok()) {
    *error = status.ToString();
    return nullptr;
  }
  if (impl->processor.GetPieceSize() <= 0) {
    *error = "it has no pieces";
    return nullptr;
  }
  std::unique_ptr<SentencePiece> made(new SentencePiece(std::move(impl)));
  // The model's normalizer settings are not part of the library's interface; this shows them.
  std::vector<uint32_t> ids;
  if (made->Encode("a", &ids) && !ids.empty())
    made->adds_space_ = made->Piece(ids[0]).rfind("\xE2\x96\x81", 0) == 0;
  return made;
}

bool SentencePiece::Encode(std::string_view text, std::vector<uint32_t>* ids) const {
  std::vector<int> made;
  if (!impl_->processor.Encode(text, &made).ok()) return false;
  ids->assign(made.begin(), made.end());
  return true;
}

uint32_t SentencePiece::size() const {
  return static_cast<uint32_t>(impl_->processor.GetPieceSize());
}

std::string SentencePiece::Piece(uint32_t id) const {
  return impl_->processor.IdToPiece(static_cast<int>(id));
}

SentencePiece::Kind SentencePiece::KindOf(uint32_t id) const {
  const int at = static_cast<int>(id);
  if (impl_->processor.IsControl(at)) return Kind::kControl;
  if (impl_->processor.IsUnknown(at)) return Kind::kUnknown;
  if (impl_->processor.IsByte(at)) return Kind::kByte;
  if (impl_->processor.IsUnused(at)) return Kind::kUnused;
  return Kind::kNormal;
}

std::optional<uint32_t> SentencePiece::bos() const {
  const int id = impl_->processor.bos_id();
  return id < 0 ? std::nullopt : std::optional<uint32_t>(static_cast<uint32_t>(id));
}

std::optional<uint32_t> SentencePiece::eos() const {
  const int id = impl_->processor.eos_id();
  return id < 0 ? std::nullopt : std::optional<uint32_t>(static_cast<uint32_t>(id));
}

}  // namespace baton
