#include "soak/processes.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/json.h"
#include "cli/cluster.h"
#include "soak/conversation.h"
#include "soak/counts.h"
#include "soak/models.h"
#include "soak/truth.h"

namespace baton::soak {
namespace {

using cli::BlockingHttp;
using cli::Cluster;
using std::chrono::milliseconds;

constexpr size_t kWorkers = 2;  // prefill, decode; the router is the third child
constexpr auto kPatience = std::chrono::seconds(30);

// Name without labels -> sum over them. Empty if the process does not answer.
std::map<std::string, double> MetricsOf(BlockingHttp* http, const std::string& url) {
  std::map<std::string, double> metrics;
  const auto answer = http->Get(url + "/metrics");
  if (!answer.ok() || answer->status != 200) return metrics;
  std::istringstream in(answer->body);
  for (std::string line; std::getline(in, line);) {
    if (line.rfind("baton:", 0) != 0) continue;
    const size_t space = line.rfind(' ');
    metrics[line.substr(6, line.find_first_of("{ ") - 6)] +=
        std::strtod(line.c_str() + space, nullptr);
  }
  return metrics;
}

int PortOf(const std::string& url) { return std::atoi(url.c_str() + url.rfind(':') + 1); }

// Sends a request, reads a little of the answer, and hangs up.
void AskAndLeave(const std::string& url, const std::string& body, SplitMix64* rng) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  // A whole answer may have come before the client hangs up, and nothing comes after it.
  const timeval patience{.tv_sec = 0, .tv_usec = 100'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(PortOf(url)));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof a) == 0) {
    const std::string text = absl::StrCat(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        "Content-Length: ",
        body.size(), "\r\n\r\n", body);
    (void)!send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    std::this_thread::sleep_for(std::chrono::microseconds(rng->Below(40000)));
    char buffer[1024];
    for (uint64_t i = rng->Below(4); i > 0; --i) (void)!recv(fd, buffer, sizeof buffer, 0);
  }
  close(fd);
}

class ProcessRound {
 public:
  ProcessRound(const ProcessRoundOptions& options, Findings* findings)
      : options_(options),
        model_(LoadModel("models/demo")),
        findings_(findings),
        truth_(model_.get()) {}

  void Run() {
    cli::ClusterOptions o;
    o.binary = options_.binary;
    o.model_dir = SourcePath("models/demo");
    o.port = 0;
    o.connector = options_.connector;
    o.worker_flags = {"--memory-bytes",
                      std::to_string(engine::NodeMemoryBytes(model_->layout(), 10, 90)),
                      "--max-num-seqs",
                      "8",
                      "--max-num-batched-tokens",
                      "64",
                      "--lease-seconds",
                      "5",
                      "--threads",
                      "1"};
    o.log_dir = options_.log_dir;
    auto cluster = Cluster::Start(std::move(o), &http_);
    if (!cluster.ok()) return findings_->Wrong(std::string(cluster.status().message()));
    cluster_ = *std::move(cluster);
    WithUsers([this] { Kill(); });
    ExpectIdle();
    // Nobody is killed now: every process must come back to what it has.
    WithUsers([] { std::this_thread::sleep_for(std::chrono::seconds(1)); });
    ExpectIdle();
    const auto before = Processes();
    WithUsers([] { std::this_thread::sleep_for(std::chrono::seconds(2)); });
    ExpectIdle();
    ExpectProcesses(before);
    for (size_t w = 0; w < kWorkers; ++w) Scrape(w);
    cluster_.reset();
    findings_->Count("answers recomputed", truth_.computed());
    findings_->Count("rounds over processes");
  }

 private:
  template <class Fn>
  void WithUsers(const Fn& fn) {
    over_ = false;
    std::vector<std::thread> users;
    for (size_t u = 0; u < options_.users; ++u) users.emplace_back([this, u] { Use(u); });
    fn();
    over_ = true;
    for (std::thread& t : users) t.join();
    ++crowds_;
  }

