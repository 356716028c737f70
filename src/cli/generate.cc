// `baton generate`: completes a prompt in this process, without a server.
#include <cstdio>
#include <memory>

#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/serve_flags.h"
#include "server/model_text.h"

namespace baton::cli {
namespace {

struct Flags {
  std::string model;
  std::string prompt;
  bool chat = false;
  bool show_hash = false;
  EngineFlags engine;
  engine::SamplingParams sampling;
};

// Prints text as it becomes certain.
class Printer final : public engine::GenerationSink {
 public:
  explicit Printer(std::unique_ptr<server::TextDecoder> decoder) : decoder_(std::move(decoder)) {}
  void OnTokens(std::span<const engine::TokenEvent> events) override {
    for (const engine::TokenEvent& e : events) {
      const std::string piece = decoder_->Push(e.token);
      std::fwrite(piece.data(), 1, piece.size(), stdout);
      hash_ = e.logits_hash;
    }
    std::fflush(stdout);
  }
  void OnFinish(const engine::GenerateResult& result) override {
    const std::string rest = decoder_->Finish();
    std::printf("%s\n", rest.c_str());
    MutexLock lock(&mu_);
    result_ = result;
    cv_.NotifyAll();
  }
  engine::GenerateResult Wait() {
    MutexLock lock(&mu_);
    while (!result_.has_value()) cv_.Wait(&mu_);
    return *result_;
  }
  const Sha256& hash() const { return hash_; }

 private:
  std::unique_ptr<server::TextDecoder> decoder_;
  Sha256 hash_;
  Mutex mu_;
  CondVar cv_;
  std::optional<engine::GenerateResult> result_ BATON_GUARDED_BY(mu_);
};

StatusOr<std::vector<TokenId>> Encode(const Flags& f, const server::TextFrontend& text) {
  if (!f.chat) return text.Encode(f.prompt, true);
  server::ChatRender chat;
  chat.messages = OrderedJson::array({{{"role", "user"}, {"content", f.prompt}}});
  BATON_ASSIGN_OR_RETURN(const std::string rendered, text.RenderChat(chat));
  return text.Encode(rendered, false);
}

int RunGenerate(Flags f) {
  auto dir = ResolveModel(f.model);
  if (!dir.ok()) return Fail(dir.status());
  auto text = server::ModelText::Load(*dir, {});
  if (!text.ok()) return Fail(text.status());
  auto model = LoadModel(*dir, f.engine);
  if (!model.ok()) return Fail(model.status());
  f.engine.max_num_seqs = 1;
  auto options = MakeWorkerOptions(**model, f.engine, {}, "all");
  if (!options.ok()) return Fail(options.status());
  auto worker = engine::Worker::Create(model->get(), *std::move(options));
  if (!worker.ok()) return Fail(worker.status());

  engine::GenerateRequest request;
  auto tokens = Encode(f, **text);
  if (!tokens.ok()) return Fail(tokens.status());
  request.prompt = *std::move(tokens);
  request.sampling = f.sampling;
  request.sampling.stop_token_ids = (*text)->defaults().eos_token_ids;
  auto printer = std::make_shared<Printer>((*text)->NewDecoder(true));
  auto started = (*worker)->engine().Start(std::move(request), printer);
  if (!started.ok()) return Fail(started.status());
  const engine::GenerateResult result = printer->Wait();
  if (f.show_hash)
    std::fprintf(stderr, "logits hash %s, %ld prompt and %ld new tokens\n",
                 printer->hash().Hex().c_str(), result.usage.prompt_tokens,
                 result.usage.completion_tokens);
  return result.reason == engine::FinishReason::kError ? Fail(result.error) : 0;
}

}  // namespace

Run AddGenerate(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  f->sampling.temperature = 0;
  f->sampling.max_tokens = 128;
  app->add_option("prompt", f->prompt, "text to continue")->required();
  app->add_option("--model", f->model, "model directory; default: the embedded demo model");
  app->add_flag("--chat", f->chat, "send the prompt as a user message through the chat template");
  app->add_option("--max-tokens", f->sampling.max_tokens, "tokens at most")->capture_default_str();
  app->add_option("--temperature", f->sampling.temperature, "0: greedy")->capture_default_str();
  app->add_option("--top-k", f->sampling.top_k, "0: off");
  app->add_option("--top-p", f->sampling.top_p, "1: off");
  app->add_option("--min-p", f->sampling.min_p, "0: off");
  app->add_option("--repetition-penalty", f->sampling.repetition_penalty, "1: off");
  app->add_option("--seed", f->sampling.seed, "of the draws");
  app->add_flag("--logits-hash", f->show_hash, "print the rolling hash of all logits");
  AddEngineFlags(app, &f->engine);
  return [f] { return RunGenerate(*f); };
}

}  // namespace baton::cli
