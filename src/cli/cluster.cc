#include "cli/cluster.h"

#include <fstream>
#include <iterator>
#include <thread>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "base/log.h"
#include "base/rng.h"

namespace baton::cli {
namespace {

std::vector<std::string> Join(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Loopback(int port) { return absl::StrCat("http://127.0.0.1:", port); }

}  // namespace

StatusOr<std::unique_ptr<Cluster>> Cluster::Start(ClusterOptions options, BlockingHttp* http) {
  auto c = std::unique_ptr<Cluster>(new Cluster);
  BATON_ASSIGN_OR_RETURN(c->prefill_port_, FreePort());
  BATON_ASSIGN_OR_RETURN(c->decode_port_, FreePort());
  if (options.port == 0) {
    BATON_ASSIGN_OR_RETURN(options.port, FreePort());
  }
  c->options_ = std::move(options);
  const ClusterOptions& o = c->options_;
  auto worker = [&](std::vector<std::string> command, const std::string& role, int port) {
    command = Join(std::move(command), {o.model_dir, "--role", role, "--host", "127.0.0.1",
                                        "--port", std::to_string(port)});
    // Workers listen for tcp and shm unless told otherwise.
    if (o.connector.find("ucx") != std::string::npos)
      command = Join(std::move(command), {"--handoff-listen", "ucx:127.0.0.1:0"});
    if (o.connector.find("ucx") != std::string::npos && o.connector != "ucx")
      command = Join(std::move(command), {"--handoff-listen", "tcp:127.0.0.1:0", "--handoff-listen",
                                          "shm:@baton-" + RandomBytes<NodeId>().Hex()});
    return Join(std::move(command), o.worker_flags);
  };
  // The decode worker's endpoints are not known yet; both run on this host, as this user.
  c->children_.push_back({"prefill",
                          Join(worker({"serve"}, "prefill", c->prefill_port_),
                               {"--handoff-peer", "shm:@baton-*", "--handoff-peer",
                                "tcp:127.0.0.1:*", "--handoff-peer", "ucx:127.0.0.1:*"}),
                          nullptr,
                          {}});
  c->children_.push_back(
      {"decode", worker(o.decode_command, "decode", c->decode_port_), nullptr, {}});
  c->children_.push_back({"router",
                          Join({"route", o.model_dir, "--host", o.host, "--port",
                                std::to_string(o.port), "--prefill", Loopback(c->prefill_port_),
                                "--decode", Loopback(c->decode_port_), "--connector", o.connector},
                               o.router_flags),
                          nullptr,
                          {}});
  for (Child& child : c->children_) BATON_RETURN_IF_ERROR(c->Launch(&child));
  BATON_RETURN_IF_ERROR(c->AwaitReady(http));
  return c;
}

Cluster::~Cluster() { Stop(std::chrono::milliseconds(2000)); }

std::string Cluster::url() const {
  return absl::StrCat("http://", options_.host == "0.0.0.0" ? "127.0.0.1" : options_.host, ":",
                      options_.port);
}
std::string Cluster::prefill_url() const { return Loopback(prefill_port_); }
std::string Cluster::decode_url() const { return Loopback(decode_port_); }

std::string Cluster::LogPath(const Child& child) const {
  return options_.log_dir.empty() ? "" : absl::StrCat(options_.log_dir, "/", child.name, ".log");
}

std::string Cluster::LogTail(const Child& child) const {
  if (options_.log_dir.empty()) return "";
  std::ifstream in(LogPath(child));
  const std::string all((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  return all.size() > 2000 ? all.substr(all.size() - 2000) : all;
}

Status Cluster::Launch(Child* child) {
  BATON_ASSIGN_OR_RETURN(child->process,
                         ChildProcess::Start(options_.binary.empty() ? SelfPath() : options_.binary,
                                             child->arguments, LogPath(*child)));
  child->started = std::chrono::steady_clock::now();
  return absl::OkStatus();
}

// Ready: the router answers and knows a healthy worker of each role.
Status Cluster::AwaitReady(BlockingHttp* http) {
  const auto until = std::chrono::steady_clock::now() + options_.ready_timeout;
  while (std::chrono::steady_clock::now() < until) {
    for (Child& child : children_)
      if (!child.process->Running())
        return absl::UnavailableError(absl::StrCat("the ", child.name, " process ended with code ",
                                                   child.process->exit_code(), ":\n",
                                                   LogTail(child)));
    const StatusOr<HttpAnswer> answer = http->Get(url() + "/health");
    if (answer.ok() && answer->status == 200) {
      const StatusOr<Json> health = ParseJsonLenient(answer->body);
      if (health.ok() && health->value("ready", false)) return absl::OkStatus();
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return absl::DeadlineExceededError("the three processes did not become ready in time");
}

int Cluster::Supervise() {
  int restarted = 0;
  for (Child& child : children_) {
    if (child.process->Running()) continue;
    LogWarning(absl::StrCat("the ", child.name, " process ended with code ",
                            child.process->exit_code(), "; starting it again"));
    // A child that dies at once is not started more than once a second.
    if (std::chrono::steady_clock::now() - child.started < std::chrono::seconds(1))
      std::this_thread::sleep_for(std::chrono::seconds(1));
    if (const Status s = Launch(&child); !s.ok()) LogError(std::string(s.message()));
    ++restarted;
  }
  return restarted;
}

void Cluster::Stop(std::chrono::milliseconds grace) {
  // The router first, so that it does not report its workers as lost.
  for (auto it = children_.rbegin(); it != children_.rend(); ++it)
    if (it->process != nullptr) it->process->Stop(grace);
}

}  // namespace baton::cli