  void Kill() {
    SplitMix64 rng(options_.seed);
    const auto until = std::chrono::steady_clock::now() +
                       milliseconds(static_cast<int64_t>(1e3 * options_.seconds));
    while (std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(milliseconds(400 + rng.Below(2500)));
      const size_t w = rng.Below(kWorkers);
      Scrape(w);
      kill(cluster_->pid(w), SIGKILL);
      findings_->Count("processes killed");
      // Until it has been seen to be dead: on a busy machine it takes its time.
      do {
        std::this_thread::sleep_for(milliseconds(5 + rng.Below(100)));
      } while (cluster_->Supervise() == 0);
    }
  }

  std::string UrlOf(size_t worker) const {
    return worker == 0 ? cluster_->prefill_url() : cluster_->decode_url();
  }

  // What a worker has done so far; it is about to end.
  void Scrape(size_t worker) {
    const auto m = MetricsOf(&http_, UrlOf(worker));
    const auto count = [&](const char* name, const char* metric) {
      const auto it = m.find(metric);
      if (it != m.end()) findings_->Count(name, static_cast<uint64_t>(it->second));
    };
    count("bytes moved by compaction, in processes", "memory_moved_bytes_total");
    count("border moves, in processes", "memory_border_moves_total");
    count("preemptions, in processes", "num_preemptions_total");
    count("failovers, in processes", "connector_failovers_total");
    count("shares moved, in processes", "connector_parts_moved_total");
    count("pulls, in processes", "handoff_pulls_total");
    count("checkpoints refused", "checkpoint_rejects_total");
  }

  void Use(uint64_t u) {
    BlockingHttp http;
    User user(options_.seed * 1000 + 100 * crowds_ + u,
              {.vocab = model_->vocab_size(), .prompt_max = 320, .answer_max = 60});
    while (!over_) {
      const engine::GenerateRequest request = user.Next();
      Json body;
      body["prompt"] = request.prompt;
      body["max_tokens"] = request.sampling.max_tokens;
      body["temperature"] = request.sampling.temperature;
      body["top_p"] = 1;  // not the model's own default
      body["top_k"] = -1;
      body["seed"] = request.sampling.seed;
      body["ignore_eos"] = true;
      body["baton_debug"] = true;
      if (!request.cache_salt.empty()) body["cache_salt"] = request.cache_salt;
      const bool stream = user.rng()->Below(2) == 0;
      if (stream) body["stream"] = true;
      if (stream && user.rng()->Below(4) == 0) {
        AskAndLeave(cluster_->url(), body.dump(), user.rng());
        findings_->Count("HTTP clients that hung up");
        continue;
      }
      const auto answer = http.Post(cluster_->url() + "/v1/completions", body.dump());
      user.Heard(request, Judge(request, stream, answer));
    }
  }

  std::vector<TokenId> Judge(const engine::GenerateRequest& request,
                             bool stream,
                             const StatusOr<cli::HttpAnswer>& answer) {
    const std::string what = absl::StrCat("over HTTP and ", options_.connector, ", ",
                                          request.prompt.size(), " tokens: ");
    if (!answer.ok() || answer->status != 200) {
      findings_->Wrong(absl::StrCat(what, answer.ok() ? answer->body.substr(0, 300)
                                                      : std::string(answer.status().message())));
      return {};
    }
    const auto json = ParseJsonLenient(stream ? LastEvent(answer->body) : answer->body);
    if (!json.ok() || !json->contains("baton")) {
      findings_->Wrong(absl::StrCat(
          what, "no whole answer: ...",
          answer->body.substr(answer->body.size() - std::min<size_t>(answer->body.size(), 300))));
      return {};
    }
    const auto tokens = (*json)["baton"]["token_ids"].get<std::vector<TokenId>>();
    const std::string hash = (*json)["baton"]["logits_hash"];
    const Said truth = truth_.Of(request);
    if (tokens != truth.tokens || hash != truth.logits_hash.Hex()) {
      findings_->Count("wrong answers");
      findings_->Wrong(what + "differs from recomputation");
    }
    findings_->Count(stream ? "HTTP streams compared" : "HTTP answers compared");
    findings_->Count("tokens compared", tokens.size());
    return tokens;
  }

