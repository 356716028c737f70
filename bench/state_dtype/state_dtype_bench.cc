// Question: what does a recurrent state in fewer bits cost in likeness to f32, by where it is
// rounded: after every token, once per grid step of 16, or once at rest (a session that is put away
// and resumed every --rest tokens)? On a synthetic recurrence with decay near 1, and on a model by
// the divergence of its next-token distributions over one long text. And what does the state
// advance of the narrow forms take beside that of f32?
//
//   state_dtype_bench [--tokens N] [--rest N] [--model DIR] [--text FILE] [--threads N]
//                     [--only synthetic|model|decode] [--few 0|1]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "decode.h"
#include "divergence.h"
#include "model/model.h"
#include "model/sequence_memory.h"
#include "rounding.h"
#include "synthetic.h"
#include "text/tokenizer.h"

namespace baton::bench {
namespace {

struct Flags {
  int64_t tokens = 4096;
  int64_t rest = 1024;
  std::string model = std::string(BATON_SOURCE_DIR) + "/models/demo";
  std::string text;  // empty: the project's own documents
  int threads = 1;
  std::string only;
  bool few = false;  // of the policies, the model runs those that decide: far quicker
};

template <class T>
T Or(StatusOr<T> v) {
  if (v.ok()) return *std::move(v);
  std::fprintf(stderr, "%s\n", std::string(v.status().message()).c_str());
  std::exit(1);
}

std::string Text(const Flags& f) {
  constexpr size_t kMax = size_t{64} << 20;
  if (!f.text.empty()) return Or(ReadFileBytes(f.text, kMax));
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(std::string(BATON_SOURCE_DIR) + "/docs"))
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::string text;
  for (const std::string& path : paths) text += Or(ReadFileBytes(path, kMax));
  return text;
}

// Every policy over the same tokens, chunk by chunk, each with memory of its own.
void RunModel(const Flags& f) {
  const auto tokenizer = Or(Tokenizer::FromFile(f.model + "/tokenizer.json"));
  std::vector<TokenId> tokens = Or(tokenizer->Encode(Text(f)));
  model::LoadOptions load;
  load.kernels = &RoundingKernels();
  const auto model = Or(model::Model::Load(f.model, load));
  const int64_t n =
      std::min({f.tokens, model->max_model_len(), static_cast<int64_t>(tokens.size())});
  tokens.resize(static_cast<size_t>(n));
  std::printf("\n%s, %lld tokens of text (context %lld)\n", f.model.c_str(),
              static_cast<long long>(n), static_cast<long long>(model->max_model_len()));
  std::vector<Policy> policies = AllPolicies(f.rest);
  if (f.few) {
    std::erase_if(policies, [&](const Policy& p) {
      return p.every == f.rest || p.dtype == kernel::StateDType::kF16;
    });
  }
  std::vector<std::unique_ptr<model::SequenceMemory>> memory;
  std::vector<std::pair<std::string, Divergence>> runs;
  for (const Policy& p : policies) {
    memory.push_back(std::make_unique<model::SequenceMemory>(model->layout(), n));
    if (p.every != 0) runs.emplace_back(Name(p), Divergence());
  }
  ThreadPool pool(f.threads);
  model::Workspace workspace;
  constexpr int64_t kChunk = 256;
  const int64_t vocab = model->vocab_size();
  std::vector<float> truth(kChunk * vocab), logits(kChunk * vocab);
  for (int64_t from = 0; from < n; from += kChunk) {
    const int64_t count = std::min(kChunk, n - from);
    const auto piece = std::span<const TokenId>(tokens).subspan(from, count);
    for (size_t i = 0; i < policies.size(); ++i) {
      float* out = i == 0 ? truth.data() : logits.data();
      BeginCall(policies[i], from, memory[i]->slot());
      const model::BatchItem item = memory[i]->Extend(piece, model::LogitsMode::kAll, out);
      const Status status = model->Forward(std::span(&item, 1), &workspace, &pool);
      if (!status.ok()) {
        std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
        std::exit(1);
      }
      if (i == 0) continue;
      for (int64_t t = 0; t < count; ++t)
        runs[i - 1].second.Add(from + t, std::span(truth).subspan(t * vocab, vocab),
                               std::span(logits).subspan(t * vocab, vocab));
    }
  }
  PrintDivergence(runs);
}

int Main(int argc, char** argv) {
  Flags f;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i], value = argv[i + 1];
    if (flag == "--tokens") {
      f.tokens = std::atol(value.c_str());
    } else if (flag == "--rest") {
      f.rest = std::atol(value.c_str());
    } else if (flag == "--model") {
      f.model = value;
    } else if (flag == "--text") {
      f.text = value;
    } else if (flag == "--threads") {
      f.threads = std::atoi(value.c_str());
    } else if (flag == "--only") {
      f.only = value;
    } else if (flag == "--few") {
      f.few = value == "1";
    } else {
      std::fprintf(stderr, "unknown flag %s\n", flag.c_str());
      return 1;
    }
  }
  if (f.tokens < 1 || f.rest < 1 || f.threads < 1) {
    std::fprintf(stderr, "--tokens, --rest and --threads must be 1 or more\n");
    return 1;
  }
  kernel::SetCanonicalFpMode();
  if (f.only.empty() || f.only == "decode") RunDecode(9);
  if (f.only.empty() || f.only == "synthetic")
    for (const double decay : {0.99, 0.999, 0.9999, 0.99999})
      RunSynthetic(decay, f.tokens, f.rest);
  if (f.only.empty() || f.only == "model") RunModel(f);
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
