// Where the simulator takes hold of the program: this executable's own definitions of the C
// library's threads, clocks and entropy, which the linker prefers. std::mutex,
// std::condition_variable, std::thread, std::stop_token, steady_clock and getrandom(2) end here,
// so the production objects run unchanged and no seam is left in serve or route. Outside a
// simulation, and in fibers of none, every call goes on to the C library.
//
// The word of a mutex is the C library's own lock word: a mutex used inside and outside a
// simulation stays one.
#include <dlfcn.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdint>
#include <cstring>

#include "sim/scheduler.h"

namespace {

using baton::Instant;
using baton::sim::Fiber;
using baton::sim::Scheduler;

// The scheduler, if this call comes from one of its fibers.
Scheduler* Sim() {
  Scheduler* s = Scheduler::current();
  return s != nullptr && s->running() != nullptr ? s : nullptr;
}

template <class Fn>
Fn Next(const char* name) {
  return reinterpret_cast<Fn>(dlsym(RTLD_NEXT, name));
}
#define BATON_NEXT(fn) static const auto next = Next<decltype(&fn)>(#fn)

uint32_t* Word(pthread_mutex_t* m) { return reinterpret_cast<uint32_t*>(&m->__data.__lock); }

Instant ToInstant(const timespec& t) {
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}
timespec ToTimespec(Instant t) {
  return {static_cast<time_t>(t.count() / 1'000'000'000),
          static_cast<long>(t.count() % 1'000'000'000)};
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* m) {
  if (Scheduler* s = Sim()) {
    s->Lock(m, Word(m));
    return 0;
  }
  BATON_NEXT(pthread_mutex_lock);
  return next(m);
}

int pthread_mutex_trylock(pthread_mutex_t* m) {
  if (Scheduler* s = Sim()) return s->TryLock(Word(m)) ? 0 : EBUSY;
  BATON_NEXT(pthread_mutex_trylock);
  return next(m);
}

int pthread_mutex_unlock(pthread_mutex_t* m) {
  if (Scheduler* s = Sim()) {
    s->Unlock(m, Word(m));
    return 0;
  }
  BATON_NEXT(pthread_mutex_unlock);
  return next(m);
}

int pthread_cond_wait(pthread_cond_t* c, pthread_mutex_t* m) {
  if (Scheduler* s = Sim()) {
    s->Unlock(m, Word(m));
    s->WaitOn(c, Instant::max());
    s->Lock(m, Word(m));
    return 0;
  }
  BATON_NEXT(pthread_cond_wait);
  return next(c, m);
}

// All clocks of a simulation are one.
int pthread_cond_clockwait(pthread_cond_t* c,
                           pthread_mutex_t* m,
                           clockid_t clock,
                           const timespec* until) {
  if (Scheduler* s = Sim()) {
    s->Unlock(m, Word(m));
    const bool woken = s->WaitOn(c, ToInstant(*until));
    s->Lock(m, Word(m));
    return woken ? 0 : ETIMEDOUT;
  }
  BATON_NEXT(pthread_cond_clockwait);
  return next(c, m, clock, until);
}

int pthread_cond_timedwait(pthread_cond_t* c, pthread_mutex_t* m, const timespec* until) {
  if (Sim() != nullptr) return pthread_cond_clockwait(c, m, CLOCK_MONOTONIC, until);
  BATON_NEXT(pthread_cond_timedwait);
  return next(c, m, until);
}

int pthread_cond_signal(pthread_cond_t* c) {
  if (Scheduler* s = Sim()) {
    s->Wake(c, /*all=*/false);
    return 0;
  }
  BATON_NEXT(pthread_cond_signal);
  return next(c);
}

int pthread_cond_broadcast(pthread_cond_t* c) {
  if (Scheduler* s = Sim()) {
    s->Wake(c, /*all=*/true);
    return 0;
  }
  BATON_NEXT(pthread_cond_broadcast);
  return next(c);
}

int pthread_cond_destroy(pthread_cond_t* c) {
  if (Sim() != nullptr) return 0;
  BATON_NEXT(pthread_cond_destroy);
  return next(c);
}

int pthread_create(pthread_t* thread,
                   const pthread_attr_t* attr,
                   void* (*start)(void*),
                   void* argument) {
  if (Scheduler* s = Sim()) {
    Fiber* fiber = s->StartThread([start, argument] { start(argument); });
    *thread = reinterpret_cast<pthread_t>(fiber);
    s->MaybePreempt();
    return 0;
  }
  BATON_NEXT(pthread_create);
  return next(thread, attr, start, argument);
}

int pthread_join(pthread_t thread, void** result) {
  if (Scheduler* s = Sim()) {
    s->Join(reinterpret_cast<Fiber*>(thread));
    return 0;
  }
  BATON_NEXT(pthread_join);
  return next(thread, result);
}

int pthread_detach(pthread_t thread) {
  if (Scheduler* s = Sim()) {
    s->Detach(reinterpret_cast<Fiber*>(thread));
    return 0;
  }
  BATON_NEXT(pthread_detach);
  return next(thread);
}

// Distinct per fiber: a stop_callback compares it.
pthread_t pthread_self() {
  if (Scheduler* s = Sim()) return reinterpret_cast<pthread_t>(s->running());
  BATON_NEXT(pthread_self);
  return next();
}

int sched_yield() {
  if (Scheduler* s = Sim()) {
    s->Yield();
    return 0;
  }
  BATON_NEXT(sched_yield);
  return next();
}

int clock_nanosleep(clockid_t clock, int flags, const timespec* request, timespec* rest) {
  if (Scheduler* s = Sim()) {
    const Instant t = ToInstant(*request);
    s->SleepUntil((flags & TIMER_ABSTIME) != 0 ? t : s->now() + t);
    return 0;
  }
  BATON_NEXT(clock_nanosleep);
  return next(clock, flags, request, rest);
}

int nanosleep(const timespec* request, timespec* rest) {
  if (Scheduler* s = Sim()) {
    s->SleepUntil(s->now() + ToInstant(*request));
    return 0;
  }
  BATON_NEXT(nanosleep);
  return next(request, rest);
}

int clock_gettime(clockid_t clock, timespec* out) noexcept {
  if (Scheduler* s = Scheduler::current()) {
    *out = ToTimespec(s->now());
    return 0;
  }
  BATON_NEXT(clock_gettime);
  return next(clock, out);
}

ssize_t getrandom(void* buffer, size_t length, unsigned int flags) {
  if (Scheduler* s = Sim()) {
    auto* bytes = static_cast<unsigned char*>(buffer);
    for (size_t i = 0; i < length; i += 8) {
      const uint64_t bits = s->entropy().Next();
      std::memcpy(bytes + i, &bits, length - i < 8 ? length - i : 8);
    }
    return static_cast<ssize_t>(length);
  }
  BATON_NEXT(getrandom);
  return next(buffer, length, flags);
}

// std::atomic::wait and std::binary_semaphore (inside stop_callback) sleep on a futex.
long syscall(long number, ...) noexcept {
  va_list args;
  va_start(args, number);
  long a[6];
  for (long& x : a) x = va_arg(args, long);
  va_end(args);
  Scheduler* s = number == SYS_futex ? Sim() : nullptr;
  if (s != nullptr) {
    auto* word = reinterpret_cast<int*>(a[0]);
    const long op = a[1] & ~static_cast<long>(FUTEX_PRIVATE_FLAG | FUTEX_CLOCK_REALTIME);
    if (op == FUTEX_WAIT) {
      if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == static_cast<int>(a[2]))
        s->WaitOn(word, Instant::max());
      return 0;
    }
    if (op == FUTEX_WAKE) {
      s->Wake(word, a[2] != 1);
      return 1;
    }
  }
  static const auto next = Next<long (*)(long, ...)>("syscall");
  return next(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

}  // extern "C"
