// XXH3-128 over a stream of bytes that may be copied on the way: every byte is loaded from the
// source once, and the same register is stored to the destination and hashed. So the digest is of
// what was written, also if someone scribbles over the source meanwhile. In the same pass it says
// whether all elements are finite. Bit for bit the value of XXH3_128bits (seed 0) of libxxhash.
//
// It checks no handle and no ownership of the destination: whoever counts this digest as the
// destination's must hold it exclusively, otherwise reads it again (design: identity). It knows no
// keys; for keyed digests see digest.h.
//
// AVX-512, AVX2 and portable kernels, chosen at run time; all give the same bits.
// Thread rule: a stream belongs to one thread.
#ifndef BATON_IDENTITY_COPY_DIGEST_H_
#define BATON_IDENTITY_COPY_DIGEST_H_

#include <cstdint>

#include "base/bytes.h"
#include "base/status.h"
#include "base/types.h"
#include "identity/layout.h"

namespace baton {

// Where a copy goes. kCold writes past the caches: right for a destination that nobody reads soon
// and that is not in a cache; on such, ordinary stores first fetch each line they overwrite.
enum class CopyTarget : uint8_t { kWarm, kCold };

// One implementation of the inner loop.
enum class DigestKernel : uint8_t { kPortable, kAvx2, kAvx512 };
bool DigestKernelRuns(DigestKernel kernel);  // on this CPU
DigestKernel BestDigestKernel();
std::string_view DigestKernelName(DigestKernel kernel);

// OK if a copy from src to dst may be done in pieces: InvalidArgument if the sizes differ or the
// ranges share a byte.
Status CheckCopy(MutableByteSpan dst, ByteSpan src);

class Xxh3Stream {
 public:
  // `dtype` of the elements, for the finite check; the first `unscanned` bytes of the stream (0 or
  // 32: a seed) are hashed and belong to no element.
  explicit Xxh3Stream(ElementType dtype = ElementType::kF32,
                      size_t unscanned = 0,
                      DigestKernel kernel = BestDigestKernel());

  void Update(ByteSpan bytes) { Run(nullptr, bytes, CopyTarget::kWarm); }
  // Must hold: CheckCopy(dst, src). All stores are visible to other threads by the usual rules
  // (release, join) when it returns, those of kCold too.
  void CopyUpdate(MutableByteSpan dst, ByteSpan src, CopyTarget target);

  // Only whole elements so far, none NaN or infinite. Also after Finish.
  bool finite() const;
  // Call once, last.
  Digest128 Finish();
  // CopyUpdate of the last bytes, then Finish, which goes on while the stores drain.
  Digest128 CopyFinish(MutableByteSpan dst, ByteSpan src, CopyTarget target);

 private:
  // Up to 240 bytes have a formula of their own, so stripes start when more have come.
  static constexpr size_t kStripe = 64;
  static constexpr size_t kBuffer = 4 * kStripe;

  void Run(std::byte* dst, ByteSpan src, CopyTarget target);
  void Stripes(std::byte* dst, const std::byte* src, size_t count, CopyTarget target);
  void FlushBuffer();

  // Streams are made per part, of which there are many small ones: nothing here needs the heap.
  alignas(64) uint64_t acc_[8];
  std::byte last_[kStripe];    // the stripe before the buffer's bytes
  std::byte buffer_[kBuffer];  // not yet in acc_; never empty once a byte has come
  size_t buffered_ = 0;
  uint64_t bytes_ = 0;   // in acc_
  uint32_t stripe_ = 0;  // place within the block of 16
  ElementType dtype_;
  uint8_t unscanned_;
  DigestKernel kernel_;
  bool finite_ = true;
};

}  // namespace baton

#endif  // BATON_IDENTITY_COPY_DIGEST_H_
