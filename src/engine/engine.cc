#include "engine/engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "connector/frame.h"

namespace baton::engine {
namespace {

// Between two looks at the quarantine while somebody waits for what is in it; and how far apart two
// of them are that do not belong to one wait.
constexpr Duration kQuietPoll = std::chrono::milliseconds(5);
constexpr Duration kReclaimGap = std::chrono::seconds(1);

// Counts the request as ended when its sink has heard so.
class CountingSink final : public GenerationSink {
 public:
  CountingSink(std::shared_ptr<GenerationSink> inner, std::atomic<int64_t>* active)
      : inner_(std::move(inner)), active_(active) {}
  void OnTokens(std::span<const TokenEvent> events) override { inner_->OnTokens(events); }
  void OnFinish(const GenerateResult& result) override {
    active_->fetch_sub(1);
    inner_->OnFinish(result);
  }

 private:
  std::shared_ptr<GenerationSink> inner_;
  std::atomic<int64_t>* active_;
};

// A checkpoint pinned for one peer. The engine is woken when it lets go, since memory may have
// become free.
class PinnedCheckpoint final : public ServedBundle {
 public:
  PinnedCheckpoint(std::shared_ptr<const Checkpoint> checkpoint, std::function<void()> released)
      : checkpoint_(std::move(checkpoint)), released_(std::move(released)) {}
  ~PinnedCheckpoint() override {
    blocks.clear();
    slot.Release();
    checkpoint_.reset();
    released_();
  }

 private:
  std::shared_ptr<const Checkpoint> checkpoint_;
  std::function<void()> released_;
};

Status Pin(const Checkpoint& c, NodeMemory& memory, ServedBundle* out) {
  out->seal = c.seal();
  out->block_digests = c.block_digests();
  if (c.slot().has_value()) {
    BATON_ASSIGN_OR_RETURN(out->slot, memory.slots()->Acquire(*c.slot(), LeaseFor::kSend));
  }
  out->blocks.resize(c.blocks().size());
  for (size_t g = 0; g < c.blocks().size(); ++g) {
    for (const BlockHandle block : c.blocks()[g]) {
      BATON_ASSIGN_OR_RETURN(BlockLease lease, memory.blocks(g)->Acquire(block, LeaseFor::kSend));
      out->blocks[g].push_back(std::move(lease));
    }
  }
  return absl::OkStatus();
}

bool MayPullFrom(const std::vector<std::string>& peers, const std::string& endpoint) {
  return std::any_of(peers.begin(), peers.end(), [&](const std::string& peer) {
    if (peer.empty() || peer.back() != '*') return peer == endpoint;
    return endpoint.starts_with(std::string_view(peer).substr(0, peer.size() - 1));
  });
}

Status Validate(const GenerateRequest& r, int64_t vocab, int64_t max_model_len) {
  const auto n = static_cast<int64_t>(r.prompt.size());
  if (n == 0) return absl::InvalidArgumentError("prompt is empty; send at least one token");
  if (n >= max_model_len)
    return absl::InvalidArgumentError(
        absl::StrCat("prompt has ", n, " tokens; this server's context is ", max_model_len,
                     " tokens, prompt and output together"));
  for (TokenId t : r.prompt)
    if (t >= vocab)
      return absl::InvalidArgumentError(
          absl::StrCat("prompt contains token id ", t, "; the vocabulary has ", vocab));
  if (r.prompt_len < 0 || r.prompt_len > n)
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_len is ", r.prompt_len, "; allowed: 0 to ", n));
  if (r.sampling.prompt_logprobs >= 0 &&
      n * (int64_t{r.sampling.prompt_logprobs} + 1) > kPromptScoresMax)
    return absl::InvalidArgumentError(
        absl::StrCat("prompt_logprobs is ", r.sampling.prompt_logprobs, " for a prompt of ", n,
                     " tokens; tokens x (prompt_logprobs + 1) may be ", kPromptScoresMax));
  return ValidateSampling(r.sampling, vocab);
}

// A peer's tokens are a stranger's: what no request could contain is refused before it is queued,
// so that it neither fails a step that others share nor waits for memory that will never do.
Status ValidateAsk(const Ask& ask, int64_t vocab, int64_t max_model_len) {
  if (static_cast<int64_t>(ask.tokens.size()) > max_model_len)
    return Reject(Reason::kNoCapacity,
                  absl::StrCat("ask for ", ask.tokens.size(), " tokens; this worker's context is ",
                               max_model_len));
  for (TokenId t : ask.tokens)
    if (t >= vocab)
      return Reject(Reason::kMalformed,
                    absl::StrCat("ask contains token id ", t, "; the vocabulary has ", vocab));
  return absl::OkStatus();
}

}  // namespace

class Engine::Handle final : public Generation {
 public:
  Handle(Engine* engine, OwnerId owner) : engine_(engine), owner_(owner) {}
  void Cancel() override {
    engine_->Post([owner = owner_](Core& core) { core.Cancel(owner); });
  }

