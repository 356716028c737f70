// Routing, authorization and the small endpoints. Completion and chat: api_generate.cc.
#include "server/api_service.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "base/sha256.h"
#include "server/cat.h"
#include "server/field_reader.h"
#include "server/worker_call.h"

namespace baton::server {
namespace {

// Compared by digest, so that the time of a comparison says nothing about the keys.
std::string KeyDigest(std::string_view key) {
  Sha256Hasher hasher;
  hasher.Update(key);
  return hasher.Finish().Hex();
}

constexpr std::string_view kModelsPath = "/v1/models";

}  // namespace

struct ApiService::Route {
  std::string_view path;
  std::string_view method;
  bool open;  // needs no key
  void (ApiService::*handler)(const HttpRequest&, const std::shared_ptr<Exchange>&);
};

const ApiService::Route* ApiService::FindRoute(const std::string& path) {
  static constexpr Route kRoutes[] = {
      {"/", "GET", false, &ApiService::Page},
      {"/health", "GET", true, &ApiService::Health},
      {"/ping", "GET", false, &ApiService::Health},
      {"/version", "GET", false, &ApiService::Version},
      {"/metrics", "GET", true, &ApiService::MetricsPage},
      {"/load", "GET", false, &ApiService::Load},
      {kModelsPath, "GET", false, &ApiService::Models},
      {"/tokenize", "POST", false, &ApiService::Tokenize},
      {"/detokenize", "POST", false, &ApiService::Detokenize},
      {"/v1/completions", "POST", false, &ApiService::Completions},
      {"/v1/chat/completions", "POST", false, &ApiService::Chat},
      {"/internal/generate", "POST", false, &ApiService::InternalGenerate},
  };
  const std::string_view wanted =
      absl::StartsWith(path, Cat(kModelsPath, "/")) ? kModelsPath : std::string_view(path);
  for (const Route& route : kRoutes)
    if (route.path == wanted) return &route;
  return nullptr;
}

ApiService::ApiService(ApiOptions options, ApiDeps deps)
    : options_(std::move(options)),
      deps_(std::move(deps)),
      meter_(std::make_shared<Meter>()),
      generator_(deps_.generator, meter_),
      calls_(std::make_shared<ActiveCalls>(options_.choices_in_flight_max)),
      created_(std::time(nullptr)) {
  BATON_CHECK(deps_.generator != nullptr && deps_.metrics != nullptr && deps_.node_info);
  BATON_CHECK(!options_.served_model_names.empty());
  meter_->metrics = deps_.metrics;
  for (const std::string& key : options_.api_keys) key_digests_.push_back(KeyDigest(key));
}

void ApiService::Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) {
  const Route* route = FindRoute(request.path);
  ApiError error;
  if (route != nullptr && route->handler == &ApiService::InternalGenerate &&
      !options_.internal_endpoint) {
    route = nullptr;
  }
  if ((route == nullptr || !route->open) && !Authorized(request)) {
    error.status = 401;
    error.message = "missing or wrong API key; send it as 'Authorization: Bearer KEY'";
    return AnswerError(exchange.get(), error);
  }
  if (route == nullptr) {
    error.status = 404;
    error.message = Cat("no such path: ", request.path.substr(0, 200), "; see docs/api.md");
    return AnswerError(exchange.get(), error);
  }
  const bool head = request.method == "HEAD" && route->method == "GET";
  if (request.method != route->method && !head) {
    error.status = 405;
    error.message =
        Cat(request.path, " takes ", route->method, ", got ", request.method.substr(0, 20));
    HttpResponse response = ErrorResponse(error);
    response.headers.emplace_back("Allow", std::string(route->method));
    return Answer(exchange.get(), std::move(response));
  }
  (this->*route->handler)(request, exchange);
}

bool ApiService::Authorized(const HttpRequest& request) const {
  if (key_digests_.empty()) return true;
  absl::string_view value = AbslView(request.header("Authorization"));
  if (!absl::StartsWithIgnoreCase(value, "Bearer ")) return false;
  value.remove_prefix(7);
  const std::string digest = KeyDigest(std::string(absl::StripAsciiWhitespace(value)));
  return std::find(key_digests_.begin(), key_digests_.end(), digest) != key_digests_.end();
}

