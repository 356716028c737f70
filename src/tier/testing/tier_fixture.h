// A source of sealed bundles, plain buffers to restore into, and one tier over a store of choice:
// what the tests of all stores share. Not linked into the product. Thread rule: the test's thread.
#ifndef BATON_TIER_TESTING_TIER_FIXTURE_H_
#define BATON_TIER_TESTING_TIER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "handoff/testing/fake_node.h"
#include "tier/bundle_plan.h"
#include "tier/tier.h"

namespace baton {

// One history, sealed in the node's pools.
struct SealedHistory {
  SealedHistory(FakeNode* node, std::vector<TokenId> t)
      : tokens(std::move(t)),
        chain(FakeNode::Scope(), tokens),
        bundle(*FakeBundle::Make(node, {node->Base(), tokens, tokens})) {}

  BundleSource Source() const {
    const Layout& layout = bundle->node()->layout();
    return {&bundle->seal, &chain, &bundle->block_digests,
            [this, &layout](const BundlePart& part) -> StatusOr<PinnedBytes> {
              if (part.is_state)
                return PinnedBytes{ByteSpan(bundle->slot.bytes())
                                       .subspan(layout.parts()[part.part].offset, part.bytes)};
              return PinnedBytes{
                  ByteSpan(bundle->blocks[part.group][part.slot].bytes()).first(part.bytes)};
            }};
  }
  MutableByteSpan BytesOf(const BundlePart& part) const {
    const Layout& layout = bundle->node()->layout();
    return part.is_state
               ? bundle->slot.bytes().subspan(layout.parts()[part.part].offset, part.bytes)
               : bundle->blocks[part.group][part.slot].bytes().first(part.bytes);
  }
  const ContentIdentity& identity() const { return bundle->seal.identity; }

  std::vector<TokenId> tokens;
  PrefixChain chain;
  std::unique_ptr<FakeBundle> bundle;
};

// Buffers for the bundle of some tokens, filled with a pattern that no part has.
struct Landing {
  Landing(const FakeNode& node, const std::vector<TokenId>& tokens)
      : chain(FakeNode::Scope(), tokens) {
    request.expected.identity = node.IdentityOf(tokens);
    request.expected.chain = &chain;
    const auto parts = BundleParts(node.layout(), tokens.size());
    for (const BundlePart& part : parts) bytes.emplace_back(part.bytes, std::byte{0xcd});
    for (size_t i = 0; i < parts.size(); ++i) request.targets.push_back({parts[i], bytes[i]});
  }
  PrefixChain chain;
  std::vector<std::vector<std::byte>> bytes;
  RestoreRequest request;
};

}  // namespace baton

#endif  // BATON_TIER_TESTING_TIER_FIXTURE_H_
