#include "identity/model_fingerprint.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/sha256.h"
#include "identity/xxh.h"

namespace baton {
namespace {

constexpr std::string_view kModelTag("baton.model\0", 12);
constexpr size_t kPiece = size_t{4} << 20;

struct Piece {
  size_t tensor;
  size_t offset;
};

}  // namespace

std::vector<Digest128> DigestTensors(std::span<const TensorView> tensors, ThreadPool* pool) {
  std::vector<Piece> pieces;
  std::vector<size_t> first;  // index of each tensor's first piece, and one past the last
  for (size_t t = 0; t < tensors.size(); ++t) {
    first.push_back(pieces.size());
    for (size_t o = 0; o < tensors[t].bytes.size(); o += kPiece) pieces.push_back({t, o});
  }
  first.push_back(pieces.size());

  std::vector<Digest128> piece_digests(pieces.size());
  const auto digest_piece = [&](int64_t i) {
    const ByteSpan bytes = tensors[pieces[i].tensor].bytes;
    const size_t n = std::min(kPiece, bytes.size() - pieces[i].offset);
    piece_digests[i] = CanonicalXxh(XXH3_128bits(bytes.data() + pieces[i].offset, n));
  };
  const auto count = static_cast<int64_t>(pieces.size());
  if (pool != nullptr) {
    pool->ParallelFor(count, digest_piece);
  } else {
    for (int64_t i = 0; i < count; ++i) digest_piece(i);
  }

  std::vector<Digest128> out(tensors.size());
  for (size_t t = 0; t < tensors.size(); ++t) {
    const auto mine = std::span(piece_digests).subspan(first[t], first[t + 1] - first[t]);
    out[t] = CanonicalXxh(XXH3_128bits(mine.data(), mine.size_bytes()));
  }
  return out;
}

void ModelFingerprint::AddTensor(const TensorView& tensor, const Digest128& digest) {
  entries_.push_back({tensor.name, tensor.dtype, tensor.shape, digest});
}

StatusOr<Sha256> ModelFingerprint::Finish(std::string_view config_json, std::string_view adapter) {
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.name < b.name; });
  ByteWriter w;
  w.PutRaw(std::as_bytes(std::span(kModelTag.data(), kModelTag.size())));
  w.Put(static_cast<uint64_t>(entries_.size()));
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& e = entries_[i];
    if (i > 0 && entries_[i - 1].name == e.name)
      return absl::InvalidArgumentError(
          absl::StrCat("model fingerprint: tensor ", e.name, " was added twice"));
    w.PutString(e.name);
    w.PutString(e.dtype);
    w.Put(static_cast<uint32_t>(e.shape.size()));
    for (int64_t extent : e.shape) w.Put(extent);
    w.Put(e.digest);
  }
  w.PutString(config_json);
  w.PutString(adapter);
  return Sha256Of(AsBytes(w.data()));
}

StatusOr<Sha256> FingerprintModel(std::span<const TensorView> tensors,
                                  std::string_view config_json,
                                  std::string_view adapter,
                                  ThreadPool* pool) {
  const std::vector<Digest128> digests = DigestTensors(tensors, pool);
  ModelFingerprint fingerprint;
  for (size_t i = 0; i < tensors.size(); ++i) fingerprint.AddTensor(tensors[i], digests[i]);
  return fingerprint.Finish(config_json, adapter);
}

}  // namespace baton
