#include "text/tokenizer.h"

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/rng.h"
#include "gtest/gtest.h"
#include "text/utf8.h"

namespace baton {
namespace {

const std::string kTestdata = std::string(BATON_SOURCE_DIR) + "/src/text/testdata/";

Json ReadData(const std::string& name) {
  auto json = ReadJsonFile(kTestdata + name);
  EXPECT_TRUE(json.ok()) << json.status();
  return json.ok() ? *std::move(json) : Json();
}

std::unique_ptr<Tokenizer> Make(const Json& file) {
  auto made = Tokenizer::FromJson(file.dump());
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? *std::move(made) : nullptr;
}

std::string DecodeInSteps(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                          bool skip_special) {
  IncrementalDecoder decoder(&tokenizer, skip_special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.Push(id);
    EXPECT_TRUE(IsValidUtf8(part)) << "half a code point";
    text += part;
  }
  return text + decoder.Finish();
}

// Every variant of the two vocabularies against the Rust library's answers.
TEST(Tokenizer, AgreesWithTheRustLibrary) {
  const Json cases = ReadData("tokenizer_cases.json");
  ASSERT_GE(cases["variants"].size(), 40u);
  for (const Json& variant : cases["variants"]) {
    Json file = ReadData(variant["base"].get<std::string>() + ".json");
    file.merge_patch(variant["patch"]);
    const auto tokenizer = Make(file);
    ASSERT_NE(tokenizer, nullptr) << variant["name"];
    for (size_t i = 0; i < cases["texts"].size(); ++i) {
      const std::string text = cases["texts"][i];
      const Json& expected = variant["results"][i];
      SCOPED_TRACE(variant["base"].get<std::string>() + " " + variant["name"].get<std::string>() +
                   " " + cases["texts"][i].dump());
      const auto ids = expected["ids"].get<std::vector<TokenId>>();
      EXPECT_EQ(*tokenizer->Encode(text), ids);
      const auto bare = expected.value("bare", ids);
      EXPECT_EQ(*tokenizer->Encode(text, {false, true}), bare);
      EXPECT_EQ(*tokenizer->Encode(text, {false, false}), expected.value("as_text", bare));
      const std::string decoded = expected.value("decoded", text);
      EXPECT_EQ(tokenizer->Decode(ids, false), decoded);
      EXPECT_EQ(tokenizer->Decode(ids, true), expected.value("skipped", decoded));
      EXPECT_EQ(DecodeInSteps(*tokenizer, ids, false), decoded);
      EXPECT_EQ(DecodeInSteps(*tokenizer, ids, true), expected.value("skipped", decoded));
    }
  }
}

TEST(Tokenizer, ByteLevelRoundTripsAnyText) {
  const auto tokenizer = Make(ReadData("byte_level.json"));
  SplitMix64 rng(11);
  for (int round = 0; round < 200; ++round) {
    std::string bytes;
    for (uint64_t n = rng.Below(200); n > 0; --n) bytes.push_back(static_cast<char>(rng.Next()));
    const auto ids = *tokenizer->Encode(bytes, {false, false});
    // Broken UTF-8 is replaced before encoding.
    EXPECT_EQ(tokenizer->Decode(ids, false), ReplaceInvalidUtf8(bytes));
  }
}

TEST(Tokenizer, DecodingInStepsEqualsDecodingAtOnceForAnyIds) {
  for (const char* name : {"byte_level.json", "metaspace.json"}) {
    const auto tokenizer = Make(ReadData(name));
    SplitMix64 rng(5);
    for (int round = 0; round < 500; ++round) {
      std::vector<TokenId> ids;
      for (uint64_t n = rng.Below(40); n > 0; --n) {
        ids.push_back(static_cast<TokenId>(rng.Below(tokenizer->vocab_size() + 3)));
      }
      for (const bool skip : {false, true}) {
        const std::string whole = tokenizer->Decode(ids, skip);
        EXPECT_TRUE(IsValidUtf8(whole));
        EXPECT_EQ(DecodeInSteps(*tokenizer, ids, skip), whole);
      }
    }
  }
}

TEST(Tokenizer, HoldsBackExactlyTheIncompleteCodePoint) {
  const auto tokenizer = Make(ReadData("byte_level.json"));
  IncrementalDecoder decoder(tokenizer.get(), true);
  const auto byte = [&](const char* letters) { return *tokenizer->TokenToId(letters); };
  EXPECT_EQ(decoder.Push(byte("h")), "h");
  // U+1F642 is F0 9F 99 82.
  EXPECT_EQ(decoder.Push(byte("ð")), "");
  EXPECT_EQ(decoder.Push(byte("Ł")), "");
  EXPECT_EQ(decoder.Push(byte("Ļ")), "");
  EXPECT_EQ(decoder.Push(byte("Ĥ")), "🙂");
  // A lead byte that something else follows is certain to be wrong.
  EXPECT_EQ(decoder.Push(byte("ð")), "");
  EXPECT_EQ(decoder.Push(byte("h")), "\xEF\xBF\xBDh");
  EXPECT_EQ(decoder.Push(byte("ð")), "");
  EXPECT_EQ(decoder.Finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(Tokenizer, KnowsItsTokens) {
  const auto tokenizer = Make(ReadData("byte_level.json"));
  const TokenId end = *tokenizer->TokenToId("<|im_end|>");
  EXPECT_TRUE(tokenizer->IsSpecial(end));
  EXPECT_EQ(tokenizer->IdToToken(end), "<|im_end|>");
  EXPECT_FALSE(tokenizer->TokenToId("no such token").has_value());
  EXPECT_EQ(tokenizer->IdToToken(*tokenizer->TokenToId("Ġt")), " t");
  EXPECT_EQ(tokenizer->IdToToken(*tokenizer->TokenToId("ð")), "\xF0");
  EXPECT_EQ(tokenizer->IdToToken(1 << 30), "");
  EXPECT_FALSE(tokenizer->IsSpecial(1 << 30));
  EXPECT_EQ(tokenizer->vocab_size(), 520u);
  EXPECT_EQ(tokenizer->Decode(std::vector<TokenId>{1u << 30, end}, true), "");
  const auto metaspace = Make(ReadData("metaspace.json"));
  EXPECT_EQ(metaspace->IdToToken(*metaspace->TokenToId("<0x0A>")), "\n");
}

// A word of half a megabyte: in quadratic time this test would not end.
TEST(Tokenizer, LongWordsTakeLinearithmicTime) {
  SplitMix64 rng(3);
  std::string letters, repeated(1 << 19, 'a'), spaces(1 << 19, ' ');
  for (int i = 0; i < 1 << 19; ++i) letters.push_back(static_cast<char>('a' + rng.Below(26)));
  for (const char* name : {"byte_level.json", "metaspace.json"}) {
    const auto tokenizer = Make(ReadData(name));
    for (const std::string* text : {&letters, &repeated, &spaces}) {
      const auto ids = *tokenizer->Encode(*text, {false, false});
      EXPECT_LE(ids.size(), text->size());
      EXPECT_EQ(tokenizer->Decode(ids, false), *text);
    }
  }
}

TEST(Tokenizer, MayBeSharedByThreads) {
  const auto tokenizer = Make(ReadData("byte_level.json"));
  const std::string text = "It's the état 状態 of 12345 tokens.\n\n  <|im_end|>";
  const auto expected = *tokenizer->Encode(text);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 100; ++round) {
        EXPECT_EQ(*tokenizer->Encode(text), expected);
        EXPECT_EQ(DecodeInSteps(*tokenizer, expected, false), text);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Tokenizer, RefusesWhatItDoesNotUnderstandByPath) {
  struct Case {
    std::function<void(Json*)> change;
    std::string path;
    std::string reason;
  };
  const auto set = [](const char* pointer, const Json& value) {
    return [=](Json* file) { (*file)[Json::json_pointer(pointer)] = value; };
  };
  const Case cases[] = {
      {set("/model/type", "Unigram"), "/model/type", "Unigram"},
      {set("/model/dropout", 0.1), "/model/dropout", "dropout"},
      {set("/model/continuing_subword_prefix", "##"), "/model/continuing_subword_prefix", ""},
      {set("/model/end_of_word_suffix", "</w>"), "/model/end_of_word_suffix", ""},
      {set("/model/cache", 1), "/model", "cache"},
      {set("/model/vocab/zzz", -1), "/model/vocab", "-1"},
      {set("/model/vocab/zzz", 5), "/model/vocab", "both"},
      {set("/model/vocab/zzz", "x"), "/model/vocab", "zzz"},
      {set("/model/merges/0", "a b c"), "/model/merges", "entry 0"},
      {set("/model/merges/0", "qqq zzz"), "/model/merges/0", "qqq"},
      {set("/model/merges/0", 7), "/model/merges", "entry 0"},
      {set("/model/unk_token", "<nope>"), "/model/unk_token", "<nope>"},
      {set("/normalizer", Json{{"type", "Precompiled"}}), "/normalizer", "Precompiled"},
      {set("/normalizer", Json{{"type", "NFC"}, {"x", 1}}), "/normalizer", "\"x\""},
      {set("/pre_tokenizer/pretokenizers/1", Json{{"type", "BertPreTokenizer"}}),
       "/pre_tokenizer/pretokenizers/1", "BertPreTokenizer"},
      {set("/pre_tokenizer/pretokenizers/0/behavior", "Sideways"),
       "/pre_tokenizer/pretokenizers/0/behavior", "Sideways"},
      {set("/pre_tokenizer/pretokenizers/0/pattern", Json{{"Regex", "[a&&b]"}}),
       "/pre_tokenizer/pretokenizers/0/pattern", "intersections"},
      {set("/pre_tokenizer/pretokenizers/0/pattern", Json{{"Regex", "[a[b]]"}}),
       "/pre_tokenizer/pretokenizers/0/pattern", "nested"},
      {set("/pre_tokenizer/pretokenizers/0/pattern", Json{{"Regex", "\\bx"}}),
       "/pre_tokenizer/pretokenizers/0/pattern", "\\b"},
      {set("/pre_tokenizer/pretokenizers/0/pattern", Json{{"Regex", "("}}),
       "/pre_tokenizer/pretokenizers/0/pattern", "parenthes"},
      {set("/decoder", Json{{"type", "WordPiece"}}), "/decoder", "WordPiece"},
      {set("/post_processor", Json{{"type", "BertProcessing"}}), "/post_processor",
       "BertProcessing"},
      {set("/added_tokens/0/id", 7), "/added_tokens/0", "has the ids"},
      {set("/added_tokens/0/content", 7), "/added_tokens/0/content", "string"},
      {set("/version", "2.0"), "/version", "2.0"},
      {set("/something", 1), "/", "something"},
      {[](Json* file) { file->erase("model"); }, "/", "model"},
  };
  for (const Case& c : cases) {
    Json file = ReadData("byte_level.json");
    c.change(&file);
    const auto made = Tokenizer::FromJson(file.dump());
    ASSERT_FALSE(made.ok()) << c.path << " " << c.reason;
    const std::string message(made.status().message());
    EXPECT_NE(message.find(c.path), std::string::npos) << message;
    EXPECT_NE(message.find(c.reason), std::string::npos) << message;
  }
  EXPECT_FALSE(Tokenizer::FromJson("").ok());
  EXPECT_FALSE(Tokenizer::FromJson("{").ok());
  EXPECT_FALSE(Tokenizer::FromJson("[]").ok());
  EXPECT_TRUE(absl::IsNotFound(Tokenizer::FromFile("/no/such/tokenizer.json").status()));
}

TEST(Tokenizer, MergesMayBePairs) {
  Json file = ReadData("byte_level.json");
  const auto reference = Make(file);
  for (Json& merge : file["model"]["merges"]) {
    if (merge.is_array()) {
      merge = merge[0].get<std::string>() + " " + merge[1].get<std::string>();
    } else {
      const std::string text = merge;
      merge = {text.substr(0, text.find(' ')), text.substr(text.find(' ') + 1)};
    }
  }
  const auto other = Make(file);
  EXPECT_EQ(*other->Encode("The state of a sequence"), *reference->Encode("The state of a sequence"));
}

}  // namespace
}  // namespace baton
