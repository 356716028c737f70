#include "base/json.h"

#include <filesystem>
#include <fstream>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace baton {
namespace {

constexpr double kMax = std::numeric_limits<double>::max();

TEST(ParseJsonLenient, ReplacesBareTokensOutsideStrings) {
  const auto v = ParseJsonLenient(
      R"({"time_step_limit":[0.0, Infinity], "low": -Infinity, "n": NaN, "big": 1e308,
          "text": "Infinity NaN \" -Infinity", "Infinity": 1})");
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ((*v)["time_step_limit"][1].get<double>(), kMax);
  EXPECT_EQ((*v)["low"].get<double>(), -kMax);
  EXPECT_TRUE((*v)["n"].is_null());
  EXPECT_EQ((*v)["big"].get<double>(), 1e308);
  EXPECT_EQ((*v)["text"].get<std::string>(), "Infinity NaN \" -Infinity");
  EXPECT_EQ((*v)["Infinity"].get<int>(), 1);
}

TEST(ParseJsonLenient, DoesNotRelaxAnythingElse) {
  for (const char* bad :
       {"", "{", "[1,]", "{'a':1}", "nan", "inf", "Infinityx", "xNaN", "-NaN", "[1 2]", "\"\xff\"",
        "{\"a\":1}x", "[.5]", "1e999", "//c\n1", "\"abc", "]", "\"\\"}) {
    EXPECT_FALSE(ParseJsonLenient(bad).ok()) << bad;
  }
}

TEST(ParseJsonLenient, NamesTheByteOffsetInTheGivenText) {
  const auto plain = ParseJsonLenient("[1, x]");
  EXPECT_NE(plain.status().message().find("at byte 4"), std::string::npos) << plain.status();
  // Both replacements are longer than what they replace; the offset must not move.
  const auto shifted = ParseJsonLenient("[Infinity, NaN, x]");
  EXPECT_NE(shifted.status().message().find("at byte 16"), std::string::npos) << shifted.status();
}

TEST(ParseJsonLenient, LimitsDepth) {
  const std::string deep(100000, '[');
  EXPECT_FALSE(ParseJsonLenient(deep).ok());
  const std::string at_limit = std::string(kJsonDepthMax, '[') + std::string(kJsonDepthMax, ']');
  EXPECT_TRUE(ParseJsonLenient(at_limit).ok());
  EXPECT_FALSE(ParseJsonLenient("[" + at_limit + "]").ok());
  EXPECT_TRUE(ParseJsonLenient("[\"" + deep + "\"]").ok());
}

TEST(ParseJsonOrdered, KeepsOrderAndIsStrict) {
  const auto v = ParseJsonOrdered(R"({"b":1,"a":{"z":1,"y":2}})");
  ASSERT_TRUE(v.ok()) << v.status();
  EXPECT_EQ(DumpJson(*v), R"({"b":1,"a":{"z":1,"y":2}})");
  EXPECT_FALSE(ParseJsonOrdered("[Infinity]").ok());
}

TEST(ParseJsonOrdered, LimitsMembersPerObject) {
  const auto object = [](size_t n) {
    std::string s = "{";
    for (size_t i = 0; i < n; ++i) s += (i ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
    return s + "}";
  };
  EXPECT_TRUE(ParseJsonOrdered(object(kOrderedJsonMembersMax)).ok());
  EXPECT_FALSE(ParseJsonOrdered(object(kOrderedJsonMembersMax + 1)).ok());
  EXPECT_TRUE(ParseJsonLenient(object(kOrderedJsonMembersMax + 1)).ok());
}

TEST(DumpJson, ReplacesBrokenUtf8) { EXPECT_EQ(DumpJson(Json("a\xff")), "\"a\xEF\xBF\xBD\""); }

TEST(ReadJsonFile, NamesThePath) {
  const std::string path = testing::TempDir() + "/baton_json_test.json";
  std::ofstream(path) << "{\"a\": Infinity";
  const auto broken = ReadJsonFile(path);
  EXPECT_NE(broken.status().message().find(path), std::string::npos);
  EXPECT_TRUE(absl::IsNotFound(ReadJsonFile(path + ".absent").status()));
  EXPECT_FALSE(ReadJsonFile(path, 3).ok());
  EXPECT_FALSE(ReadJsonFile(testing::TempDir()).ok());
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace baton
