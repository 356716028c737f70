// `baton up`: router, prefill and decode worker on loopback until a signal.
#include <signal.h>

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "cli/cluster.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/serve_flags.h"
#include "cli/service.h"

namespace baton::cli {
namespace {

struct Flags {
  std::string model;
  std::string host = "127.0.0.1";
  int port = 8000;
  std::string connector = "shm";
  int threads = 0;
  int64_t max_num_seqs = 64;
};

int RunUp(const Flags& f) {
  BlockSignals();
  StatusOr<std::string> model = ResolveModel(f.model);
  if (!model.ok()) return Fail(model.status());
  BlockingHttp http;
  ClusterOptions options;
  options.model_dir = *model;
  options.host = f.host;
  options.port = f.port;
  options.connector = f.connector;
  options.worker_flags = {"--threads", std::to_string(f.threads), "--max-num-seqs",
                          std::to_string(f.max_num_seqs)};
  StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Start(std::move(options), &http);
  if (!cluster.ok()) return Fail(cluster.status());
  std::printf(
      "\nready: %s  (prefill %s, decode %s)\ntry:\n"
      "  curl -N %s/v1/chat/completions -H 'Content-Type: application/json' -d "
      "'{\"messages\":[{\"role\":\"user\",\"content\":\"the code of amber is 4821. what is the "
      "code "
      "of amber?\"}],\"stream\":true,\"max_tokens\":40}'\nstop with Ctrl-C\n",
      (*cluster)->url().c_str(), (*cluster)->prefill_url().c_str(),
      (*cluster)->decode_url().c_str(), (*cluster)->url().c_str());
  std::fflush(stdout);
  sigset_t set;
  sigemptyset(&set);
  for (int s : {SIGINT, SIGTERM, SIGCHLD}) sigaddset(&set, s);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  for (;;) {
    // SIGCHLD wakes at once; the timeout only catches one that came before it was blocked.
    const timespec wait{5, 0};
    const int number = sigtimedwait(&set, nullptr, &wait);
    if (number == SIGINT || number == SIGTERM) break;
    (*cluster)->Supervise();
  }
  (*cluster)->Stop(std::chrono::seconds(35));
  return 0;
}

}  // namespace

Run AddUp(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_option("model", f->model, "model directory; default: the embedded demo model");
  app->add_option("--host", f->host, "address of the router")->capture_default_str();
  app->add_option("--port", f->port, "port of the router; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--connector", f->connector, "how bundles move")
      ->check(ConnectorChoice())
      ->capture_default_str();
  app->add_option("--threads", f->threads, "compute threads of each worker; 0: all cores")
      ->check(CLI::Range(0, 1024));
  app->add_option("--max-num-seqs", f->max_num_seqs, "sequences computed at once")
      ->check(CLI::Range(1, 65536));
  return [f] { return RunUp(*f); };
}

}  // namespace baton::cli
