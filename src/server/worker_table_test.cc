#include "server/worker_table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/prefix_affinity.h"

namespace baton::server {
namespace {

NodeInfo Info(const std::string& role,
              const std::string& fingerprint = "f",
              const std::string& epoch = "e") {
  NodeInfo info;
  info.role = role;
  info.fingerprint = fingerprint;
  info.epoch = epoch;
  info.handoff = {{"tcp", "tcp:host:1"}, {"shm", "shm:@x"}};
  info.max_model_len = 100;
  info.vocab_size = 50;
  return info;
}

// Workers 0 and 1 prefill, 2 and 3 decode.
WorkerTable::Options FourWorkers() {
  WorkerTable::Options options;
  options.prefill = {{"p", 1}, {"p", 2}};
  options.decode = {{"d", 1}, {"d", 2}};
  options.connectors = {"shm", "tcp"};
  return options;
}

TEST(WorkerTable, NothingIsPickedBeforeACheck) {
  WorkerTable table(FourWorkers());
  EXPECT_FALSE(table.PickDecode({}).has_value());
  EXPECT_FALSE(table.PickPrefill(2, "").has_value());
  EXPECT_EQ(table.max_model_len(), 0);
}

TEST(WorkerTable, LeastLoadedIsPicked) {
  WorkerTable table(FourWorkers());
  table.ReportGood(2, Info("decode"));
  table.ReportGood(3, Info("decode"));
  const WorkerIndex a = table.PickDecode({})->worker;
  const WorkerIndex b = table.PickDecode({})->worker;
  EXPECT_NE(a, b);
  table.Release(a);
  EXPECT_EQ(table.PickDecode({})->worker, a);
}

TEST(WorkerTable, PreferredYieldsToLoadEpochAndHealth) {
  WorkerTable::Options options = FourWorkers();
  options.affinity_slack = 1;
  WorkerTable table(options);
  table.ReportGood(2, Info("decode", "f", "e2"));
  table.ReportGood(3, Info("decode", "f", "e3"));
  WorkerTable::DecodeQuery query;
  query.preferred = 3;
  query.preferred_epoch = "e3";
  EXPECT_EQ(table.PickDecode(query)->worker, 3u);
  EXPECT_EQ(table.PickDecode(query)->worker, 3u);
  EXPECT_EQ(table.PickDecode(query)->worker, 2u);  // 2 in flight there, 0 here
  query.preferred_epoch = "an earlier life";
  table.ReportGood(3, Info("decode", "f", "e3"));
  EXPECT_EQ(table.PickDecode(query)->worker, 2u);
  query.preferred_epoch = "e3";
  table.ReportFailed(3, "gone");
  EXPECT_EQ(table.PickDecode(query)->worker, 2u);
}

TEST(WorkerTable, LeavesAtOnceOrAfterTimeoutsAndRejoins) {
  WorkerTable table(FourWorkers());
  EXPECT_TRUE(table.ReportGood(2, Info("decode")));
  EXPECT_FALSE(table.ReportGood(2, Info("decode")));
  EXPECT_FALSE(table.ReportTimeout(2));
  EXPECT_FALSE(table.ReportTimeout(2));
  EXPECT_FALSE(table.ReportGood(2, Info("decode")));  // starts the count over
  EXPECT_FALSE(table.ReportTimeout(2));
  EXPECT_FALSE(table.ReportTimeout(2));
  EXPECT_TRUE(table.ReportTimeout(2));
  EXPECT_FALSE(table.PickDecode({}).has_value());
  EXPECT_TRUE(table.ReportGood(2, Info("decode")));
  EXPECT_TRUE(table.ReportFailed(2, "connection refused"));
  EXPECT_THAT(table.Problems(WorkerDuty::kDecode),
              ::testing::HasSubstr("d:1 (decode): connection refused"));
}

TEST(WorkerTable, SilentWorkerComesLast) {
  WorkerTable table(FourWorkers());
  table.ReportGood(2, Info("decode"));
  table.ReportGood(3, Info("decode"));
  table.ReportTimeout(2);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(table.PickDecode({})->worker, 3u);
  table.ReportFailed(3, "gone");
  EXPECT_EQ(table.PickDecode({})->worker, 2u);
}

TEST(WorkerTable, AnotherModelIsLeftOutUntilNobodyServesTheFirst) {
  WorkerTable table(FourWorkers());
  table.ReportGood(2, Info("decode", "first"));
  EXPECT_FALSE(table.ReportGood(3, Info("decode", "second")));
  EXPECT_THAT(table.View()[3].problem, ::testing::HasSubstr("another model"));
  // A stream of the first model never goes on with the second.
  const auto pick = table.PickDecode({});
  table.ReportFailed(2, "gone");
  EXPECT_FALSE(table.ReportGood(3, Info("decode", "second")));
  table.Release(pick->worker);
  EXPECT_TRUE(table.ReportGood(3, Info("decode", "second")));
  WorkerTable::DecodeQuery query;
  query.fingerprint = "first";
  EXPECT_FALSE(table.PickDecode(query).has_value());
  query.fingerprint = "second";
  EXPECT_TRUE(table.PickDecode(query).has_value());
}

TEST(WorkerTable, RoleMustFitTheList) {
  WorkerTable table(FourWorkers());
  EXPECT_FALSE(table.ReportGood(2, Info("prefill")));
  EXPECT_THAT(table.View()[2].problem, ::testing::HasSubstr("expected 'decode' or 'all'"));
  EXPECT_TRUE(table.ReportGood(3, Info("all")));
}

TEST(WorkerTable, PrefillEndpointFollowsConnectorPreference) {
  WorkerTable table(FourWorkers());
  table.ReportGood(2, Info("decode"));
  table.ReportGood(0, Info("prefill"));
  EXPECT_EQ(table.PickPrefill(2, "")->endpoint, "shm:@x");
  EXPECT_FALSE(table.PickPrefill(2, "p:2").has_value());
  EXPECT_TRUE(table.PickPrefill(2, "p:1").has_value());
  WorkerTable::Options only_tcp = FourWorkers();
  only_tcp.connectors = {"tcp"};
  WorkerTable other(only_tcp);
  NodeInfo shm_only = Info("prefill");
  shm_only.handoff.erase("tcp");
  other.ReportGood(0, shm_only);
  EXPECT_FALSE(other.PickPrefill(2, "").has_value());  // asked for tcp: shm is no substitute
  other.ReportGood(1, Info("prefill"));
  EXPECT_EQ(other.PickPrefill(2, "")->endpoint, "tcp:host:1");
}

TEST(WorkerTable, SmallestLimitsOfHealthyWorkers) {
  WorkerTable table(FourWorkers());
  NodeInfo small = Info("decode");
  small.max_model_len = 60;
  table.ReportGood(2, Info("decode"));
  table.ReportGood(3, small);
  EXPECT_EQ(table.max_model_len(), 60);
  table.ReportFailed(3, "gone");
  EXPECT_EQ(table.max_model_len(), 100);
}

std::vector<TokenId> Tokens(size_t n, TokenId first = 0) {
  std::vector<TokenId> t(n);
  for (size_t i = 0; i < n; ++i) t[i] = first + static_cast<TokenId>(i);
  return t;
}

TEST(PrefixAffinity, FindsTheDeepestPrefixOnTheGrid) {
  PrefixAffinity affinity(10);
  const auto tokens = Tokens(100);
  EXPECT_FALSE(affinity.Find(tokens, "").has_value());
  affinity.Remember(std::span(tokens).first(15), "", {1, "a"});  // under a block: nothing
  EXPECT_EQ(affinity.size(), 0u);
  affinity.Remember(std::span(tokens).first(20), "", {1, "a"});
  affinity.Remember(std::span(tokens).first(50), "", {2, "b"});
  EXPECT_EQ(affinity.Find(std::span(tokens).first(47), "")->worker, 1u);
  EXPECT_EQ(affinity.Find(std::span(tokens).first(48), "")->worker, 2u);
  EXPECT_EQ(affinity.Find(tokens, "")->epoch, "b");
  EXPECT_FALSE(affinity.Find(tokens, "other tenant").has_value());
  EXPECT_FALSE(affinity.Find(Tokens(100, 1), "").has_value());
}

TEST(PrefixAffinity, ForgetsTheLeastRecentlyUsed) {
  PrefixAffinity affinity(2);
  affinity.Remember(Tokens(16, 100), "", {1, ""});
  affinity.Remember(Tokens(16, 200), "", {2, ""});
  EXPECT_TRUE(affinity.Find(Tokens(16, 100), "").has_value());
  affinity.Remember(Tokens(16, 300), "", {3, ""});
  EXPECT_EQ(affinity.size(), 2u);
  EXPECT_TRUE(affinity.Find(Tokens(16, 100), "").has_value());
  EXPECT_FALSE(affinity.Find(Tokens(16, 200), "").has_value());
  affinity.Remember(Tokens(16, 100), "", {4, ""});
  EXPECT_EQ(affinity.size(), 2u);
  EXPECT_EQ(affinity.Find(Tokens(16, 100), "")->worker, 4u);
}

}  // namespace
}  // namespace baton::server
