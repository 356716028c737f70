// Published chat templates against renderings by jinja2. The templates are not part of the
// repository (their licences are the models'): BATON_TEMPLATES_DIR names a folder with *.jinja
// files and expected.json {clock, special, cases: {name: arguments}, expected: {file: {case: {text}
// or {error}}}}.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "gtest/gtest.h"
#include "text/chat_template.h"

namespace baton {
namespace {

// Five families, ten cases each: a folder with fewer is not the one that was meant.
constexpr int kRenderings = 50;

std::tm ParseClock(const std::string& text) {
  std::tm now{};
  strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &now);
  return now;
}

TEST(PublishedTemplates, RenderAsJinja2Does) {
  const char* named = std::getenv("BATON_TEMPLATES_DIR");
  if (named == nullptr)
    GTEST_SKIP()
        << "published templates are not tested; set BATON_TEMPLATES_DIR to a folder of them";
  const std::string dir = named;
  const auto bytes = ReadFileBytes(dir + "/expected.json", 1 << 24);
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  const auto parsed = ParseJsonOrdered(*bytes);
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  const OrderedJson& all = *parsed;
  SpecialTokens special;
  for (const auto& [name, token] : all["special"].items()) special[name] = token;
  int checked = 0;
  for (const auto& [file, by_case] : all["expected"].items()) {
    const auto source = ReadFileBytes(dir + "/" + file, 1 << 24);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto chat = ChatTemplate::FromString(*source, special);
    ASSERT_TRUE(chat.ok()) << file << ": " << chat.status();
    for (const auto& [name, expected] : by_case.items()) {
      SCOPED_TRACE(file + " " + name);
      RenderOptions options;
      options.now = ParseClock(all["clock"]);
      options.extra = OrderedJson::object();
      OrderedJson messages;
      for (const auto& [key, value] : all["cases"][name].items()) {
        if (key == "messages") {
          messages = value;
        } else if (key == "tools") {
          options.tools = value;
        } else if (key == "add_generation_prompt") {
          options.add_generation_prompt = value;
        } else {
          options.extra[key] = value;
        }
      }
      const auto text = chat->Render(messages, options);
      ++checked;
      if (expected.contains("error")) {
        ASSERT_FALSE(text.ok()) << *text;
        EXPECT_NE(text.status().message().find(expected["error"].get<std::string>()),
                  std::string::npos)
            << text.status() << " instead of " << expected["error"];
      } else {
        ASSERT_TRUE(text.ok()) << text.status();
        EXPECT_EQ(*text, expected["text"].get<std::string>());
      }
    }
  }
  EXPECT_EQ(checked, kRenderings);
  std::printf("%d renderings\n", checked);
  RecordProperty("checked", checked);
}

}  // namespace
}  // namespace baton
