// One completion or chat request under way: starts a generation per choice, turns their tokens into
// text, and writes the answer, streamed or whole. Errors before the first chunk become an HTTP
// error; later ones an SSE error event. A client that leaves cancels all choices.
//
// Thread rule: lives on its exchange's thread; Abort from any thread.
#ifndef BATON_SERVER_GENERATION_CALL_H_
#define BATON_SERVER_GENERATION_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "server/active_calls.h"
#include "server/api_error.h"
#include "server/http.h"
#include "server/request_params.h"
#include "server/response_json.h"
#include "server/text_frontend.h"
#include "server/text_stream.h"

namespace baton::server {

// A prompt ready to run; `params.n` choices are generated from it.
struct PreparedPrompt {
  std::vector<TokenId> tokens;
  std::string echo;  // put before the text of each choice
  int64_t conversation_len = 0;
  engine::SamplingParams sampling;  // max_tokens and stop ids set; seed per choice later
};

struct CallPlan {
  AnswerInfo info;
  GenerationParams params;
  std::vector<PreparedPrompt> prompts;  // at least one
  std::string prefill_endpoint;         // for the router, from x-prefiller-host-port
};

class GenerationCall final : public std::enable_shared_from_this<GenerationCall> {
 public:
  // `generator` and `text` must outlive the call.
  GenerationCall(engine::Generator* generator,
                 const TextFrontend* text,
                 CallPlan plan,
                 std::shared_ptr<Exchange> exchange);

  // Answers 429 if `calls` is full. `on_status` is told the HTTP status once.
  void Run(ActiveCalls* calls, std::function<void(int status)> on_status);

  // Ends the call with 503, as the server is stopping.
  void Abort();

 private:
  struct Choice {
    int64_t index = 0;
    const PreparedPrompt* prompt = nullptr;
    uint64_t seed = 0;
    std::unique_ptr<TextStream> stream;
    std::shared_ptr<engine::Generation> generation;
    std::string text;                        // whole answers only
    std::vector<engine::TokenEvent> events;  // whole answers or debug
    int64_t tokens = 0;
    int64_t code_points = 0;
    Sha256 logits_hash;
    bool chunk_sent = false;
    std::optional<engine::GenerateResult> result;
  };

  void AddChoices();
  std::optional<ApiError> StartChoice(Choice* choice);
  void OnEvents(Choice* choice, const std::vector<engine::TokenEvent>& events);
  void OnResult(Choice* choice, engine::GenerateResult result);
  void SendChunk(Choice* choice,
                 std::string text,
                 std::span<const engine::TokenEvent> events,
                 bool final_chunk);
  ChoicePiece FinalPiece(const Choice& choice) const;
  Json DebugJson(const Choice& choice) const;
  UsageTotals Totals() const;
  void Complete();
  void Fail(const ApiError& error);
  void CancelAll();
  void ReportStatus(int status);

  engine::Generator* const generator_;
  const TextFrontend* const text_;
  const CallPlan plan_;
  const std::shared_ptr<Exchange> exchange_;
  std::vector<std::unique_ptr<Choice>> choices_;
  std::unique_ptr<ActiveCalls::Ticket> ticket_;
  std::function<void(int)> on_status_;
  size_t running_ = 0;      // choices without a result
  bool streaming_ = false;  // the head of a stream has been sent
  bool done_ = false;       // the answer is complete, failed or nobody waits for it
  bool aborted_ = false;
};

}  // namespace baton::server

#endif  // BATON_SERVER_GENERATION_CALL_H_
