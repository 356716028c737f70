// Stands in for libFuzzer where it is not: feeds a fuzz target every file of its corpus, and a
// number of mutations of each drawn from fixed seeds. It is linked with one target; a finding
// aborts.
//
//   seal_fuzz_replay DIRECTORY [MUTATIONS]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

Bytes Read(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return Bytes(std::istreambuf_iterator<char>(in), {});
}

// A few of: flip a bit, set a byte, overwrite with an edge value, cut, repeat, splice.
Bytes Mutated(Bytes bytes, const Bytes& other, std::mt19937_64* rng) {
  const auto below = [&](size_t n) {
    return static_cast<size_t>((*rng)() % std::max<size_t>(n, 1));
  };
  for (size_t steps = 1 + below(4); steps > 0 && !bytes.empty(); --steps) {
    const size_t at = below(bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] ^= static_cast<uint8_t>(1u << below(8));
        break;
      case 1:
        bytes[at] = static_cast<uint8_t>((*rng)());
        break;
      case 2: {
        constexpr uint64_t kEdges[] = {0,     1,          15,         16,          255,
                                       65535, 0x7fffffff, 0xffffffff, ~uint64_t{0}};
        const uint64_t value = kEdges[below(std::size(kEdges))];
        for (size_t i = 0, n = size_t{1} << below(4); i < n && at + i < bytes.size(); ++i)
          bytes[at + i] = static_cast<uint8_t>(value >> (8 * i));
        break;
      }
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.insert(bytes.begin() + at, 1 + below(40), static_cast<uint8_t>((*rng)()));
        break;
      default:
        bytes.resize(at);
        if (!other.empty())
          bytes.insert(bytes.end(), other.begin() + below(other.size()), other.end());
    }
  }
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: %s DIRECTORY [MUTATIONS]\n", argv[0]);
    return 2;
  }
  const int mutations = argc > 2 ? std::atoi(argv[2]) : 0;
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1]))
    if (entry.is_regular_file()) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  if (files.empty()) {
    std::fprintf(stderr, "%s: no corpus\n", argv[1]);
    return 1;
  }
  std::vector<Bytes> corpus;
  for (const auto& file : files) corpus.push_back(Read(file));
  long runs = 0;
  std::mt19937_64 rng(20240229);
  for (const Bytes& bytes : corpus) {
    LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
    ++runs;
    for (int i = 0; i < mutations; ++i, ++runs) {
      const Bytes mutated = Mutated(bytes, corpus[rng() % corpus.size()], &rng);
      LLVMFuzzerTestOneInput(mutated.data(), mutated.size());
    }
  }
  std::printf("%s: %zu files, %ld runs\n", argv[1], files.size(), runs);
  return 0;
}
