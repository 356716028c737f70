#include "memory/device.h"

#include <cstring>

namespace baton {

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

}  // namespace baton
