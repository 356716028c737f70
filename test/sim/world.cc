#include "sim/world.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/node_info.h"
#include "server/worker_call.h"
#include "sim/defects.h"

namespace baton::sim {
namespace {

using engine::GenerateRequest;
using engine::GenerateResult;
using engine::TokenEvent;
using engine::Worker;
using engine::WorkerOptions;

constexpr uint16_t kFirstPort = 9000;

}  // namespace

// Every result of a request ends here, on the router's io fiber.
class World::Sink final : public engine::GenerationSink {
 public:
  Sink(World* world, Request* request) : world_(world), request_(request) {}
  void OnTokens(std::span<const TokenEvent> events) override {
    for (const TokenEvent& e : events) request_->got.push_back(e.token);
    if (request_->result.has_value()) world_->Violation("tokens after the end of a request");
  }
  void OnFinish(const GenerateResult& result) override {
    if (request_->result.has_value()) return world_->Violation("a request ended twice");
    request_->result = result;
    --world_->open_;
    world_->trace_.Event("finish", request_->index, static_cast<uint64_t>(result.reason), [&] {
      return absl::StrCat("r", request_->index, " after ", request_->got.size(), " tokens",
                          result.error.ok() ? "" : ": ", std::string(result.error.message()));
    });
    world_->CheckAnswer(*request_);
    world_->scheduler_->Wake(world_, /*all=*/true);
  }

