// What the tests of all stores share: a source of sealed bundles, plain buffers to restore into,
// one tier over a store of choice, and forgery of the objects in it. Not linked into the product.
// Thread rule: the test's thread.
#ifndef BATON_TIER_TESTING_TIER_FIXTURE_H_
#define BATON_TIER_TESTING_TIER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "handoff/testing/fake_node.h"
#include "tier/bundle_plan.h"
#include "tier/disk/disk_store.h"
#include "tier/host/host_store.h"
#include "tier/tier.h"

namespace baton {

// A directory that is removed with its object.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "baton-tier-XXXXXX").string();
    BATON_CHECK(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string File(const std::string& name) const { return path_ + "/" + name; }
  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream(File(name), std::ios::binary | std::ios::trunc) << bytes;
  }
  std::vector<std::string> Names(const std::string& suffix) const {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(path_))
      if (entry.path().string().ends_with(suffix)) out.push_back(entry.path().filename().string());
    return out;
  }

 private:
  std::string path_;
};

// One history, sealed in the node's pools.
struct SealedHistory {
  SealedHistory(FakeNode* node, std::vector<TokenId> t)
      : tokens(std::move(t)),
        chain(FakeNode::Scope(), tokens),
        bundle(*FakeBundle::Make(node, {node->Base(), tokens, tokens})) {}

  BundleSource Source() const {
    return {&bundle->seal, &chain, &bundle->block_digests,
            [this](const BundlePart& part) -> StatusOr<PinnedBytes> {
              return PinnedBytes{BytesOf(part)};
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

// An object taken apart, to be put back changed: well-formed, its checksum right.
struct Forged {
  ObjectHeader header;
  std::vector<std::byte> payload;  // header.payload_bytes long
  MutableByteSpan Part(PartKey key) {
    const ObjectPart* part = header.FindPart(key);
    BATON_CHECK(part != nullptr);
    return MutableByteSpan(payload).subspan(part->offset, part->bytes);
  }
};

enum class StoreKind { kHost, kDisk };

class StoreTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  StoreTest() { Open(64 << 20); }

  void Open(uint64_t budget,
            std::function<double(const TierEntry&)> score = nullptr,
            Checks checks = {}) {
    TierOptions options;
    options.model = node_.self().model;
    options.layout = &layout_;
    options.digester = &node_.self().digester;
    options.device = &node_.device();
    options.budget_bytes = budget;
    options.score = std::move(score);
    options.checks = checks;
    options.rest_encoding = encoding_;
    options.node = node_.self().node;
    options.epoch = node_.self().epoch;
    tier_.reset();
    std::unique_ptr<ObjectStore> store;
    if (GetParam() == StoreKind::kHost) {
      store = *OpenHostStore({budget});
    } else {
      DiskStoreOptions disk;
      disk.directory = directory_.path();
      store = *OpenDiskStore(disk);
    }
    store_ = store.get();
    tier_ = *Tier::Open(std::move(options), std::move(store));
  }

  std::vector<std::byte> Load(const ObjectName& name) {
    auto reader = *store_->Open(name, ReadAhead::kWhole);
    std::vector<std::byte> out;
    while (out.size() < reader->size()) {
      const ByteSpan piece = *reader->Read(out.size(), reader->size() - out.size());
      out.insert(out.end(), piece.begin(), piece.end());
    }
    return out;
  }
  // Past the tier, which knows nothing of it.
  void Save(const ObjectName& name, const std::vector<std::byte>& bytes) {
    if (GetParam() == StoreKind::kDisk) {  // a store writes whole pages only
      std::ofstream(directory_.File(name.FileName()), std::ios::binary | std::ios::trunc)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
      return;
    }
    auto writer = *store_->Create(name, {bytes.size(), bytes.size()});
    const MutableByteSpan to = *writer->Next(bytes.size());
    std::memcpy(to.data(), bytes.data(), bytes.size());
    ASSERT_TRUE(writer->Commit().ok());
  }
  Forged TakeApart(const ObjectName& name) {
    const std::vector<std::byte> all = Load(name);
    Forged forged{*DecodeObjectHeader(all), {}};
    const ByteSpan payload =
        ByteSpan(all).subspan(forged.header.PayloadOffset(), forged.header.payload_bytes);
    forged.payload.assign(payload.begin(), payload.end());
    return forged;
  }
  void PutBack(const ObjectName& name, const Forged& forged) {
    const auto record = EncodeObjectHeader(forged.header);
    std::vector<std::byte> all(forged.header.ObjectBytes());
    std::memcpy(all.data(), record.data(), record.size());
    std::memcpy(all.data() + record.size(), forged.payload.data(),
                std::min<size_t>(forged.payload.size(), all.size() - record.size()));
    Save(name, all);
  }

  std::vector<TokenId> Prefix(size_t n) const {
    return {history_.begin(), history_.begin() + static_cast<ptrdiff_t>(n)};
  }
  ObjectName BundleName(const std::vector<TokenId>& tokens) const {
    return {ObjectKind::kBundle, node_.IdentityOf(tokens).Key()};
  }
  // The segment of the full group that ends at the end of `tokens`.
  ObjectName SegmentName(const std::vector<TokenId>& tokens) const {
    return {ObjectKind::kSegment, SegmentKey(node_.IdentityOf(tokens), 0)};
  }
  void ExpectRestores(const std::vector<TokenId>& tokens) {
    Landing landing(node_, tokens);
    const auto restored = tier_->Restore(landing.request);
    ASSERT_TRUE(restored.ok()) << restored.status();
    EXPECT_EQ(landing.bytes, ReferenceBundle(node_, tokens));
    EXPECT_EQ(restored->seal.identity, node_.IdentityOf(tokens));
  }

  const TempDirectory directory_;
  const Layout layout_ = SmallLayout();
  FakeNode node_{{&layout_, Sha256(), Digester(), kHandoffProtocolVersion, 16, 512, nullptr}};
  const std::vector<TokenId> history_ = SomeTokens(1024, 7);
  RestEncoding encoding_ = RestEncoding::kSame;  // of the next Open
  std::unique_ptr<Tier> tier_;
  ObjectStore* store_ = nullptr;  // the tier's
};

inline std::string StoreKindName(const ::testing::TestParamInfo<StoreKind>& info) {
  return info.param == StoreKind::kHost ? "Host" : "Disk";
}

}  // namespace baton

#endif  // BATON_TIER_TESTING_TIER_FIXTURE_H_
