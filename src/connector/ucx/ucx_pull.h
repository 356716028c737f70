// The receiver's side of one read over ucx: which bytes are still missing, and the check of every
// message against that. No I/O. Thread rule: one thread.
#ifndef BATON_CONNECTOR_UCX_UCX_PULL_H_
#define BATON_CONNECTOR_UCX_UCX_PULL_H_

#include <cstdint>
#include <span>
#include <vector>

#include "base/bytes.h"
#include "base/status.h"
#include "connector/connector.h"

namespace baton {

// Parts travel in pieces of this size (docs/format/wire.md): it bounds the bounce buffers, and is
// within 10 % of the throughput of 1 MiB pieces over TCP.
inline constexpr uint64_t kUcxPieceBytes = 64 << 10;

struct UcxPiece {
  uint64_t token = 0;   // of the conversation, chosen by the receiver
  uint64_t read = 0;    // number of the READ on this link, from 1
  uint64_t range = 0;   // index of the range within it
  uint64_t offset = 0;  // inside the range, a multiple of kUcxPieceBytes
};
inline constexpr size_t kUcxPieceHeaderBytes = 32;
inline constexpr size_t kUcxMessageBytesMax = kUcxPieceHeaderBytes + kUcxPieceBytes;

std::vector<uint8_t> EncodePiece(const UcxPiece& piece);

class UcxPull {
 public:
  // `landed` has one count per extent and outlives this, as the extents do.
  UcxPull(uint64_t token,
          uint64_t read,
          std::span<const ReadExtent> extents,
          std::span<uint64_t> landed);

  // Copies one message, header and data, to its place. kMalformed (no header), kUnknownPart
  // (another conversation or read, no such range, or a piece that came already), kShortTransfer
  // (offset or size is not a piece's). Nothing is written unless ok.
  Status Land(ByteSpan message);
  bool done() const { return missing_ == 0; }

 private:
  const uint64_t token_;
  const uint64_t read_;
  const std::span<const ReadExtent> extents_;
  const std::span<uint64_t> landed_;
  uint64_t missing_ = 0;                // pieces
  std::vector<std::vector<bool>> has_;  // per extent and piece
};

}  // namespace baton

#endif  // BATON_CONNECTOR_UCX_UCX_PULL_H_