void ApiService::Answer(Exchange* exchange, HttpResponse response) {
  deps_.metrics->HttpAnswer(response.status);
  exchange->Send(std::move(response));
}

void ApiService::AnswerJson(Exchange* exchange, const Json& json) {
  HttpResponse response;
  response.body = DumpJson(json);
  Answer(exchange, std::move(response));
}

void ApiService::AnswerError(Exchange* exchange, const ApiError& error) {
  Answer(exchange, ErrorResponse(error));
}

void ApiService::Health(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  Json json = NodeInfoToJson(deps_.node_info(), draining() ? "draining" : "ok");
  if (deps_.health_extra) {
    const Json extra = deps_.health_extra();
    if (extra.is_object()) json.update(extra);
  }
  HttpResponse response;
  response.status = draining() ? 503 : 200;
  response.body = DumpJson(json);
  exchange->Send(std::move(response));  // not counted: probes would drown the rest
}

void ApiService::Version(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  AnswerJson(exchange.get(), Json{{"version", options_.version}});
}

void ApiService::MetricsPage(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  HttpResponse response;
  response.content_type = "text/plain; version=0.0.4; charset=utf-8";
  response.body = deps_.metrics->Render();
  exchange->Send(std::move(response));
}

void ApiService::Load(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  AnswerJson(exchange.get(), Json{{"server_load", calls_->weight()}});
}

void ApiService::Models(const HttpRequest& request, const std::shared_ptr<Exchange>& exchange) {
  const auto describe = [&](const std::string& name) {
    return Json{{"id", name},
                {"object", "model"},
                {"created", created_},
                {"owned_by", "baton"},
                {"root", options_.served_model_names.front()},
                {"parent", nullptr},
                {"max_model_len", generator_.max_model_len()}};
  };
  if (request.path.size() > kModelsPath.size() + 1) {
    const std::string name = request.path.substr(kModelsPath.size() + 1);
    if (auto error = CheckModel(name)) return AnswerError(exchange.get(), *error);
    return AnswerJson(exchange.get(), describe(name));
  }
  Json list = Json::array();
  for (const std::string& name : options_.served_model_names) list.push_back(describe(name));
  AnswerJson(exchange.get(), Json{{"object", "list"}, {"data", std::move(list)}});
}

void ApiService::Page(const HttpRequest&, const std::shared_ptr<Exchange>& exchange) {
  const NodeInfo info = deps_.node_info();
  StatusPage page;
  page.title = Cat("Baton · ", info.role);
  page.rows = {{"model", options_.served_model_names.front()},
               {"status", draining() ? "draining" : "serving"},
               {"version", options_.version},
               {"context", Cat(generator_.max_model_len(), " tokens")},
               {"requests in flight", Cat(calls_->weight())}};
  if (!info.fingerprint.empty()) page.rows.emplace_back("fingerprint", info.fingerprint);
  if (!info.epoch.empty()) page.rows.emplace_back("epoch", info.epoch);
  for (const auto& [connector, endpoint] : info.handoff) {
    page.rows.emplace_back(Cat("hand-off over ", connector), endpoint);
  }
  if (deps_.status_rows) {
    for (auto& row : deps_.status_rows()) page.rows.push_back(std::move(row));
  }
  page.handoffs = meter_->handoffs.Get();
  HttpResponse response;
  response.content_type = "text/html; charset=utf-8";
  response.body = RenderStatusPage(page);
  Answer(exchange.get(), std::move(response));
}

void ApiService::InternalGenerate(const HttpRequest& request,
                                  const std::shared_ptr<Exchange>& exchange) {
  if (draining()) {
    return WorkerCall::Refuse(absl::UnavailableError("worker is draining"), exchange.get());
  }
  std::make_shared<WorkerCall>(&generator_, exchange)->Run(request.body, calls_.get());
}

}  // namespace baton::server
