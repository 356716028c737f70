// The three processes as a user runs them, over HTTP: same bits as in one process, kills at any
// moment, many streams, garbage on the ports.
#include <arpa/inet.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/rng.h"
#include "cli/cluster.h"
#include "cli/process.h"
#include "gtest/gtest.h"
#include "support/deployment.h"

namespace baton::testing {
namespace {

using cli::BlockingHttp;
using cli::Cluster;
using cli::ClusterOptions;

struct Reply {
  int status = 0;
  std::vector<TokenId> tokens;
  std::string hash;
  Json debug;
  std::string body;
};

std::unique_ptr<Cluster> StartCluster(const std::string& model_dir,
                                      const std::string& connector,
                                      std::vector<std::string> worker_flags = {}) {
  ClusterOptions options;
  options.binary = BATON_BINARY;
  options.model_dir = model_dir;
  options.port = 0;
  options.connector = connector;
  options.worker_flags = std::move(worker_flags);
  options.log_dir = ::testing::TempDir();
  BlockingHttp http;
  auto cluster = Cluster::Start(options, &http);
  if (!cluster.ok()) ADD_FAILURE() << cluster.status();
  BATON_CHECK(cluster.ok());
  return *std::move(cluster);
}

Json Body(const engine::GenerateRequest& r) {
  Json body;
  body["prompt"] = r.prompt;
  body["max_tokens"] = r.sampling.max_tokens;
  body["temperature"] = r.sampling.temperature;
  body["top_p"] = r.sampling.top_p;
  body["seed"] = r.sampling.seed;
  body["ignore_eos"] = true;
  body["baton_debug"] = true;
  return body;
}

Reply Complete(BlockingHttp* http, const std::string& url, const Json& body) {
  Reply reply;
  const auto answer = http->Post(url + "/v1/completions", body.dump());
  if (!answer.ok()) {
    reply.body = std::string(answer.status().message());
    return reply;
  }
  reply.status = answer->status;
  reply.body = answer->body;
  if (answer->status != 200) return reply;
  const Json json = Json::parse(answer->body);
  reply.debug = json["baton"];
  reply.hash = reply.debug["logits_hash"];
  reply.tokens = reply.debug["token_ids"].get<std::vector<TokenId>>();
  return reply;
}

std::vector<engine::GenerateRequest> Requests(const model::Model& m, size_t count, bool greedy) {
  std::vector<engine::GenerateRequest> out(count);
  for (size_t i = 0; i < count; ++i) {
    out[i].prompt =
        RandomPrompt((greedy ? 40 : 240) + 1000 * count + i, 20 + 37 * i % 180, m.vocab_size());
    out[i].sampling.max_tokens = 24;
    out[i].sampling.temperature = greedy ? 0 : 0.9;
    out[i].sampling.top_p = greedy ? 1 : 0.9;
    out[i].sampling.seed = 3 + i;
  }
  return out;
}

struct Truth {
  std::vector<TokenId> tokens;
  std::string hash;
};

// What one process without any cache says.
std::vector<Truth> Cold(std::shared_ptr<const model::Model> model,
                        const std::vector<engine::GenerateRequest>& requests) {
  DeploymentOptions options;
  options.engine.prefix_caching = false;
  Deployment d(std::move(model), options);
  std::vector<Truth> truths;
  for (const auto& r : requests) {
    auto sink = d.Start(r);
    sink->Wait();
    truths.push_back({sink->tokens(), sink->logits_hash().Hex()});
  }
  return truths;
}

class Processes : public ::testing::TestWithParam<const char*> {};

TEST_P(Processes, ThreeProcessesGiveTheBitsOfOne) {
  const std::string dir = SourcePath(GetParam());
  auto model = LoadModel(dir);
  const Layout& layout = model->layout();
  auto connectors = ConnectorsAcrossHubs();
  connectors.push_back("kv=shm,state=tcp");
  for (const std::string connector : connectors) {
    SCOPED_TRACE(connector);
    auto cluster = StartCluster(dir, connector);
    for (const auto& [greedy, count] : {std::pair(true, 1), {false, 1}, {true, 8}, {false, 8}}) {
      auto requests = Requests(*model, static_cast<size_t>(count), greedy);
      for (int turn = 0; turn < 2; ++turn) {
        const auto truths = Cold(model, requests);
        std::vector<Reply> replies(requests.size());
        std::vector<std::thread> threads;
        for (size_t i = 0; i < requests.size(); ++i)
          threads.emplace_back([&, i] {
            BlockingHttp http;
            replies[i] = Complete(&http, cluster->url(), Body(requests[i]));
          });
        for (auto& t : threads) t.join();
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_EQ(replies[i].status, 200) << replies[i].body;
          EXPECT_EQ(replies[i].tokens, truths[i].tokens);
          EXPECT_EQ(replies[i].hash, truths[i].hash);
          const Json& usage = replies[i].debug;
          EXPECT_EQ(usage["rejects"], 0);
          EXPECT_EQ(usage["recomputed_tokens"], 0);
          const int64_t g = HandoffBoundary(static_cast<int64_t>(requests[i].prompt.size()));
          if (g > 0) {
            EXPECT_LE(usage["local_prefill_tokens"].get<int64_t>(), 16);
            ASSERT_EQ(usage["handoffs"].size(), 1u) << usage;
            const Json& h = usage["handoffs"][0];
            const bool mixed = connector.find('=') != std::string::npos;
            EXPECT_EQ(h["connector"], !mixed                    ? connector
                                      : !layout.has_state()     ? "shm"
                                      : layout.groups().empty() ? "tcp"
                                                                : "shm+tcp");
            EXPECT_EQ(h["state_bytes"].get<uint64_t>(), layout.state_payload_bytes());
            EXPECT_EQ(h["kv_bytes"].get<uint64_t>(),
                      layout.KvPayloadBytes(static_cast<uint64_t>(g)));
          }
          // The next turn continues this one.
          auto& prompt = requests[i].prompt;
          prompt.insert(prompt.end(), replies[i].tokens.begin(), replies[i].tokens.end());
          const auto more = RandomPrompt(70 + i, 21, model->vocab_size());
          prompt.insert(prompt.end(), more.begin(), more.end());
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models,
                         Processes,
                         ::testing::Values("test/golden/short/bamba",
                                           "test/golden/short/falcon_h1",
                                           "test/golden/short/falcon_mamba",
                                           "test/golden/short/granitemoehybrid",
                                           "test/golden/short/jamba",
                                           "test/golden/short/lfm2",
                                           "test/golden/short/lfm2_moe",
                                           "test/golden/short/llama",
                                           "test/golden/short/mamba",
                                           "test/golden/short/mamba2",
                                           "test/golden/short/minimax",
                                           "test/golden/short/nemotron_h",
                                           "test/golden/short/olmo_hybrid",
                                           "test/golden/short/qwen3_5",
                                           "test/golden/short/qwen3_5_moe",
                                           "test/golden/short/qwen3_next",
                                           "test/golden/short/recurrent_gemma",
                                           "test/golden/short/zamba",
                                           "test/golden/short/zamba2",
                                           "models/demo"),
                         [](const auto& info) {
                           const std::string s = info.param;
                           return s.substr(s.rfind('/') + 1);
                         });

class DemoProcesses : public ::testing::Test {
 protected:
  void SetUp() override {
    dir_ = SourcePath("models/demo");
    model_ = LoadModel(dir_);
  }
  std::string dir_;
  std::shared_ptr<const model::Model> model_;
};

// Kills either worker at random moments while requests run; every request ends with its own tokens.
TEST_F(DemoProcesses, KillsAtAnyMomentLoseNothing) {
  const int kills = std::getenv("BATON_LONG") != nullptr ? 50 : 8;
  auto cluster = StartCluster(dir_, "shm");
  const auto requests = Requests(*model_, 12, false);
  std::vector<engine::GenerateRequest> long_requests = requests;
  for (auto& r : long_requests) r.sampling.max_tokens = 120;
  const auto truths = Cold(model_, long_requests);
  std::atomic<bool> done{false};
  std::atomic<int> wrong{0}, lost{0}, served{0};
  std::vector<std::thread> clients;
  for (size_t c = 0; c < 6; ++c)
    clients.emplace_back([&, c] {
      BlockingHttp http;
      for (size_t i = c; !done.load(); i = (i + 5) % long_requests.size()) {
        const Reply reply = Complete(&http, cluster->url(), Body(long_requests[i]));
        if (reply.status != 200) {
          ++lost;
          ADD_FAILURE() << reply.status << " " << reply.body;
        } else if (reply.tokens != truths[i].tokens || reply.hash != truths[i].hash) {
          ++wrong;
        }
        ++served;
      }
    });
  SplitMix64 rng(11);
  for (int k = 0; k < kills; ++k) {
    std::this_thread::sleep_for(std::chrono::milliseconds(200 + rng.Below(500)));
    kill(cluster->pid(rng.Below(2)), SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    cluster->Supervise();
  }
  // However slow the machine: more is asked than was killed.
  while (served.load() <= kills) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  done = true;
  for (auto& t : clients) t.join();
  EXPECT_EQ(wrong.load(), 0);
  EXPECT_EQ(lost.load(), 0);
  std::printf("%d kills, %d requests, %d wrong, %d lost\n", kills, served.load(), wrong.load(),
              lost.load());
}

// A worker that is there and answers nothing: the router cuts its requests off and another decode
// worker goes on with the same tokens. The stopped one stays stopped, so only the cutoff can end
// this.
TEST_F(DemoProcesses, AHungDecodeWorkerIsCutOffAndItsRequestGoesOnElsewhere) {
  const auto second_port = cli::FreePort();
  ASSERT_TRUE(second_port.ok());
  const std::string second_url = "http://127.0.0.1:" + std::to_string(*second_port);
  auto second = cli::ChildProcess::Start(BATON_BINARY,
                                         {"serve", dir_, "--role", "decode", "--host", "127.0.0.1",
                                          "--port", std::to_string(*second_port)},
                                         ::testing::TempDir() + "/decode2.log");
  ASSERT_TRUE(second.ok()) << second.status();
  ClusterOptions options;
  options.binary = BATON_BINARY;
  options.model_dir = dir_;
  options.port = 0;
  options.connector = "shm";
  options.router_flags = {
      "--decode", second_url, "--health-interval-ms", "100", "--health-timeout-ms", "1000"};
  options.log_dir = ::testing::TempDir();
  BlockingHttp http;
  auto cluster = Cluster::Start(options, &http);
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  auto requests = Requests(*model_, 1, false);
  requests[0].sampling.max_tokens = 1500;
  const auto truths = Cold(model_, requests);
  Reply reply;
  std::thread client([&] {
    BlockingHttp mine;
    reply = Complete(&mine, (*cluster)->url(), Body(requests[0]));
  });
  // Whoever decodes it is stopped in the middle.
  pid_t hung = 0;
  for (int i = 0; i < 2000 && hung == 0; ++i) {
    const std::pair<std::string, pid_t> workers[] = {{(*cluster)->decode_url(), (*cluster)->pid(1)},
                                                     {second_url, (*second)->pid()}};
    for (const auto& [url, pid] : workers) {
      const auto metrics = http.Get(url + "/metrics");
      if (metrics.ok() && metrics->body.find("baton:num_requests_running{model_name=\"demo\"} 1") !=
                              std::string::npos)
        hung = pid;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ASSERT_NE(hung, 0) << "the request ended before it could be disturbed";
  kill(hung, SIGSTOP);
  client.join();
  kill(hung, SIGCONT);
  EXPECT_EQ(reply.status, 200) << reply.body;
  EXPECT_EQ(reply.tokens, truths[0].tokens);
  EXPECT_EQ(reply.hash, truths[0].hash);
}

TEST_F(DemoProcesses, ManyStreamsAtOnce) {
  auto cluster = StartCluster(dir_, "shm");
  std::atomic<int> whole{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 256; ++i)
    threads.emplace_back([&, i] {
      BlockingHttp http;
      Json body = Body(Requests(*model_, 1, true)[0]);
      body["prompt"] = RandomPrompt(static_cast<uint64_t>(i), 30, model_->vocab_size());
      body["stream"] = true;
      body["max_tokens"] = 12;
      const auto answer = http.Post(cluster->url() + "/v1/completions", body.dump());
      if (answer.ok() && answer->status == 200 &&
          answer->body.find("data: [DONE]") != std::string::npos &&
          answer->body.find("\"error\"") == std::string::npos) {
        ++whole;
      } else {
        ADD_FAILURE() << answer.status() << (answer.ok() ? answer->body : "");
      }
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(whole.load(), 256);
}

int ConnectTo(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&a), sizeof(a)), 0);
  return fd;
}

// Clock ticks of CPU time a process has used.
long CpuTicks(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream rest(line.substr(line.rfind(')') + 2));
  std::string field;
  long total = 0;
  for (int i = 3; rest >> field; ++i)
    if (i == 14 || i == 15) total += std::stol(field);
  return total;
}

long ResidentPages(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/statm");
  long size = 0, resident = 0;
  in >> size >> resident;
  return resident;
}

// CPU time, not wall time: nothing else on the machine can change it.
TEST_F(DemoProcesses, IdleProcessesUseNoCpu) {
  const int seconds = std::getenv("BATON_LONG") != nullptr ? 30 : 6;
  auto cluster = StartCluster(dir_, "shm");
  BlockingHttp http;
  ASSERT_EQ(Complete(&http, cluster->url(), Body(Requests(*model_, 1, true)[0])).status, 200);
  std::this_thread::sleep_for(std::chrono::seconds(1));
  long before = 0, after = 0;
  for (size_t i = 0; i < 3; ++i) before += CpuTicks(cluster->pid(i));
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  for (size_t i = 0; i < 3; ++i) after += CpuTicks(cluster->pid(i));
  const double share = double(after - before) / double(sysconf(_SC_CLK_TCK)) / seconds;
  std::printf("idle: %.3f %% of a core for three processes\n", 100 * share);
  // One tick of slack: the clock's resolution.
  EXPECT_LE(after - before, std::max(1L, long(0.005 * seconds * double(sysconf(_SC_CLK_TCK)))));
}

TEST_F(DemoProcesses, MemoryDoesNotGrowWithRequests) {
  if (std::getenv("BATON_LONG") == nullptr) GTEST_SKIP() << "long: set BATON_LONG=1";
  auto cluster = StartCluster(dir_, "shm", {"--state-slots", "64", "--max-num-seqs", "16"});
  auto run = [&](int from, int to) {
    std::vector<std::thread> threads;
    std::atomic<int> next{from};
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        BlockingHttp http;
        for (int i = next++; i < to; i = next++) {
          engine::GenerateRequest r;
          r.prompt = RandomPrompt(static_cast<uint64_t>(i), 20 + static_cast<size_t>(i % 100),
                                  model_->vocab_size());
          r.sampling.max_tokens = 16;
          r.sampling.temperature = 0;
          EXPECT_EQ(Complete(&http, cluster->url(), Body(r)).status, 200);
        }
      });
    for (auto& t : threads) t.join();
  };
  run(0, 300);
  long at300[3];
  for (size_t i = 0; i < 3; ++i) at300[i] = ResidentPages(cluster->pid(i));
  run(300, 1000);
  for (size_t i = 0; i < 3; ++i) {
    const double ratio = double(ResidentPages(cluster->pid(i))) / double(at300[i]);
    std::printf("RSS of process %zu after 1000 requests / after 300: %.4f\n", i, ratio);
    EXPECT_LE(ratio, 1.02) << i;
  }
}

TEST_F(DemoProcesses, GarbageOnTheHandoffPortHarmsNobody) {
  auto cluster = StartCluster(dir_, "tcp");
  BlockingHttp http;
  const auto health = http.Get(cluster->prefill_url() + "/health");
  ASSERT_TRUE(health.ok());
  const std::string tcp = Json::parse(health->body)["handoff"]["tcp"];
  const int port = std::stoi(tcp.substr(tcp.rfind(':') + 1));
  SplitMix64 rng(1);
  for (int i = 0; i < 40; ++i) {
    const int fd = ConnectTo(port);
    std::string junk(rng.Below(5000), '\0');
    for (char& c : junk) c = static_cast<char>(rng.Next());
    if (i % 3 == 0) junk = "GET / HTTP/1.1\r\n\r\n" + junk;
    (void)!send(fd, junk.data(), junk.size(), MSG_NOSIGNAL);
    if (i % 2 == 0) shutdown(fd, SHUT_WR);
    close(fd);
  }
  const auto requests = Requests(*model_, 2, true);
  const auto truths = Cold(model_, requests);
  for (size_t i = 0; i < requests.size(); ++i)
    EXPECT_EQ(Complete(&http, cluster->url(), Body(requests[i])).tokens, truths[i].tokens);
}

TEST_F(DemoProcesses, ClientGoneInMidStreamFreesTheWorker) {
  auto cluster = StartCluster(dir_, "shm");
  Json body = Body(Requests(*model_, 1, true)[0]);
  body["stream"] = true;
  body["max_tokens"] = 5000;
  const int port = std::stoi(cluster->url().substr(cluster->url().rfind(':') + 1));
  for (int i = 0; i < 20; ++i) {
    const int fd = ConnectTo(port);
    const std::string text = body.dump();
    const std::string request =
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: "
        "application/json\r\nContent-Length: " +
        std::to_string(text.size()) + "\r\n\r\n" + text;
    ASSERT_EQ(send(fd, request.data(), request.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(request.size()));
    char buffer[512];
    for (int piece = 0; piece < 1 + i % 4; ++piece) (void)!recv(fd, buffer, sizeof(buffer), 0);
    close(fd);
  }
  BlockingHttp http;
  bool idle = false;
  for (int i = 0; i < 200 && !idle; ++i) {
    const auto metrics = http.Get(cluster->decode_url() + "/metrics");
    idle =
        metrics.ok() && metrics->body.find("baton:num_requests_running{model_name=\"demo\"} 0") !=
                            std::string::npos;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_TRUE(idle) << "requests of clients that left still run";
}

}  // namespace
}  // namespace baton::testing
