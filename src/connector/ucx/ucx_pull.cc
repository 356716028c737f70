#include "connector/ucx/ucx_pull.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace baton {

std::vector<uint8_t> EncodePiece(const UcxPiece& piece) {
  ByteWriter w;
  w.Put(piece.token);
  w.Put(piece.read);
  w.Put(piece.range);
  w.Put(piece.offset);
  return w.Take();
}

UcxPull::UcxPull(uint64_t token,
                 uint64_t read,
                 std::span<const ReadExtent> extents,
                 std::span<uint64_t> landed)
    : token_(token), read_(read), extents_(extents), landed_(landed) {
  BATON_CHECK(landed.size() == extents.size());
  has_.reserve(extents.size());
  for (const ReadExtent& e : extents) {
    const uint64_t pieces = (e.bytes + kUcxPieceBytes - 1) / kUcxPieceBytes;
    has_.emplace_back(pieces);
    missing_ += pieces;
  }
}

Status UcxPull::Land(ByteSpan message) {
  if (message.size() < kUcxPieceHeaderBytes)
    return Reject(Reason::kMalformed,
                  absl::StrCat("ucx message of ", message.size(), " bytes, expected a header of ",
                               kUcxPieceHeaderBytes));
  ByteReader r(message.first(kUcxPieceHeaderBytes));
  const ByteSpan data = message.subspan(kUcxPieceHeaderBytes);
  UcxPiece piece;
  piece.token = r.Get<uint64_t>();
  piece.read = r.Get<uint64_t>();
  piece.range = r.Get<uint64_t>();
  piece.offset = r.Get<uint64_t>();
  if (piece.token != token_)
    return Reject(Reason::kUnknownPart, "ucx message of another conversation");
  if (piece.read != read_ || piece.range >= extents_.size())
    return Reject(Reason::kUnknownPart,
                  absl::StrCat("ucx message for range ", piece.range, " of read ", piece.read,
                               ", asked for ", extents_.size(), " ranges in read ", read_));
  const ReadExtent& e = extents_[piece.range];
  const uint64_t want =
      piece.offset < e.bytes ? std::min<uint64_t>(kUcxPieceBytes, e.bytes - piece.offset) : 0;
  if (want == 0 || piece.offset % kUcxPieceBytes != 0 || data.size() != want)
    return Reject(Reason::kShortTransfer,
                  absl::StrCat("ucx message with bytes ", piece.offset, "+", data.size(),
                               " of part ", e.part.value, " of ", e.bytes, " bytes, expected ",
                               want, " of them in pieces of ", kUcxPieceBytes));
  std::vector<bool>::reference has = has_[piece.range][piece.offset / kUcxPieceBytes];
  if (has)
    return Reject(Reason::kUnknownPart,
                  absl::StrCat("ucx message with bytes ", piece.offset, "+", want, " of part ",
                               e.part.value, ", which came already"));
  has = true;
  std::memcpy(e.destination.data() + piece.offset, data.data(), want);
  landed_[piece.range] += want;
  --missing_;
  return absl::OkStatus();
}

}  // namespace baton
