#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/status.h"

namespace baton {

struct Sha256Hasher::Impl {
  EVP_MD_CTX* ctx = EVP_MD_CTX_new();
  ~Impl() { EVP_MD_CTX_free(ctx); }
  void Start() { BATON_CHECK(EVP_DigestInit_ex(ctx, EVP_sha256(), nullptr) == 1); }
};

Sha256Hasher::Sha256Hasher() : impl_(std::make_unique<Impl>()) { impl_->Start(); }
Sha256Hasher::~Sha256Hasher() = default;
Sha256Hasher::Sha256Hasher(Sha256Hasher&&) noexcept = default;
Sha256Hasher& Sha256Hasher::operator=(Sha256Hasher&&) noexcept = default;

void Sha256Hasher::Update(ByteSpan bytes) {
  BATON_CHECK(EVP_DigestUpdate(impl_->ctx, bytes.data(), bytes.size()) == 1);
}

Sha256 Sha256Hasher::Finish() {
  Sha256 out;
  unsigned int n = 0;
  BATON_CHECK(EVP_DigestFinal_ex(impl_->ctx, out.bytes.data(), &n) == 1 && n == 32);
  impl_->Start();
  return out;
}

Sha256 Sha256Of(ByteSpan bytes) {
  thread_local Sha256Hasher hasher;
  hasher.Update(bytes);
  return hasher.Finish();
}

}  // namespace baton
