// A source that lies: wraps the engine's BundleProvider and changes what it serves. Those lies that
// no receiver can see, because the source's own seal is consistent with them, are here too: they
// are what the live record and the replay audit exist for.
// Thread rule: as BundleProvider; Arm from any thread.
#ifndef BATON_CONNECTOR_HOSTILE_HOSTILE_PROVIDER_H_
#define BATON_CONNECTOR_HOSTILE_HOSTILE_PROVIDER_H_

#include <functional>
#include <memory>

#include "base/mutex.h"
#include "handoff/provider.h"
#include "memory/device.h"

namespace baton {

// One lie of a source. `ask` rewrites the question before the honest provider sees it, `bundle`
// rewrites the answer; either may be empty.
struct SourceAttack {
  std::function<void(Ask*)> ask;
  std::function<void(const Ask& asked, ServedBundle*)> bundle;
};

class HostileProvider final : public BundleProvider {
 public:
  // `inner` outlives this.
  explicit HostileProvider(BundleProvider* inner) : inner_(inner) {}
  void Arm(SourceAttack attack, int times = 1) BATON_EXCLUDES(mu_);
  StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                  Instant deadline,
                                                  const CancelToken& cancel) override;
  StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
      const Ask& ask,
      Instant deadline,
      const CancelToken& cancel,
      const std::shared_ptr<BlockStream>& stream) override;

 private:
  BundleProvider* inner_;
  Mutex mu_;
  std::shared_ptr<const SourceAttack> attack_ BATON_GUARDED_BY(mu_);
  int times_ BATON_GUARDED_BY(mu_) = 0;
};

// Seals a bundle's present bytes as `claim`, asking nobody whether that is true. `tokens` seed the
// block digests.
void ForgeSeal(const LocalIdentity& self,
               const Device& device,
               const ContentIdentity& claim,
               std::span<const TokenId> tokens,
               ServedBundle* bundle);

// F11: serves the honest bundle of the first boundary - `fewer` tokens (a multiple of the grid).
SourceAttack ServeShorter(uint64_t fewer);
// F14: serves the honest bundle of the same tokens under another tenant's scope.
SourceAttack ServeOtherScope(const Sha256& scope);
// F28: one state part has no digest; F28: sealed with another algorithm's name.
SourceAttack OmitDigest(size_t part);
SourceAttack NameOtherAlgorithm();

}  // namespace baton

#endif  // BATON_CONNECTOR_HOSTILE_HOSTILE_PROVIDER_H_
