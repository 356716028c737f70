#include "sim/scheduler.h"

#include <sys/single_threaded.h>

#include <algorithm>

#include "base/status.h"

namespace baton::sim {
namespace {

Scheduler* g_current = nullptr;

// More is a livelock: a seed has some thousands.
constexpr uint64_t kSwitchesMax = 300'000;

// Locks taken between two switches.
constexpr uint64_t kLocksMax = 100'000;

std::vector<std::unique_ptr<Stack>>& FreeStacks() {
  static auto* stacks = new std::vector<std::unique_ptr<Stack>>;
  return *stacks;
}

}  // namespace

struct Fiber {
  uint64_t id = 0;
  std::string name;
  std::string group;
  std::function<void()> body;
  Scheduler* scheduler = nullptr;
  std::unique_ptr<Stack> stack;
  Context context;
  bool done = false;
  bool detached = false;
  bool runnable = false;
  bool timed_out = false;
  uint64_t ticket = 0;  // of the present wait; timers of earlier ones are void
};

Scheduler::Scheduler(uint64_t seed) : rng_(seed), entropy_(seed ^ 0xE47B09Cull) {}

Scheduler::~Scheduler() {
  for (auto& fiber : fibers_)
    if (fiber->stack != nullptr) FreeStacks().push_back(std::move(fiber->stack));
}

Scheduler* Scheduler::current() { return g_current; }
const std::string& Scheduler::NameOf(const Fiber* fiber) { return fiber->name; }
void Scheduler::SetGroup(const std::string& group) { running_->group = group; }
Fiber* Scheduler::StartThread(std::function<void()> body) {
  return Start(running_->group + "/t" + std::to_string(next_id_), std::move(body),
               /*detached=*/false);
}

bool Scheduler::Run(std::function<void()> main) {
  BATON_CHECK(g_current == nullptr);
  g_current = this;
  // The library leaves wake-ups out in a process that never had a second thread.
  __libc_single_threaded = 0;
  Start("main", std::move(main), /*detached=*/true);
  Loop();
  g_current = nullptr;
  return problem_.empty();
}

void Scheduler::Loop() {
  while (problem_.empty()) {
    if (runnable_.empty() && !FireTimer()) break;
    // Timers that are due compete with those who run.
    while (!timers_.empty() && timers_.front().when <= now_) FireTimer();
    if (runnable_.empty()) continue;
    size_t pick = runnable_.size() == 1 ? 0 : rng_.Below(runnable_.size());
    if (first_ != nullptr && first_->runnable)
      pick = static_cast<size_t>(std::find(runnable_.begin(), runnable_.end(), first_) -
                                 runnable_.begin());
    Fiber* fiber = runnable_[pick];
    runnable_.erase(runnable_.begin() + static_cast<ptrdiff_t>(pick));
    fiber->runnable = false;
    now_ += Duration(200 + (switches_ & 63));
    if (++switches_ > kSwitchesMax) {
      problem_ =
          "livelock: no end after " + std::to_string(switches_) + " switches; last " + fiber->name;
      for (const Fiber* f : runnable_) problem_ += ", " + f->name;
      return;
    }
    SwitchTo(fiber);
    if (fiber->done && fiber->detached) Reap(fiber);
  }
  if (problem_.empty() && alive_ != 0) problem_ = "deadlock: " + Blocked();
}

std::string Scheduler::Blocked() const {
  std::string out;
  for (const auto& fiber : fibers_)
    if (!fiber->done) out += (out.empty() ? "" : ", ") + fiber->name;
  return out + " wait for ever";
}

void Scheduler::SwitchTo(Fiber* fiber) {
  running_ = fiber;
  locks_ = 0;
  Context::Switch(&main_, &fiber->context, /*leaving=*/false);
  running_ = nullptr;
}

void Scheduler::Entry(void* argument) {
  auto* fiber = static_cast<Fiber*>(argument);
  Scheduler* self = fiber->scheduler;
  fiber->body();
  fiber->body = nullptr;
  fiber->done = true;
  --self->alive_;
  self->Wake(fiber, /*all=*/true);
  Context::Switch(&fiber->context, &self->main_, /*leaving=*/true);
}

Fiber* Scheduler::Start(std::string name, std::function<void()> body, bool detached) {
  auto fiber = std::make_unique<Fiber>();
  fiber->id = next_id_++;
  fiber->name = std::move(name);
  fiber->group = running_ == nullptr ? "" : running_->group;
  fiber->body = std::move(body);
  fiber->scheduler = this;
  fiber->detached = detached;
  if (FreeStacks().empty()) {
    fiber->stack = std::make_unique<Stack>();
  } else {
    fiber->stack = std::move(FreeStacks().back());
    FreeStacks().pop_back();
  }
  fiber->context.Prepare(*fiber->stack, &Scheduler::Entry, fiber.get());
  ++alive_;
  MakeRunnable(fiber.get());
  fibers_.push_back(std::move(fiber));
  return fibers_.back().get();
}

void Scheduler::Reap(Fiber* fiber) {
  if (first_ == fiber) first_ = nullptr;
  FreeStacks().push_back(std::move(fiber->stack));
  const auto at =
      std::find_if(fibers_.begin(), fibers_.end(), [&](const auto& f) { return f.get() == fiber; });
  // Timers of its past waits may still point here.
  std::erase_if(timers_, [&](const Timer& t) { return t.fiber == fiber; });
  std::make_heap(timers_.begin(), timers_.end());
  fibers_.erase(at);
}

void Scheduler::Join(Fiber* fiber) {
  while (!fiber->done) WaitOn(fiber, Instant::max());
  Reap(fiber);
}

void Scheduler::Detach(Fiber* fiber) {
  fiber->detached = true;
  if (fiber->done) Reap(fiber);
}

void Scheduler::MakeRunnable(Fiber* fiber) {
  BATON_CHECK(!fiber->runnable);
  fiber->runnable = true;
  runnable_.push_back(fiber);
}

void Scheduler::Block() { Context::Switch(&running_->context, &main_, /*leaving=*/false); }

void Scheduler::Yield() {
  MakeRunnable(running_);
  Block();
}

void Scheduler::MaybePreempt() {
  if (preempt_one_in_ != 0 && rng_.Below(preempt_one_in_) == 0) Yield();
}

void Scheduler::SleepUntil(Instant when) { WaitOn(nullptr, when); }

bool Scheduler::WaitOn(const void* address, Instant deadline) {
  Fiber* fiber = running_;
  ++fiber->ticket;
  fiber->timed_out = false;
  if (address != nullptr) waiting_.emplace_back(address, fiber);
  if (deadline != Instant::max()) {
    timers_.push_back({deadline, timer_order_++, fiber, fiber->ticket});
    std::push_heap(timers_.begin(), timers_.end());
  }
  Block();
  ++fiber->ticket;
  return !fiber->timed_out;
}

// Takes the earliest timer; false if there is none. It may be void.
bool Scheduler::FireTimer() {
  if (timers_.empty()) return false;
  std::pop_heap(timers_.begin(), timers_.end());
  const Timer timer = timers_.back();
  timers_.pop_back();
  Fiber* fiber = timer.fiber;
  if (fiber->done || fiber->runnable || fiber->ticket != timer.ticket || fiber == running_)
    return true;
  now_ = std::max(now_, timer.when);
  fiber->timed_out = true;
  std::erase_if(waiting_, [&](const auto& w) { return w.second == fiber; });
  MakeRunnable(fiber);
  return true;
}

void Scheduler::Wake(const void* address, bool all) {
  if (all) {
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      if (it->first != address) {
        ++it;
        continue;
      }
      MakeRunnable(it->second);
      it = waiting_.erase(it);
    }
    return;
  }
  // Which waiter a notify wakes is nobody's promise.
  size_t n = 0;
  for (const auto& w : waiting_) n += w.first == address;
  if (n == 0) return;
  size_t pick = n == 1 ? 0 : rng_.Below(n);
  for (auto it = waiting_.begin(); it != waiting_.end(); ++it) {
    if (it->first != address || pick-- != 0) continue;
    MakeRunnable(it->second);
    waiting_.erase(it);
    return;
  }
}

bool Scheduler::TryLock(uint32_t* word) {
  if (*word != 0) return false;
  *word = 1;
  return true;
}

void Scheduler::Lock(void* mutex, uint32_t* word) {
  MaybePreempt();
  if (++locks_ > kLocksMax) {
    Abandon("livelock: " + running_->name + " goes round without waiting for anything");
    SleepUntil(Instant::max());
  }
  while (!TryLock(word)) WaitOn(mutex, Instant::max());
}

void Scheduler::Unlock(void* mutex, uint32_t* word) {
  BATON_CHECK(*word == 1);
  *word = 0;
  Wake(mutex, /*all=*/false);
}

}  // namespace baton::sim
