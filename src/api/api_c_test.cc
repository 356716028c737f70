// The C API does what the C++ one does; its errors carry reason and message.
#include <cstring>
#include <string>
#include <vector>

#include "baton/baton.h"
#include "gtest/gtest.h"

namespace {

baton_options Engine(const char* const* listen, size_t listen_count) {
  static const int64_t shape[] = {2, 8, 4};
  static const uint32_t layers[] = {1};
  static const baton_state_part part = {0, "ssm", BATON_F32, shape, 3, "H,N,P"};
  static const baton_kv_group group = {"full", layers, 1, 1, 8, BATON_F32};
  baton_options o;
  std::memset(&o, 0, sizeof o);
  o.parts = &part;
  o.part_count = 1;
  o.groups = &group;
  o.group_count = 1;
  o.listen = listen;
  o.listen_count = listen_count;
  return o;
}

TEST(CApi, HandOff) {
  const char* listen[] = {"tcp:127.0.0.1:0"};
  const baton_options with = Engine(listen, 1), without = Engine(nullptr, 0);
  baton_error* error = nullptr;
  baton_plane* prefill = baton_plane_create(&with, &error);
  ASSERT_EQ(error, nullptr);
  baton_plane* decode = baton_plane_create(&without, &error);
  ASSERT_EQ(error, nullptr);
  EXPECT_GT(baton_memory_bytes(&with, nullptr), 0u);
  EXPECT_EQ(baton_plane_endpoint(prefill, 1), nullptr);

  std::vector<uint32_t> tokens(16, 5);
  baton_sequence* sequence = baton_begin(prefill, "a", &error);
  ASSERT_EQ(baton_extend(sequence, 16, &error), 0);
  baton_lease* lease = baton_pin(sequence, &error);
  size_t bytes = 0;
  void* state = baton_lease_part(lease, 0, &bytes);
  EXPECT_EQ(bytes, 256u);
  std::memset(state, 3, bytes);
  std::memset(baton_lease_block(lease, 0, 0, &bytes), 4, bytes);
  EXPECT_EQ(baton_lease_block(lease, 0, 1, nullptr), nullptr);
  baton_lease_free(lease);
  ASSERT_EQ(baton_advance(sequence, tokens.data(), tokens.size(), &error), 0);
  baton_offer* offer = baton_offer_sequence(sequence, &error);
  ASSERT_EQ(error, nullptr);
  EXPECT_EQ(std::strlen(baton_offer_state_id(offer)), 32u);
  EXPECT_EQ(baton_offer_verify(offer, &error), 0);
  EXPECT_EQ(baton_offer_wait(offer, 1), 0);

  const char* endpoint = baton_plane_endpoint(prefill, 0);
  EXPECT_EQ(baton_pull(decode, endpoint, "b", tokens.data(), 16, 5000, &error), nullptr);
  ASSERT_NE(error, nullptr);
  EXPECT_STREQ(baton_error_reason(error), "peer_error");
  EXPECT_NE(std::string(baton_error_message(error)), "");
  baton_error_free(error);
  baton_sequence* pulled = baton_pull(decode, endpoint, "a", tokens.data(), 16, 5000, &error);
  ASSERT_NE(pulled, nullptr);
  EXPECT_EQ(baton_sequence_boundary(pulled), 16u);
  EXPECT_EQ(baton_offer_wait(offer, 5000), 1);
  lease = baton_pin(pulled, nullptr);
  EXPECT_EQ(static_cast<uint8_t*>(baton_lease_part(lease, 0, nullptr))[255], 3);
  baton_lease_free(lease);
  baton_invalidate(pulled);
  baton_sequence_free(pulled);
  baton_offer_free(offer);
  baton_plane_free(decode);
  baton_plane_free(prefill);
}

}  // namespace
