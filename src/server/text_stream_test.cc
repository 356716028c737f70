#include "server/text_stream.h"

#include "base/rng.h"
#include "gtest/gtest.h"
#include "server/fake_text.h"

namespace baton::server {
namespace {

struct Outcome {
  std::string text;
  std::string stop;
  bool operator==(const Outcome&) const = default;
};

Outcome Feed(const std::string& text, TextStream::Options options) {
  const FakeText frontend;
  TextStream stream(frontend.NewDecoder(true), std::move(options));
  Outcome outcome;
  for (const char c : text) {
    outcome.text += stream.Push(static_cast<uint8_t>(c));
    if (stream.stopped()) break;
  }
  outcome.text += stream.Finish();
  if (stream.stopped()) outcome.stop = stream.stop_string();
  return outcome;
}

// The obvious definition: read characters one by one and stop at the first moment when the text
// ends with a stop string; of several the longest.
Outcome Reference(const std::string& text, const std::vector<std::string>& stops, bool include) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (end >= stop.size() && text.compare(end - stop.size(), stop.size(), stop) == 0 &&
          (best == nullptr || stop.size() > best->size())) {
        best = &stop;
      }
    }
    if (best != nullptr) return {text.substr(0, include ? end : end - best->size()), *best};
  }
  return {text, ""};
}

TEST(TextStream, EqualsTheReferenceOnRandomTexts) {
  SplitMix64 rng(1);
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t i = rng.Below(30); i > 0; --i)
      text.push_back(static_cast<char>('a' + rng.Below(3)));
    std::vector<std::string> stops(1 + rng.Below(3));
    for (auto& stop : stops)
      for (uint64_t i = 1 + rng.Below(5); i > 0; --i)
        stop.push_back(static_cast<char>('a' + rng.Below(3)));
    const bool include = rng.Below(2) == 0;
    const Outcome expected = Reference(text, stops, include);
    ASSERT_EQ(Feed(text, {stops, include, 0}), expected) << text << " / " << stops[0];
  }
}

TEST(TextStream, HoldsBackNoMoreThanNeeded) {
  const FakeText frontend;
  TextStream stream(frontend.NewDecoder(true), {{"###"}, false, 0});
  EXPECT_EQ(stream.Push('a'), "a");
  EXPECT_EQ(stream.Push('#'), "");
  EXPECT_EQ(stream.Push('#'), "");
  EXPECT_EQ(stream.Push('b'), "##b");
  EXPECT_EQ(stream.Push('#'), "");
  EXPECT_EQ(stream.Finish(), "#");
}

TEST(TextStream, StopStringOfWideCharacters) {
  EXPECT_EQ(Feed("hi \xE2\x80\xA6 x", {{"\xE2\x80\xA6"}, false, 0}),
            (Outcome{"hi ", "\xE2\x80\xA6"}));
}

}  // namespace
}  // namespace baton::server
