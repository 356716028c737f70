// How many megabytes of text a second of processor time does one thread encode, by vocabulary and
// kind of text?
//
//   tokenizer_bench [ROUNDS] [VOCABULARIES]
//
// Vocabularies: the demo model's, and those that tools/fetch_vocabularies.sh has put into
// build/vocabularies (or the folder named). Texts are the repository's own: documents, sources, and
// the multilingual cases of the tokenizer tests. The result is checked: what was encoded decodes to
// the same text. Reported are the median and the range of the rounds, and tokens per byte.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "text/tokenizer.h"

namespace baton {
namespace {

namespace fs = std::filesystem;
constexpr size_t kTextBytes = size_t{1} << 20;

const std::string kRoot = BATON_SOURCE_DIR;

// Seconds of processor time of this thread: other programs on the machine do not count.
double ThreadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// All files of these endings below `dir`, in order of their paths, repeated to kTextBytes.
std::string Gather(const std::string& dir, const std::vector<std::string>& endings) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(dir)) {
    const std::string ending = entry.path().extension().string();
    if (entry.is_regular_file() && std::count(endings.begin(), endings.end(), ending) > 0)
      paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths)
    text += ReadFileBytes(path, size_t{1} << 24).value_or(std::string());
  return text;
}

std::string Multilingual() {
  const auto json = ReadJsonFile(kRoot + "/src/text/testdata/tokenizer_cases.json");
  std::string text;
  if (!json.ok()) return text;
  for (const Json& t : (*json)["texts"]) text += t.get<std::string>() + "\n";
  return text;
}

std::string Filled(std::string text) {
  BATON_CHECK(!text.empty());
  std::string out;
  while (out.size() < kTextBytes) out += text;
  return out;
}

void Run(const std::string& name,
         const Tokenizer& tokenizer,
         int rounds,
         const std::vector<std::pair<const char*, std::string>>& texts) {
  for (const auto& [kind, text] : texts) {
    std::vector<double> rates;
    size_t tokens = 0;
    for (int round = 0; round < rounds; ++round) {
      const double start = ThreadSeconds();
      const auto ids = tokenizer.Encode(text, {false, false});
      const double took = ThreadSeconds() - start;
      BATON_CHECK(ids.ok());
      rates.push_back(static_cast<double>(text.size()) / 1e6 / took);
      tokens = ids->size();
      if (round == 0 && tokenizer.Decode(*ids, false) != text)
        std::printf("note: %s does not give %s back as it was (it normalizes)\n", name.c_str(),
                    kind);
    }
    std::sort(rates.begin(), rates.end());
    std::printf("%-10s %-14s %7.1f MB/s (%.1f to %.1f), %.2f bytes a token\n", name.c_str(), kind,
                rates[rates.size() / 2], rates.front(), rates.back(),
                static_cast<double>(text.size()) / static_cast<double>(tokens));
  }
}

int Main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 5;
  const std::string folder = argc > 2 ? argv[2] : kRoot + "/build/vocabularies";
  const std::vector<std::pair<const char*, std::string>> texts = {
      {"documents", Filled(Gather(kRoot + "/docs", {".md"}))},
      {"sources", Filled(Gather(kRoot + "/src/text", {".cc", ".h"}))},
      {"multilingual", Filled(Multilingual())},
  };
  std::vector<std::pair<std::string, std::string>> places = {{"demo", kRoot + "/models/demo"}};
  for (const char* name : {"qwen3", "llama3", "gemma3", "mistral"})
    places.emplace_back(name, folder + "/" + name);
  for (const auto& [name, dir] : places) {
    const double start = ThreadSeconds();
    const auto tokenizer = Tokenizer::FromModelDir(dir);
    const double took = ThreadSeconds() - start;
    if (!tokenizer.ok()) {
      std::printf("%-10s not measured: %s\n", name.c_str(),
                  std::string(tokenizer.status().message()).c_str());
      continue;
    }
    std::printf("%-10s loaded in %.0f ms\n", name.c_str(), took * 1e3);
    Run(name, **tokenizer, rounds, texts);
  }
  return 0;
}

}  // namespace
}  // namespace baton

int main(int argc, char** argv) { return baton::Main(argc, argv); }
