// `baton route`: the router in front of prefill and decode workers.
#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/rng.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/service.h"
#include "model/inspect.h"
#include "server/remote_generator.h"

namespace baton::cli {
namespace {

struct Flags {
  std::string model;
  HttpFlags http;
  std::vector<std::string> prefill;
  std::vector<std::string> decode;
  std::vector<std::string> connectors;
  std::string worker_api_key;
  int health_interval_ms = 1000;
  int health_timeout_ms = 5000;
  int worker_wait_s = 30;
};

StatusOr<std::vector<server::HttpAddress>> Addresses(const std::vector<std::string>& urls) {
  std::vector<server::HttpAddress> out;
  for (const std::string& url : urls) {
    BATON_ASSIGN_OR_RETURN(server::HttpAddress address, server::ParseHttpAddress(url));
    out.push_back(std::move(address));
  }
  return out;
}

StatusOr<server::RouterOptions> MakeRouterOptions(const Flags& f, const std::string& dir) {
  server::RouterOptions o;
  BATON_ASSIGN_OR_RETURN(o.prefill, Addresses(f.prefill));
  BATON_ASSIGN_OR_RETURN(o.decode, Addresses(f.decode));
  if (!f.connectors.empty()) o.connectors = f.connectors;
  o.worker_api_key = f.worker_api_key;
  o.health_interval_ms = f.health_interval_ms;
  o.health_timeout_ms = f.health_timeout_ms;
  o.worker_wait_ms = int64_t{1000} * f.worker_wait_s;
  o.in_flight_max = f.http.max_waiting;
  BATON_ASSIGN_OR_RETURN(const model::InspectReport report, model::InspectModel(dir, {}));
  o.max_model_len = report.config.max_position;
  o.vocab_size = report.config.vocab_size;
  return o;
}

int RunRoute(const Flags& f) {
  BlockSignals();
  StatusOr<std::string> dir = ResolveModel(f.model);
  if (!dir.ok()) return Fail(dir.status());
  auto text = LoadText(*dir, f.http);
  if (!text.ok()) return Fail(text.status());
  auto options = MakeRouterOptions(f, *dir);
  if (!options.ok()) return Fail(options.status());

  const std::string name = ServedName(f.http, *dir);
  server::IoPool io(1);
  server::RemoteGenerator router(&io, *options);
  server::ServerOptions server_options = MakeServerOptions(f.http, name);
  server_options.api.accept_prefiller_header = true;
  server::ApiDeps deps;
  deps.generator = &router;
  deps.text = text->get();
  deps.metrics = std::make_shared<server::Metrics>(server::Metrics::Options{name, true});
  deps.metrics->AddCollector([&] { return router.Collect(); });
  const std::string epoch = RandomBytes<Epoch>().Hex();
  deps.node_info = [&] {
    server::NodeInfo info;
    info.role = "router";
    info.model = name;
    info.epoch = epoch;
    info.max_model_len = router.max_model_len();
    info.vocab_size = router.vocab_size();
    return info;
  };
  deps.status_rows = [&] { return router.Rows(); };
  deps.health_extra = [&] { return router.HealthExtra(); };
  server::Server server(&io, server_options, deps);
  router.StartHealthChecks();
  const int code =
      ServeUntilSignal(&server, f.http,
                       absl::StrCat("role router, model ", name, ", ", f.prefill.size(),
                                    " prefill and ", f.decode.size(), " decode workers"));
  router.Stop();
  io.Stop();
  return code;
}

}  // namespace

Run AddRoute(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_option("model", f->model,
                  "model directory, for tokenizer and template; default: the embedded demo model");
  app->add_option("--prefill", f->prefill, "URL of a prefill worker (repeatable)");
  app->add_option("--decode", f->decode, "URL of a decode worker (repeatable)")->required();
  app->add_option("--connector", f->connectors, "how decode workers pull, best first")
      ->check(ConnectorChoice());
  app->add_option("--worker-api-key", f->worker_api_key, "bearer key sent to workers");
  app->add_option("--health-interval-ms", f->health_interval_ms, "between two looks at a worker")
      ->check(CLI::Range(100, 600000))
      ->capture_default_str();
  app->add_option("--health-timeout-ms", f->health_timeout_ms,
                  "silence that counts as a missed look; three in a row cut a worker off")
      ->check(CLI::Range(100, 600000))
      ->capture_default_str();
  app->add_option("--worker-wait", f->worker_wait_s,
                  "seconds a request waits for a healthy decode worker")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  AddHttpFlags(app, &f->http);
  return [f] { return RunRoute(*f); };
}

}  // namespace baton::cli