 private:
  Engine* engine_;
  OwnerId owner_;
};

Engine::Engine(EngineDeps deps, EngineOptions options)
    : deps_(std::move(deps)), options_(std::move(options)) {
  CoreDeps core;
  core.model = deps_.model;
  core.memory = deps_.memory;
  core.self = deps_.self;
  core.checks = deps_.checks;
  core.on_parked = deps_.on_parked;
  Tiering::Options tiering;
  tiering.tiers = std::move(deps_.tiers);
  const bool pulls = deps_.client != nullptr || !tiering.tiers.empty();
  tiers_ = std::make_unique<Tiering>(std::move(tiering), &deps_.model->layout(),
                                     deps_.memory->pools(), [this] { Post([](Core&) {}); });
  core.tiers = tiers_.get();
  core.can_pull = deps_.client != nullptr;
  if (core.can_pull) core.reclaim = [this] { return Reclaim(); };
  if (pulls) {
    core.start_pull = [this](PullTask task) {
      task.request.deadline = deps_.clock->Now() + options_.handoff_timeout;
      MutexLock lock(&pull_mu_);
      pulls_.push_back(std::move(task));
      pull_wake_.NotifyOne();
    };
  }
  core_ = std::make_unique<Core>(std::move(core), options_);
  max_model_len_ = core_->max_model_len();
  thread_ = std::thread([this] { Main(); });
  if (pulls)
    for (int i = 0; i < options_.pull_threads; ++i)
      pull_threads_.emplace_back([this] { PullMain(); });
}

Engine::~Engine() { Stop(); }

StatusOr<std::shared_ptr<Generation>> Engine::Start(GenerateRequest request,
                                                    std::shared_ptr<GenerationSink> sink) {
  BATON_RETURN_IF_ERROR(Validate(request, vocab_size(), max_model_len_));
  if (draining_.load())
    return absl::UnavailableError("the server is shutting down; send the request elsewhere");
  if (active_.load() >= options_.max_num_seqs + options_.max_waiting)
    return absl::ResourceExhaustedError(
        absl::StrCat("the queue is full (", options_.max_waiting, " waiting); try again later"));
  auto s = std::make_unique<Sequence>();
  s->owner = OwnerId(next_owner_.fetch_add(1));
  s->tokens = request.prompt;
  if (request.prompt_len == 0) request.prompt_len = static_cast<int64_t>(request.prompt.size());
  if (request.logits_hash.has_value()) s->logits_hash = *request.logits_hash;
  s->result.usage.prompt_tokens = request.prompt_len;
  const int64_t g = HandoffBoundary(static_cast<int64_t>(request.prompt.size()));
  if (!request.prefill_endpoint.empty() && g > 0 && request.sampling.prompt_logprobs < 0)
    s->pull = PullPlan{request.prefill_endpoint, g, options_.handoff_retries, INT64_MAX};
  s->request = std::move(request);
  active_.fetch_add(1);
  s->sink = std::make_shared<CountingSink>(std::move(sink), &active_);
  auto handle = std::make_shared<Handle>(this, s->owner);
  auto boxed = std::make_shared<std::unique_ptr<Sequence>>(std::move(s));
  Post([boxed](Core& core) { core.Add(std::move(*boxed)); });
  return std::shared_ptr<Generation>(handle);
}

StatusOr<std::unique_ptr<ServedBundle>> Engine::Provide(const Ask& ask,
                                                        Instant deadline,
                                                        const CancelToken& cancel) {
  return ProvideStreaming(ask, deadline, cancel, nullptr);
}

StatusOr<std::unique_ptr<ServedBundle>> Engine::ProvideStreaming(
    const Ask& ask,
    Instant deadline,
    const CancelToken& cancel,
    const std::shared_ptr<BlockStream>& stream) {
  BATON_RETURN_IF_ERROR(ValidateAsk(ask, vocab_size(), max_model_len_));
  struct Wait {
    Mutex mu;
    CondVar done;
    std::optional<StatusOr<std::shared_ptr<const Checkpoint>>> bundle BATON_GUARDED_BY(mu);
    int64_t reused BATON_GUARDED_BY(mu) = 0;
  };
  auto wait = std::make_shared<Wait>();
  auto s = std::make_unique<Sequence>();
  s->owner = OwnerId(next_owner_.fetch_add(1));
  const OwnerId owner = s->owner;
  s->tokens = ask.tokens;
  s->target = static_cast<int64_t>(ask.expected.boundary);
  s->stream = stream;
  s->on_blocks_released = [this] { Post([](Core& core) { core.BlocksReleased(); }); };
  if (ask.hint.has_value() && static_cast<int64_t>(ask.hint->boundary) <= s->target) {
    if (MayPullFrom(options_.hint_peers, ask.hint->endpoint)) {
      s->pull.emplace();
      s->pull->endpoint = ask.hint->endpoint;
      s->pull->boundary = static_cast<int64_t>(ask.hint->boundary);
    } else if (core_->stats().hints_ignored.fetch_add(1) == 0) {
      LogWarning(absl::StrCat("a peer offers its checkpoint at ", Printable(ask.hint->endpoint),
                              ", which is no configured hand-off peer: ignored"));
    }
  }
  s->deliver = [wait](StatusOr<std::shared_ptr<const Checkpoint>> bundle, int64_t reused) {
    MutexLock lock(&wait->mu);
    wait->reused = reused;
    wait->bundle.emplace(std::move(bundle));
    wait->done.NotifyAll();
  };
  const IdentityBase base{ask.expected.model, ask.expected.layout, ask.expected.scope};
  auto boxed = std::make_shared<std::unique_ptr<Sequence>>(std::move(s));
  Post([boxed, base](Core& core) { core.AddJob(std::move(*boxed), base); });
  CancelCallback on_cancel(cancel, [wait] {
    MutexLock lock(&wait->mu);
    wait->done.NotifyAll();
  });
  std::optional<StatusOr<std::shared_ptr<const Checkpoint>>> bundle;
  int64_t reused = 0;
  {
    MutexLock lock(&wait->mu);
    while (!wait->bundle.has_value() && !cancel.stop_requested()) {
      const Duration left = deadline - deps_.clock->Now();
      if (left <= Duration::zero()) break;
      wait->done.WaitFor(&wait->mu, left);
    }
    bundle = std::move(wait->bundle);
    reused = wait->reused;
  }
  if (!bundle.has_value()) {
    Post([owner](Core& core) { core.Cancel(owner); });
    return Reject(Reason::kCancelled, cancel.stop_requested() ? "the asker has gone"
                                                              : "the asker's deadline has passed");
  }
  BATON_RETURN_IF_ERROR(bundle->status());
  std::shared_ptr<const Checkpoint> checkpoint = **std::move(bundle);
  auto served = std::make_unique<PinnedCheckpoint>(checkpoint, [this] { Post([](Core&) {}); });
  BATON_RETURN_IF_ERROR(Pin(*checkpoint, *deps_.memory, served.get()));
  served->reused_tokens = static_cast<uint64_t>(reused);
  return std::unique_ptr<ServedBundle>(std::move(served));
}

void Engine::Drain() { draining_.store(true); }

void Engine::Stop() {
  if (!thread_.joinable()) return;
  draining_.store(true);
  {
    MutexLock lock(&mu_);
    stop_ = true;
    wake_.NotifyAll();
  }
  thread_.join();  // waits for pulls in flight, which have been cancelled
  {
    MutexLock lock(&pull_mu_);
    pull_stop_ = true;
    pull_wake_.NotifyAll();
  }
  for (std::thread& t : pull_threads_) t.join();
  tiers_->Flush();  // what was made outlives this process where a tier does
  tiers_->Stop();
  // What was posted after the last turn still ends properly.
  std::deque<std::function<void(Core&)>> rest;
  {
    MutexLock lock(&mu_);
    rest.swap(inbox_);
  }
  for (auto& fn : rest) fn(*core_);
  core_->AbortAll(Reject(Reason::kCancelled, "the engine is shutting down"));
  core_->DropCheckpoints();
}

void Engine::RunOnEngineThread(const std::function<void(Core&)>& fn) {
  Mutex mu;
  CondVar cv;
  bool done = false;
  Post([&](Core& core) {
    fn(core);
    MutexLock lock(&mu);
    done = true;
    cv.NotifyAll();
  });
  MutexLock lock(&mu);
  while (!done) cv.Wait(&mu);
}

void Engine::Post(std::function<void(Core&)> fn) {
  MutexLock lock(&mu_);
  inbox_.push_back(std::move(fn));
  wake_.NotifyAll();
}

void Engine::Main() {
  kernel::SetCanonicalFpMode();
  bool aborted = false;
  bool scattered = false;  // memory may be worth packing
  for (;;) {
    std::deque<std::function<void(Core&)>> work;
    bool idle = false;
    {
      MutexLock lock(&mu_);
      const auto nothing_to_do = [&]() BATON_REQUIRES(mu_) {
        return inbox_.empty() && !core_->HasRunnable() && !(stop_ && (!aborted || core_->Empty()));
      };
      while (!scattered && !awaiting_quiet_ && nothing_to_do()) wake_.Wait(&mu_);
      // Nobody tells when a writer in quarantine falls silent.
      if (awaiting_quiet_ && nothing_to_do()) wake_.WaitFor(&mu_, kQuietPoll);
      idle = !awaiting_quiet_ && nothing_to_do();
      work.swap(inbox_);
      if (stop_ && work.empty() && aborted && core_->Empty()) return;
      if (stop_ && !aborted) {
        aborted = true;
        work.push_back([](Core& core) {
          core.AbortAll(Reject(Reason::kCancelled, "the engine is shutting down"));
        });
      }
    }
    if (idle) {
      scattered = core_->Compact(options_.idle_compact_bytes);
      continue;
    }
    scattered = true;
    if (!work.empty() || awaiting_quiet_) core_->MemoryMayBeFree();
    awaiting_quiet_ = false;
    for (auto& fn : work) fn(*core_);
    core_->Admit();
    core_->Step();
    if (core_->HasWaiting()) core_->Admit();
  }
}

// Asked when nothing runs and somebody waits for memory. A writer that never falls silent is waited
// for as long as a hand-off may take.
bool Engine::Reclaim() {
  Quarantine& quarantine = deps_.client->quarantine();
  const Instant now = deps_.clock->Now();
  const bool freed = quarantine.Sweep() > 0;
  if (freed || now - reclaim_last_ > kReclaimGap) reclaim_start_ = now;
  reclaim_last_ = now;
  awaiting_quiet_ =
      freed || (quarantine.MayShrink() && now - reclaim_start_ < options_.handoff_timeout);
  return awaiting_quiet_;
}

void Engine::PullMain() {
  for (;;) {
    PullTask task;
    {
      MutexLock lock(&pull_mu_);
      while (pulls_.empty() && !pull_stop_) pull_wake_.Wait(&pull_mu_);
      if (pulls_.empty()) return;
      task = std::move(pulls_.front());
      pulls_.pop_front();
    }
    auto result = std::make_shared<PullResult>(
        task.tier.has_value() ? tiers_->Restore(*task.tier, task.request, task.cancel)
                              : deps_.client->Pull(task.request, task.cancel));
    Post([owner = task.owner, restored = task.tier.has_value(), result](Core& core) {
      restored ? core.OnRestored(owner, std::move(*result))
               : core.OnPulled(owner, std::move(*result));
    });
  }
}

}  // namespace baton::engine
