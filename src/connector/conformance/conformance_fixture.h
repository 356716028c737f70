// What the conformance suite runs on: source memory that every connector can serve, one connector
// of the kind under test, and the two ends of a conversation. A new connector is added to
// ConnectorsUnderTest and to AddressOf, and must then pass every test (docs/connectors.md).
#ifndef BATON_CONNECTOR_CONFORMANCE_CONFORMANCE_FIXTURE_H_
#define BATON_CONNECTOR_CONFORMANCE_CONFORMANCE_FIXTURE_H_

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/rng.h"
#include "connector/connectors.h"
#include "connector/frame.h"
#include "connector/socket_stream.h"

namespace baton {

inline std::vector<std::string> ConnectorsUnderTest() {
  std::vector<std::string> names = {"inproc", "shm", "tcp"};
  if (HaveUcx()) names.push_back("ucx");
  return names;
}

// A memfd sealed against shrinking, filled with what the seed gives.
class SharedMemory {
 public:
  explicit SharedMemory(size_t bytes, int seals = F_SEAL_SHRINK)
      : fd_(memfd_create("conformance", MFD_ALLOW_SEALING | MFD_CLOEXEC)) {
    BATON_CHECK(ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0);
    BATON_CHECK(fcntl(fd_.get(), F_ADD_SEALS, seals) == 0);
    void* p = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_.get(), 0);
    BATON_CHECK(p != MAP_FAILED);
    bytes_ = MutableByteSpan(static_cast<std::byte*>(p), bytes);
    SplitMix64 rng(7);
    for (size_t i = 0; i < bytes; i += 8) {
      const uint64_t word = rng.Next();
      std::memcpy(bytes_.data() + i, &word, std::min<size_t>(8, bytes - i));
    }
  }
  ~SharedMemory() { munmap(bytes_.data(), bytes_.size()); }
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  MutableByteSpan bytes() const { return bytes_; }
  SourceRegion region() const { return {bytes_, fd_.get()}; }

 private:
  Fd fd_;
  MutableByteSpan bytes_;
};

inline std::string UniqueName() { return "baton-test-" + RandomBytes<StateId>().Hex(); }

class ConformanceTest : public ::testing::TestWithParam<std::string> {
 protected:
  static constexpr size_t kBytes = size_t{4} << 20;
  static constexpr std::byte kUntouched{0x5A};

  void SetUp() override {
    auto listener = Listen({AddressOf(GetParam()), {memory_.region()}, &clock_, &hub_});
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = std::move(*listener);
    connectors_ = ConnectorSet::Standard(&clock_, &hub_);
    auto connector = connectors_.For(listener_->endpoint());
    ASSERT_TRUE(connector.ok()) << connector.status();
    connector_ = *connector;
    EXPECT_EQ(connector_->name(), GetParam());
    EXPECT_EQ(listener_->connector_name(), GetParam());
  }

  static std::string AddressOf(const std::string& scheme) {
    const bool port = scheme == "tcp" || scheme == "ucx";
    return scheme + ":" +
           (port              ? "127.0.0.1:0"
            : scheme == "shm" ? "@" + UniqueName()
                              : UniqueName());
  }

  // A shm receiver reads the mapping itself: the source cannot refuse it, nor does it wait.
  bool source_refuses() const { return GetParam() != "shm"; }
  // The receiver waits for the source to serve.
  bool source_serves() const { return GetParam() == "tcp" || GetParam() == "ucx"; }
  Instant Soon() const { return clock_.Now() + std::chrono::seconds(20); }

  void ConnectBoth() {
    // A shm connect waits for the source to accept and pass its arena.
    std::jthread accept([this] {
      auto source = listener_->Accept();
      ASSERT_TRUE(source.ok()) << source.status();
      source_ = std::move(*source);
    });
    auto link = connector_->Connect(listener_->endpoint(), Soon(), {});
    ASSERT_TRUE(link.ok()) << link.status();
    link_ = std::move(*link);
  }

  // Serves on its own thread until the receiver sends a frame or leaves.
  void ServeInBackground() {
    server_ = std::jthread([this] { served_ = source_->ServeUntilFrame(Soon()).status(); });
  }

  // Grants parts of the given sizes, laid out backwards in memory, and plans to pull them into
  // destination_, three bytes apart, in an order that is not the grant's.
  void GrantParts(const std::vector<size_t>& sizes) {
    size_t end = memory_.bytes().size();
    size_t total = 0;
    for (size_t i = 0; i < sizes.size(); ++i) {
      end -= sizes[i];
      total += sizes[i] + 3;
      granted_.push_back({id_, PartKey(100000 - i), memory_.bytes().subspan(end, sizes[i])});
    }
    auto addresses = source_->Grant(granted_);
    ASSERT_TRUE(addresses.ok()) << addresses.status();
    destination_.assign(total + 3, kUntouched);
    size_t at = 3;
    for (size_t i = 0; i < sizes.size(); ++i) {
      extents_.push_back({id_, granted_[i].part, (*addresses)[i].region, (*addresses)[i].offset,
                          sizes[i], MutableByteSpan(destination_).subspan(at, sizes[i])});
      at += sizes[i] + 3;
    }
    SplitMix64 rng(3);
    for (size_t i = sizes.size(); i > 1; --i) std::swap(extents_[i - 1], extents_[rng.Below(i)]);
  }
  void GrantParts(size_t count) {
    std::vector<size_t> sizes;
    for (size_t i = 0; i < count; ++i) sizes.push_back(1 + (i * 977) % 1500);
    GrantParts(sizes);
  }

  // destination_ holds the granted bytes where they were asked for, and nothing anywhere else.
  void ExpectAllLanded(const PullOutcome& out) {
    ASSERT_TRUE(out.status.ok()) << out.status;
    EXPECT_TRUE(out.quiet);
    std::vector<std::byte> expected(destination_.size(), kUntouched);
    for (size_t i = 0; i < extents_.size(); ++i) {
      EXPECT_EQ(out.landed[i], extents_[i].bytes);
      for (const GrantedPart& part : granted_)
        if (part.part == extents_[i].part)
          std::copy(part.bytes.begin(), part.bytes.end(),
                    expected.begin() + (extents_[i].destination.data() - destination_.data()));
    }
    EXPECT_TRUE(destination_ == expected);
  }
  void ExpectNothingWritten() const {
    EXPECT_TRUE(destination_ == std::vector<std::byte>(destination_.size(), kUntouched));
  }

  MonotonicClock clock_;
  InprocHub hub_;
  SharedMemory memory_{kBytes};
  ConnectorSet connectors_;
  Connector* connector_ = nullptr;
  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Link> link_;
  std::unique_ptr<SourceLink> source_;
  const StateId id_ = RandomBytes<StateId>();
  std::vector<GrantedPart> granted_;
  std::vector<ReadExtent> extents_;
  std::vector<std::byte> destination_;
  Status served_;
  std::jthread server_;
};

}  // namespace baton

#endif  // BATON_CONNECTOR_CONFORMANCE_CONFORMANCE_FIXTURE_H_
