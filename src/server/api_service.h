// Routes and handlers: turns HTTP requests into generations and everything else a client may ask
// for. Knows nothing of sockets (http_server.h) nor of where tokens come from (Generator).
//
// Thread rule: Handle is called on io threads, concurrently; setters before the first call.
#ifndef BATON_SERVER_API_SERVICE_H_
#define BATON_SERVER_API_SERVICE_H_

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/generator.h"
#include "server/active_calls.h"
#include "server/api_error.h"
#include "server/background_thread.h"
#include "server/generation_call.h"
#include "server/http.h"
#include "server/metered_generator.h"
#include "server/node_info.h"
#include "server/request_params.h"
#include "server/status_page.h"
#include "server/text_frontend.h"

namespace baton::server {

struct ApiOptions {
  std::vector<std::string> served_model_names;  // at least one; the first is shown
  std::vector<std::string> api_keys;            // none: open to all
  std::string version = "0.1.0";
  bool internal_endpoint = false;        // a worker: serve /internal/generate
  bool accept_prefiller_header = false;  // a router: obey x-prefiller-host-port
  int64_t choices_in_flight_max = 1024;  // 429 above
  int64_t choices_per_request_max = 128;
};

struct ApiDeps {
  engine::Generator* generator = nullptr;   // required; outlives the service and its calls
  const TextFrontend* text = nullptr;       // null: text endpoints answer 501
  std::shared_ptr<Metrics> metrics;         // required
  std::function<NodeInfo()> node_info;      // required
  std::function<StatusRows()> status_rows;  // optional, for the page at "/"
  std::function<Json()> health_extra;       // optional object merged into /health
};

class ApiService final : public std::enable_shared_from_this<ApiService> {
 public:
  ApiService(ApiOptions options, ApiDeps deps);

  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange);

  // /health turns 503 and new generations are refused with 503.
  void SetDraining() { draining_.store(true); }
  bool draining() const { return draining_.load(); }
  ActiveCalls& calls() { return *calls_; }

 private:
  struct Route;
  static const Route* FindRoute(const std::string& path);
  bool Authorized(const HttpRequest& request) const;
  void Answer(Exchange* exchange, HttpResponse response);
  void AnswerJson(Exchange* exchange, const Json& json);
  void AnswerError(Exchange* exchange, const ApiError& error);

  void Health(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Version(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void MetricsPage(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Load(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Page(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Tokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Detokenize(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Completions(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void Chat(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);
  void InternalGenerate(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange);

  RequestContext Context() const;
  std::optional<ApiError> CheckModel(const std::string& name) const;
  std::optional<ApiError> PlanCompletion(const HttpRequest& request, CallPlan* plan) const;
  std::optional<ApiError> PlanChat(const HttpRequest& request, CallPlan* plan) const;
  std::optional<ApiError> Encode(const CompletionParams& params,
                                 const RequestContext& context,
                                 CallPlan* plan) const;
  std::optional<ApiError> RenderTokens(const ChatRender& render,
                                       bool add_special_tokens,
                                       PreparedPrompt* prompt) const;
  std::optional<ApiError> RefuseNewWork() const;
  void FillInfo(const GenerationParams& params, bool chat, AnswerInfo* info) const;
  using Planner = std::optional<ApiError> (ApiService::*)(const HttpRequest&, CallPlan*) const;
  void FinishPlan(const HttpRequest& request, CallPlan* plan) const;
  void PlanAndRun(const HttpRequest& request,
                  const std::shared_ptr<Exchange>& exchange,
                  Planner planner);
  void RunCall(CallPlan plan, const std::shared_ptr<Exchange>& exchange);

  const ApiOptions options_;
  const ApiDeps deps_;
  const std::shared_ptr<Meter> meter_;
  MeteredGenerator generator_;
  const std::shared_ptr<ActiveCalls> calls_;
  const int64_t created_;  // Unix seconds, for display
  std::vector<std::string> key_digests_;
  std::atomic<bool> draining_{false};
  BackgroundThread background_;  // last: its tasks use the members above
};

}  // namespace baton::server

#endif  // BATON_SERVER_API_SERVICE_H_
