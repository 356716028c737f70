// The true memory of a token history, computed on the side: what a hostile connector lands instead
// of what was asked for. Recurrences are a function of (model, tokens), so this equals what any
// worker would hold.
// Thread rule: free functions.
#ifndef BATON_DRILL_BUNDLE_H_
#define BATON_DRILL_BUNDLE_H_

#include <memory>
#include <span>

#include "base/status.h"
#include "connector/hostile/hostile_connector.h"
#include "identity/layout.h"
#include "model/model.h"

namespace baton::drill {

using Payload = std::shared_ptr<const CapturedPull>;

// State parts and KV blocks after `tokens`; `offer` is empty. Errors are those of Forward.
StatusOr<Payload> ComputeBundle(const model::Model& model, std::span<const TokenId> tokens);

// A payload with one part's axes read in another order. kTranspose: [.., A, B] as [.., B, A].
enum class Rearrange { kTransposeLast, kReverseFirst };
// The halves of a recurrent state's heads change places in `bytes`, part `index`'s; of a model
// without one, those of the convolution windows' channels. Other parts are left.
void SwapHalves(const Layout& layout, size_t index, MutableByteSpan bytes);
Payload Rearranged(const Layout& layout, const Payload& payload, size_t part, Rearrange how);

}  // namespace baton::drill

#endif  // BATON_DRILL_BUNDLE_H_