 private:
  World* const world_;
  Request* const request_;
};

World::World(const RunOptions& options, Scheduler* scheduler)
    : options_(options),
      scheduler_(scheduler),
      trace_(scheduler, options.print),
      plan_(options.seed),
      rng_(options.seed ^ 0x3047ull),
      oracle_([this](const std::string& text) { Violation(text); }),
      model_(&oracle_, scheduler) {}

void World::Violation(const std::string& text) {
  trace_.Event("VIOLATION", 0, 0, [&] { return text; });
  if (result_.violation.empty()) result_.violation = text;
  // Nothing that follows would mean anything.
  scheduler_->Abandon(text);
  scheduler_->SleepUntil(Instant::max());
}

void World::StartNode(Node* node) {
  node->machine = std::make_shared<Machine>();
  node->stale.clear();
  node->machine->index = node->index;
  node->machine->name = node->name;
  WorkerOptions o;
  o.engine.pull_threads = 3;
  o.engine.max_num_seqs = 6;
  o.engine.token_budget = token_budget_;
  o.engine.hint_peers = {"sim:*", "sim2:*"};
  o.engine.handoff_retries = 1;
  o.engine.handoff_timeout = std::chrono::milliseconds(1500);
  o.engine.serve_from_cache_only = false;
  o.memory.slots = slots_;
  o.memory.blocks = blocks_;
  if (elastic_) o.memory.budget_bytes = engine::NodeMemoryBytes(model_.layout(), slots_, blocks_);
  o.engine.step_compact_bytes = elastic_ ? 4096 : 0;
  o.memory.checks_off = PoolChecksFor(options_.defect);
  o.checks = ChecksFor(options_.defect);
  o.lease = std::chrono::milliseconds(1000);
  o.connect_timeout = std::chrono::milliseconds(300);
  o.listen = {"sim:" + node->name, "sim2:" + node->name};
  o.connectors = std::make_unique<ConnectorSet>();
  o.connectors->Add(net_->NewConnector("sim", node->machine));
  o.connectors->Add(net_->NewConnector("sim2", node->machine));
  o.listen_with = [this, node](const ListenOptions& listen) {
    return net_->Listen(listen, node->machine);
  };
  struct Provider final : BundleProvider {
    Provider(Network* network, BundleProvider* provider) : net(network), inner(provider) {}
    StatusOr<std::unique_ptr<ServedBundle>> Provide(const Ask& ask,
                                                    Instant deadline,
                                                    const CancelToken& cancel) override {
      return ProvideStreaming(ask, deadline, cancel, nullptr);
    }
    StatusOr<std::unique_ptr<ServedBundle>> ProvideStreaming(
        const Ask& ask,
        Instant deadline,
        const CancelToken& cancel,
        const std::shared_ptr<BlockStream>& stream) override {
      if (Session* s = net->Current()) net->AtStage(*s, Stage::kProvide);
      return inner->ProvideStreaming(ask, deadline, cancel, stream);
    }
    Network* net;
    BundleProvider* inner;
  };
  o.wrap_provider = [this](BundleProvider* inner) {
    return std::make_unique<Provider>(net_.get(), inner);
  };
  scheduler_->SetGroup(node->name);
  auto worker = Worker::Create(&model_, std::move(o));
  scheduler_->SetGroup("");
  BATON_CHECK(worker.ok());
  node->worker = *std::move(worker);
  node->calls = std::make_shared<server::ActiveCalls>(64);
  const auto port = static_cast<uint16_t>(kFirstPort + node->index);
  http_->Serve(port, node->machine, [this, node](server::HttpRequest r, auto exchange) {
    if (r.path == "/internal/generate") {
      std::make_shared<server::WorkerCall>(&node->worker->engine(), exchange)
          ->Run(r.body, node->calls.get());
      return;
    }
    server::NodeInfo info;
    info.role = node->prefill ? "prefill" : "decode";
    info.model = "fake";
    info.fingerprint = model_.fingerprint().Hex();
    info.epoch = node->worker->self().epoch.Hex();
    for (const char* scheme : {"sim", "sim2"})
      info.handoff[scheme] = node->worker->EndpointOf(scheme);
    info.max_model_len = model_.max_model_len();
    info.vocab_size = model_.vocab_size();
    server::HttpResponse response;
    response.body = DumpJson(server::NodeInfoToJson(info, "ok"));
    exchange->Send(std::move(response));
  });
}

void World::Restart(size_t index) {
  Node* node = nodes_[index].get();
  if (node->restarting) return;
  node->restarting = true;
  ++result_.restarts;
  trace_.Event("crash", index, 0, [&] { return node->name; });
  node->machine->up = false;
  net_->Cut(*node->machine);
  http_->Cut(*node->machine);
  scheduler_->Start(
      "reaper", [this, node] { RestartMain(node); }, /*detached=*/true);
}

// What is still running of a dead machine is wound up unheard, then the next incarnation starts.
void World::RestartMain(Node* node) {
  node->worker->Stop();
  AwaitQuiet();
  CheckQuiet(node);
  node->worker.reset();
  scheduler_->SleepUntil(scheduler_->now() + std::chrono::milliseconds(1 + rng_.Below(300)));
  StartNode(node);
  node->restarting = false;
  trace_.Event("up", node->index, 0, [&] { return node->name; });
  scheduler_->Wake(this, /*all=*/true);
}

void World::StartRouter() {
  server::RouterOptions r;
  for (const auto& node : nodes_) {
    const server::HttpAddress address{"127.0.0.1", static_cast<uint16_t>(kFirstPort + node->index)};
    (node->prefill ? r.prefill : r.decode).push_back(address);
  }
  r.connectors = {connectors_};
  r.health_interval_ms = 400;
  r.worker_wait_ms = 120'000;
  r.attempts_max = 1000;
  r.max_model_len = model_.max_model_len();
  r.vocab_size = model_.vocab_size();
  router_ = std::make_unique<server::RemoteGenerator>(io_.get(), std::move(r));
  router_->StartHealthChecks();
}

GenerateRequest World::NewRequest(size_t index) {
  GenerateRequest r;
  // Histories share beginnings, so that checkpoints, forks and hints happen.
  r.prompt = openings_[rng_.Below(openings_.size())];
  r.prompt.resize(std::min<size_t>(r.prompt.size(), rng_.Below(r.prompt.size() + 1)));
  const size_t more = 1 + rng_.Below(24);
  for (size_t i = 0; i < more; ++i)
    r.prompt.push_back(
        static_cast<TokenId>(rng_.Below(static_cast<uint64_t>(model_.vocab_size()))));
  if (rng_.Below(4) == 0 && index > 0) {  // a next turn: all of an earlier one, and more
    const Request& earlier = *requests_[rng_.Below(index)];
    std::vector<TokenId> turn = earlier.request.prompt;
    turn.insert(turn.end(), earlier.answer.begin(), earlier.answer.end());
    if (turn.size() + r.prompt.size() < 128) {
      turn.insert(turn.end(), r.prompt.begin(), r.prompt.end());
      r.prompt = std::move(turn);
    }
  }
  if (rng_.Below(6) == 0 && index > 0) r.prompt = requests_[rng_.Below(index)]->request.prompt;
  if (rng_.Below(4) == 0 && r.prompt.size() > 16) r.prompt.resize(r.prompt.size() / 16 * 16);
  r.sampling.temperature = rng_.Below(2) == 0 ? 0.0 : 0.8;
  r.sampling.seed = rng_.Next();
  r.sampling.max_tokens = static_cast<int64_t>(1 + rng_.Below(10));
  r.sampling.ignore_eos = true;
  if (rng_.Below(4) == 0) r.cache_salt = "tenant";
  r.label = absl::StrCat("r", index);
  return r;
}

void World::Submit() {
  const size_t index = requests_.size();
  auto owned = std::make_unique<Request>();
  Request* request = owned.get();
  request->index = index;
  request->request = NewRequest(index);
  request->answer = oracle_.Answer(request->request);
  requests_.push_back(std::move(owned));
  ++open_;
  trace_.Event("request", index, request->request.prompt.size(), [&] {
    return absl::StrCat("r", index, ": ", request->request.prompt.size(), " tokens, then ",
                        request->answer.size());
  });
  auto started = router_->Start(request->request, std::make_shared<Sink>(this, request));
  if (!started.ok()) {
    Violation(
        absl::StrCat("the router refused r", index, ": ", std::string(started.status().message())));
    --open_;
    return;
  }
  request->generation = *std::move(started);
}

void World::Cancel(Request* request) {
  if (request->result.has_value() || request->generation == nullptr) return;
  if (!request->cancelled) ++result_.cancelled;
  request->cancelled = true;
  request->generation->Cancel();
}

// Moves whatever may move, all the time.
void World::Compact() {
  SplitMix64 rng(options_.seed ^ 0xC0117AC7ull);
  while (compacting_) {
    scheduler_->SleepUntil(scheduler_->now() + std::chrono::microseconds(300 + rng.Below(4000)));
    Node* node = nodes_[rng.Below(nodes_.size())].get();
    if (node->restarting || !compacting_) continue;
    engine::NodeMemory& memory = node->worker->memory();
    StatusOr<bool> moved = false;
    if (memory.elastic() != nullptr) {
      const auto packed = memory.Compact(1 + rng.Below(4096));
      if (!packed.ok()) moved = packed.status();
      if (packed.ok()) moved = packed->bytes_moved != 0;
    } else {
      moved = rng.Below(2) == 0 ? memory.slots()->CompactOne() : memory.blocks(0)->CompactOne();
    }
    if (!moved.ok()) Violation("I3: " + moved.status().ToString());
    if (!node->restarting) Probe(node);
    if (moved.ok() && *moved) {
      trace_.Event("move", node->index, 0, [&] { return node->name; });
    }
  }
}

// Late writes have landed after that.
void World::AwaitQuiet() {
  scheduler_->SleepUntil(scheduler_->now() + std::chrono::milliseconds(50));
}

// I7: every request is answered, whatever has happened to it.
void World::AwaitAnswers() {
  const Instant patience = scheduler_->now() + std::chrono::minutes(2);
  while (open_ != 0)
    if (!scheduler_->WaitOn(this, patience))
      return Violation(absl::StrCat(open_, " requests were never answered"));
}

// No more faults, all answers in, everything back.
void World::Drain() {
  plan_.Stop();
  AwaitAnswers();
  compacting_ = false;
  auditing_ = false;
  result_.failovers = static_cast<uint64_t>(router_->failovers());
  scheduler_->Wake(trace_.event_address(), /*all=*/true);
  router_->Stop();
  for (auto& node : nodes_)
    while (node->restarting)
      scheduler_->SleepUntil(scheduler_->now() + std::chrono::milliseconds(5));
  for (auto& node : nodes_) {
    node->worker->Stop();
    AwaitQuiet();
    CheckQuiet(node.get());
  }
  io_->Stop();
  http_->Stop();
  net_->Stop();
  for (auto& request : requests_) request->generation.reset();
  router_.reset();
  for (auto& node : nodes_) node->worker.reset();
  if (net_->sessions() != 0) Violation(absl::StrCat(net_->sessions(), " links were never closed"));
}

void World::Main() {
  scheduler_->set_preempt_one_in(std::vector<uint32_t>{0, 0, 64, 16, 4}[rng_.Below(5)]);
  net_ = std::make_unique<Network>(
      scheduler_, &trace_, &plan_,
      NetworkHooks{[this](size_t machine) { Restart(machine); },
                   [this](const Session& s) {
                     if (!s.facts->ask.has_value() || s.facts->ask->label.empty()) return;
                     const size_t index = std::stoul(s.facts->ask->label.substr(1));
                     Cancel(requests_[index].get());
                   },
                   [this](const Session& s) { Committed(s); },
                   [this](const std::string& text) { Violation(text); }});
  SetBeforeVerify([this] {
    if (Session* s = net_->Current(); s != nullptr && s->machine[kReceiver]->up)
      net_->AtStage(*s, Stage::kVerify);
  });
  http_ = std::make_unique<SimHttp>(scheduler_, &trace_, &plan_);
  io_ = std::make_unique<server::IoPool>(1);
  elastic_ = rng_.Below(2) == 0;
  token_budget_ = static_cast<int64_t>(8 + rng_.Below(41));
  constexpr const char* kPlans[] = {"sim", "kv=sim,state=sim2", "state=sim,kv=sim2"};
  connectors_ = kPlans[rng_.Below(3)];
  slots_ = static_cast<uint32_t>(8 + rng_.Below(7));
  blocks_ = static_cast<uint32_t>(24 + rng_.Below(25));
  const size_t prefill = 1 + rng_.Below(2);
  const size_t decode = 1 + rng_.Below(3);
  for (size_t i = 0; i < prefill + decode; ++i) {
    auto node = std::make_unique<Node>();
    node->index = i;
    node->prefill = i < prefill;
    node->name = node->prefill ? absl::StrCat("prefill", i) : absl::StrCat("decode", i - prefill);
    StartNode(node.get());
    nodes_.push_back(std::move(node));
  }
  for (size_t i = 0; i < 3; ++i) {
    openings_.emplace_back();
    for (size_t n = 16 + rng_.Below(64); n > 0; --n)
      openings_.back().push_back(
          static_cast<TokenId>(rng_.Below(static_cast<uint64_t>(model_.vocab_size()))));
  }
  StartRouter();
  while (!router_->Ready())
    scheduler_->SleepUntil(scheduler_->now() + std::chrono::milliseconds(1));
  Fiber* auditor = scheduler_->Start(
      "oracle", [this] { Audit(); }, /*detached=*/true);
  scheduler_->set_first(auditor);
  scheduler_->Start(
      "compactor", [this] { Compact(); }, /*detached=*/true);
  const uint64_t pace = 1 + rng_.Below(6);
  // Until enough has happened: requests one by one or in bursts.
  while (trace_.count() < options_.events) {
    for (uint64_t burst = 1 + (rng_.Below(3) == 0 ? rng_.Below(5) : 0); burst > 0; --burst)
      Submit();
    scheduler_->SleepUntil(scheduler_->now() +
                           std::chrono::microseconds(pace * (200 + rng_.Below(3000))));
    // What is under way will be events too.
    const Instant patience = scheduler_->now() + std::chrono::seconds(2);
    while (open_ != 0 && trace_.count() < options_.events &&
           trace_.count() + 12 * open_ >= options_.events && scheduler_->WaitOn(this, patience)) {
    }
  }
  Drain();
}

RunResult World::Result() const {
  RunResult r = result_;
  r.hash = trace_.hash();
  r.events = trace_.count();
  r.switches = scheduler_->switches();
  r.requests = requests_.size();
  r.clean = plan_.clean();
  r.faults = plan_.table();
  return r;
}

}  // namespace baton::sim
