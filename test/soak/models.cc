#include "soak/models.h"

#include "absl/strings/str_cat.h"
#include "connector/connectors.h"

namespace baton::soak {

std::vector<std::string> RealModels() {
  return {"models/demo",
          "test/golden/short/granitemoehybrid",
          "test/golden/short/bamba",
          "test/golden/short/jamba",
          "test/golden/short/llama",
          "test/golden/short/qwen3_5",          // gated delta rule
          "test/golden/short/minimax",          // lightning
          "test/golden/short/recurrent_gemma",  // RG-LRU, windows
          "test/golden/short/lfm2",             // short convolutions
          "test/golden/short/mamba",            // no KV at all
          "test/golden/short/falcon_h1"};       // KV and state in one layer
}

std::string SourcePath(const std::string& relative) {
  return absl::StrCat(BATON_SOURCE_DIR, "/", relative);
}

std::shared_ptr<const model::Model> LoadModel(const std::string& name) {
  auto model = model::Model::Load(SourcePath(name), {});
  BATON_CHECK(model.ok());
  return std::shared_ptr<const model::Model>(*std::move(model));
}

std::vector<std::string> Schemes(bool ucx) {
  std::vector<std::string> schemes = {"inproc", "shm", "tcp"};
  if (ucx && HaveUcx()) schemes.push_back("ucx");
  return schemes;
}

std::vector<std::string> FreshEndpoints(bool ucx) {
  std::vector<std::string> endpoints;
  for (const std::string& scheme : Schemes(ucx)) {
    const std::string name = "baton-soak-" + RandomBytes<NodeId>().Hex();
    endpoints.push_back(scheme == "inproc" ? "inproc:" + name
                        : scheme == "shm"  ? "shm:@" + name
                                           : scheme + ":127.0.0.1:0");
  }
  return endpoints;
}

std::vector<TokenId> RandomTokens(SplitMix64* rng, size_t n, int64_t vocab) {
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng->Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

}  // namespace baton::soak
