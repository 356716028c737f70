// SentencePiece models (testdata/make_sentencepiece_testdata.py) against the library's own answers,
// and what is done around it: added tokens, BOS, decoding in steps.
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/rng.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "text/generation_config.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace baton {
namespace {

using testing::HasSubstr;

const std::string kDir = std::string(BATON_SOURCE_DIR) + "/src/text/testdata/sentencepiece/";

std::unique_ptr<Tokenizer> Load(const std::string& dir) {
  auto made = Tokenizer::FromModelDir(dir);
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

std::string DecodeInSteps(const Tokenizer& tokenizer, const std::vector<TokenId>& ids, bool skip) {
  IncrementalDecoder decoder(&tokenizer, skip);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(part)) << "half a code point";
    text += part;
  }
  return text + decoder.Finish();
}

TEST(SentencePiece, EncodesAsTheLibraryAndDecodesInSteps) {
  for (const char* kind : {"bpe", "unigram"}) {
    const auto tokenizer = Load(kDir + kind);
    ASSERT_NE(tokenizer, nullptr);
    const auto cases = ReadJsonFile(kDir + kind + "/expected.json");
    ASSERT_TRUE(cases.ok()) << cases.status();
    for (const Json& c : *cases) {
      SCOPED_TRACE(std::string(kind) + " " + c["text"].dump());
      const auto ids = c["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(*tokenizer->Encode(c["text"].get<std::string>(), {false, true}), ids);
      std::vector<TokenId> with = {*tokenizer->TokenToId("<s>")};
      with.insert(with.end(), ids.begin(), ids.end());
      EXPECT_EQ(*tokenizer->Encode(c["text"].get<std::string>()), with);
      const std::string decoded = tokenizer->Decode(ids, false);
      EXPECT_EQ(DecodeInSteps(*tokenizer, ids, false), decoded);
      EXPECT_EQ(DecodeInSteps(*tokenizer, with, true), tokenizer->Decode(ids, true));
      // Where every character has a token or a byte; the library prints what has none as " ⁇ ".
      if (std::string(kind) == "bpe") {
        EXPECT_EQ(decoded, c["decoded"].get<std::string>());
      }
    }
  }
}

TEST(SentencePiece, ControlTokensAreRecognisedAndUserTokensAreTheModels) {
  const auto tokenizer = Load(kDir + "bpe");
  ASSERT_NE(tokenizer, nullptr);
  const TokenId end = *tokenizer->TokenToId("<end>");
  const TokenId turn = *tokenizer->TokenToId("<turn>");
  EXPECT_TRUE(tokenizer->IsSpecial(end));
  EXPECT_FALSE(tokenizer->IsSpecial(turn));
  const auto ids = *tokenizer->Encode("a<turn>b<end>", {false, true});
  EXPECT_EQ(ids.back(), end);
  EXPECT_NE(std::find(ids.begin(), ids.end(), turn), ids.end());
  EXPECT_EQ(tokenizer->Decode(ids, false), "a<turn>b<end>");
  EXPECT_EQ(tokenizer->Decode(ids, true), "a<turn>b");
  const auto text = *tokenizer->Encode("<end>", {false, false});
  EXPECT_EQ(std::find(text.begin(), text.end(), end), text.end());
  EXPECT_EQ(tokenizer->Decode(text, false), "<end>");
}

TEST(SentencePiece, AnyIdsDecodeInStepsAsAtOnce) {
  const auto tokenizer = Load(kDir + "bpe");
  SplitMix64 rng(5);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids;
    for (uint64_t n = rng.Below(40); n > 0; --n)
      ids.push_back(static_cast<TokenId>(rng.Below(tokenizer->vocab_size() + 3)));
    EXPECT_EQ(DecodeInSteps(*tokenizer, ids, round % 2 == 0),
              tokenizer->Decode(ids, round % 2 == 0));
  }
}

TEST(SentencePiece, TokenizerConfigAddsTokensAndDecidesAboutBos) {
  const std::string dir = testing::TempDir() + "/baton_sentencepiece_test";
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  EXPECT_TRUE(absl::IsNotFound(Tokenizer::FromModelDir(dir).status()));
  std::filesystem::copy_file(kDir + "bpe/tokenizer.model", dir + "/tokenizer.model");
  const auto write = [&](const std::string& text) {
    std::ofstream(dir + "/tokenizer_config.json") << text;
  };
  write(R"({"add_bos_token": false, "add_eos_token": true, "eos_token": "<|im_end|>",
           "added_tokens_decoder": {"420": {"content": "<|im_end|>", "special": true}}})");
  const auto tokenizer = Load(dir);
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->vocab_size(), 421u);
  const auto ids = *tokenizer->Encode("the<|im_end|>");
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids[ids.size() - 2], 420u);
  EXPECT_EQ(ids.back(), *tokenizer->TokenToId("</s>"));
  EXPECT_EQ(ReadGenerationDefaults(dir, tokenizer.get())->eos_token_ids, std::vector<TokenId>{420});
  for (const char* bad : {"[]", "{", R"({"add_bos_token": 1})",
                          R"({"added_tokens_decoder": {"x": {"content": "a"}}})",
                          R"({"added_tokens_decoder": {"9": 5}})",
                          R"({"added_tokens_decoder": {"99999999": {"content": "a"}}})"}) {
    write(bad);
    EXPECT_TRUE(absl::IsInvalidArgument(Tokenizer::FromModelDir(dir).status())) << bad;
  }
  write("{}");
  for (const char* bad : {"", "no model", "\n\x05\n\x03"}) {
    std::ofstream(dir + "/tokenizer.model") << bad;
    const auto made = Tokenizer::FromModelDir(dir);
    ASSERT_TRUE(absl::IsInvalidArgument(made.status())) << made.status();
    EXPECT_THAT(std::string(made.status().message()), HasSubstr("tokenizer.model"));
  }
  std::filesystem::remove_all(dir);
}

}  // namespace
}  // namespace baton
