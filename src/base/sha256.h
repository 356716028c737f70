// SHA-256 (FIPS 180-4) through OpenSSL, with one reusable context per hasher.
// Thread rule: one hasher per thread.
#ifndef BATON_BASE_SHA256_H_
#define BATON_BASE_SHA256_H_

#include <memory>
#include <string_view>

#include "base/bytes.h"
#include "base/types.h"

namespace baton {

class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  Sha256Hasher(Sha256Hasher&&) noexcept;
  Sha256Hasher& operator=(Sha256Hasher&&) noexcept;

  void Update(ByteSpan bytes);
  void Update(std::string_view s) { Update(std::as_bytes(std::span(s.data(), s.size()))); }
  // Returns the digest and starts over.
  Sha256 Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

Sha256 Sha256Of(ByteSpan bytes);

}  // namespace baton

#endif  // BATON_BASE_SHA256_H_
