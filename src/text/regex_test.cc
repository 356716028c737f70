#include "text/regex.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "text/utf8.h"

namespace baton {
namespace {

std::vector<std::string> Matches(const std::string& pattern, const std::string& text) {
  const auto regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status();
  std::vector<std::string> out;
  if (!regex.ok()) return out;
  const auto found = regex->FindAll(text);
  EXPECT_TRUE(found.ok()) << found.status();
  if (!found.ok()) return out;
  for (const TextRange& m : *found) {
    out.push_back(text.substr(m.begin, m.end - m.begin));
  }
  return out;
}
using Texts = std::vector<std::string>;

TEST(Regex, FindsAllFromLeftToRight) {
  EXPECT_EQ(Matches("\\p{L}+|\\p{N}{1,3}", "ab1234é 漢"), (Texts{"ab", "123", "4", "é", "漢"}));
  EXPECT_EQ(Matches("\\s+(?!\\S)|\\s+", "a   b  "), (Texts{"  ", " ", "  "}));
  EXPECT_EQ(Matches("(?i:'s|'LL)", "it'S we'll 'ſ"), (Texts{"'S", "'ll", "'ſ"}));
  EXPECT_EQ(Matches("[^\\r\\n\\p{L}]?+\\p{L}++", "a b\nc"), (Texts{"a", " b", "c"}));
  EXPECT_EQ(Matches("x*", "axé"), (Texts{"", "x", ""}));
  EXPECT_EQ(Matches("^b$", "a\nb\nc"), (Texts{"b"}));
  EXPECT_EQ(Matches("[]a]", "]a[]"), (Texts{"]", "a", "]"}));
}

// The sets Oniguruma has, where PCRE2's differ.
TEST(Regex, ClassesAreOnigurumas) {
  EXPECT_EQ(Matches("\\s", "\u180e\u0085\u3000\u200b"), (Texts{"\u0085", "\u3000"}));
  EXPECT_EQ(Matches("[^\\s]", "\u180e \u0085"), (Texts{"\u180e"}));
  EXPECT_EQ(Matches("\\S", "\u180e \u0085"), (Texts{"\u180e"}));
  EXPECT_EQ(Matches("\\w+", "e\u0301_\u203f½②Ⅷ x"), (Texts{"e\u0301_\u203f½", "Ⅷ", "x"}));
  EXPECT_EQ(Matches("\\d+", "1２٣½"), (Texts{"1２٣"}));
}

TEST(Regex, LiteralMatchesItself) {
  const auto regex = Regex::Literal(".*é[");
  ASSERT_TRUE(regex.ok()) << regex.status();
  EXPECT_EQ(regex->FindAll("x.*é[.*é[")->size(), 2u);
}

TEST(Regex, RefusesWhatReadsDifferently) {
  for (const char* pattern : {"[a&&b]", "[a[b]]", "[[:alpha:]]", "\\bx", "\\hx", "(?m)a", "(?<n>a)",
                              "(*ACCEPT)", "[^\\S]", "\\1", "a\\"}) {
    EXPECT_FALSE(Regex::Compile(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(Regex::Compile("(").ok());
  EXPECT_FALSE(Regex::Compile("\xff").ok());
}

// Backtracking that exhausts the matcher must not hang, crash, or split the text differently.
TEST(Regex, CatastrophicPatternsEndWithAnError) {
  const auto regex = Regex::Compile("(a+)+$");
  ASSERT_TRUE(regex.ok());
  const auto matches = regex->FindAll(std::string(40, 'a') + "b");
  ASSERT_FALSE(matches.ok());
  EXPECT_EQ(matches.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(matches.status().message().find("gave up at byte 0"), absl::string_view::npos)
      << matches.status();
  const auto nested = Regex::Compile("(?:a|b|c|d)*e");
  ASSERT_TRUE(nested.ok());
  const auto one = nested->FindAll(std::string(1 << 20, 'a') + "e");
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->size(), 1u);
}

}  // namespace
}  // namespace baton
