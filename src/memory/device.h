// The only way identity, memory and hand-off touch the bytes of a unit, so that another kind of
// memory needs a new implementation and no new design. Today there is host memory.
// Thread rule: implementations are stateless and thread-safe.
#ifndef BATON_MEMORY_DEVICE_H_
#define BATON_MEMORY_DEVICE_H_

#include "base/bytes.h"
#include "identity/digest.h"

namespace baton {

class Device {
 public:
  virtual ~Device() = default;
  // dst.size() == src.size(); no overlap.
  virtual void Copy(MutableByteSpan dst, ByteSpan src) const = 0;
  virtual void Fill(MutableByteSpan dst, std::byte value) const = 0;
  virtual PartDigest Digest(const Digester& digester,
                            const DigestSeed& seed,
                            ByteSpan bytes) const = 0;
  // Copy, and the digest of the source as it was copied. It says nothing of the destination. A kind
  // of memory that can do both in one pass overrides it; this one digests first, then copies.
  virtual PartDigest CopyDigest(const Digester& digester,
                                const DigestSeed& seed,
                                MutableByteSpan dst,
                                ByteSpan src) const;
};

class HostDevice final : public Device {
 public:
  void Copy(MutableByteSpan dst, ByteSpan src) const override;
  void Fill(MutableByteSpan dst, std::byte value) const override;
  PartDigest Digest(const Digester& digester,
                    const DigestSeed& seed,
                    ByteSpan bytes) const override;
  // One pass, past the caches: what it writes is a slot or block that comes to rest.
  PartDigest CopyDigest(const Digester& digester,
                        const DigestSeed& seed,
                        MutableByteSpan dst,
                        ByteSpan src) const override;
};

}  // namespace baton

#endif  // BATON_MEMORY_DEVICE_H_
