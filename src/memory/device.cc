#include "memory/device.h"

#include <cstring>

namespace baton {

PartDigest Device::CopyDigest(const Digester& digester,
                              const DigestSeed& seed,
                              MutableByteSpan dst,
                              ByteSpan src) const {
  const PartDigest digest = Digest(digester, seed, src);
  Copy(dst, src);
  return digest;
}

void HostDevice::Copy(MutableByteSpan dst, ByteSpan src) const {
  BATON_CHECK(dst.size() == src.size());
  std::memcpy(dst.data(), src.data(), src.size());
}

void HostDevice::Fill(MutableByteSpan dst, std::byte value) const {
  std::memset(dst.data(), static_cast<int>(value), dst.size());
}

PartDigest HostDevice::Digest(const Digester& digester,
                              const DigestSeed& seed,
                              ByteSpan bytes) const {
  return digester.Digest(seed, bytes);
}

PartDigest HostDevice::CopyDigest(const Digester& digester,
                                  const DigestSeed& seed,
                                  MutableByteSpan dst,
                                  ByteSpan src) const {
  const StatusOr<PartDigest> digest = digester.CopyDigest(seed, dst, src, CopyTarget::kCold);
  BATON_CHECK(digest.ok());  // sizes and overlap, as for Copy
  return *digest;
}

}  // namespace baton