  // The last JSON of an event stream that has come to its end.
  static std::string LastEvent(const std::string& body) {
    const size_t done = body.rfind("data: [DONE]");
    if (done == std::string::npos || done == 0) return "";
    const size_t last = body.rfind("data: ", done - 1);
    return last == std::string::npos ? "" : body.substr(last + 6, done - last - 6);
  }

  // Nothing runs, nothing is quarantined, and every slot in use is a checkpoint's.
  void ExpectIdle() {
    for (size_t w = 0; w < kWorkers; ++w) {
      const auto until = std::chrono::steady_clock::now() + kPatience;
      std::map<std::string, double> m;
      bool idle = false;
      while (!idle && std::chrono::steady_clock::now() < until) {
        m = MetricsOf(&http_, UrlOf(w));
        idle = !m.empty() && m["num_requests_running"] == 0 && m["num_requests_waiting"] == 0 &&
               m["quarantined_bytes"] == 0 && m["state_slots_used"] == m["checkpoints"];
        if (!idle) std::this_thread::sleep_for(milliseconds(50));
        cluster_->Supervise();
      }
      findings_->Count("workers counted");
      if (!idle)
        findings_->Wrong(absl::StrCat(w == 0 ? "prefill" : "decode",
                                      " process is not idle: ", m["num_requests_running"], " run, ",
                                      m["num_requests_waiting"], " wait, ", m["quarantined_bytes"],
                                      " bytes in quarantine, ", m["state_slots_used"],
                                      " slots in use by ", m["checkpoints"], " checkpoints"));
    }
  }

  std::vector<ProcessCounts> Processes() const {
    std::vector<ProcessCounts> counts;
    for (size_t c = 0; c <= kWorkers; ++c) counts.push_back(CountsOfProcess(cluster_->pid(c)));
    return counts;
  }

  // Threads must be the same. Of files there may be one more for each user at most: a connection
  // that is kept for the next request.
  void ExpectProcesses(const std::vector<ProcessCounts>& before) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    std::vector<ProcessCounts> now;
    const auto good = [&](size_t c) {
      return now[c].threads == before[c].threads &&
             now[c].fds <= before[c].fds + static_cast<int>(options_.users);
    };
    const auto back = [&] {
      now = Processes();
      return good(0) && good(1) && good(2);
    };
    while (!back() && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(milliseconds(100));
    const char* const names[] = {"prefill", "decode", "router"};
    for (size_t c = 0; c < now.size(); ++c) {
      if (!good(c))
        findings_->Wrong(absl::StrCat(names[c], " process: ", before[c].Text(), " before, ",
                                      now[c].Text(), " after"));
    }
  }

  const ProcessRoundOptions options_;
  const std::shared_ptr<const model::Model> model_;
  Findings* const findings_;
  Truth truth_;
  BlockingHttp http_;
  std::unique_ptr<Cluster> cluster_;
  std::atomic<bool> over_{false};
  std::atomic<uint64_t> crowds_{0};
};

}  // namespace

ProcessRoundOptions ProcessRoundOf(uint64_t n, uint64_t seed) {
  const char* const connectors[] = {"kv=shm,state=tcp", "shm", "tcp", "kv=tcp,state=shm"};
  ProcessRoundOptions o;
  o.connector = connectors[n % std::size(connectors)];
  o.seed = seed * 7907 + n;
  return o;
}

void RunProcessRound(const ProcessRoundOptions& options, Findings* findings) {
  ProcessRound(options, findings).Run();
}

}  // namespace baton::soak
