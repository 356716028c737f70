#include "sim/context.h"

#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "base/status.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#define BATON_SIM_ASAN 1
#endif

#if defined(__x86_64__)
// Saves the callee-saved registers on the old stack, swaps stacks, restores from the new one.
asm(R"(
.text
.globl baton_sim_switch
.type baton_sim_switch,@function
baton_sim_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size baton_sim_switch,.-baton_sim_switch
)");
extern "C" void baton_sim_switch(void** from_sp, void* to_sp);
#endif

namespace baton::sim {
namespace {

#if defined(BATON_SIM_ASAN) || !defined(NDEBUG)
constexpr size_t kStackBytes = 512 << 10;
#else
constexpr size_t kStackBytes = 128 << 10;
#endif

Context* g_from = nullptr;  // the context that was left by the switch under way
Context* g_to = nullptr;

}  // namespace

Stack::Stack() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* p = mmap(nullptr, kStackBytes + page, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  BATON_CHECK(p != MAP_FAILED);
  BATON_CHECK(mprotect(p, page, PROT_NONE) == 0);
  base_ = static_cast<std::byte*>(p) + page;
}

Stack::~Stack() {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  munmap(base_ - page, kStackBytes + page);
}

size_t Stack::size() const { return kStackBytes; }

// Runs first on a new stack.
struct ContextStart {
  static void Run() {
    Context::Landed();
    Context* self = g_to;
    self->entry_(self->argument_);
    std::abort();  // entry never returns
  }
};

// The first thing done after every switch, on the new stack.
void Context::Landed() {
#if defined(BATON_SIM_ASAN)
  const void* base = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(g_to->fake_stack_, &base, &size);
  // The main stack's extent is learned when it is left for the first time.
  if (g_from->stack_base_ == nullptr) {
    g_from->stack_base_ = base;
    g_from->stack_size_ = size;
  }
#endif
}

Context::~Context() { delete static_cast<ucontext_t*>(ucontext_); }

void Context::Prepare(const Stack& stack, void (*entry)(void*), void* argument) {
  entry_ = entry;
  argument_ = argument;
  stack_base_ = stack.base();
  stack_size_ = stack.size();
  fake_stack_ = nullptr;
#if defined(__x86_64__)
  auto* top = reinterpret_cast<uint64_t*>(stack.base() + stack.size() - 64);
  *--top = 0;  // keeps the stack aligned as after a call
  *--top = reinterpret_cast<uint64_t>(&ContextStart::Run);
  for (int i = 0; i < 6; ++i) *--top = 0;
  sp_ = top;
#else
  if (ucontext_ == nullptr) ucontext_ = new ucontext_t;
  auto* u = static_cast<ucontext_t*>(ucontext_);
  getcontext(u);
  u->uc_stack.ss_sp = stack.base();
  u->uc_stack.ss_size = stack.size();
  u->uc_link = nullptr;
  makecontext(u, &ContextStart::Run, 0);
#endif
}

void Context::Switch(Context* from, Context* to, bool leaving) {
  g_from = from;
  g_to = to;
#if defined(BATON_SIM_ASAN)
  __sanitizer_start_switch_fiber(leaving ? nullptr : &from->fake_stack_, to->stack_base_,
                                 to->stack_size_);
#else
  (void)leaving;
#endif
#if defined(__x86_64__)
  baton_sim_switch(&from->sp_, to->sp_);
#else
  if (from->ucontext_ == nullptr) from->ucontext_ = new ucontext_t;
  swapcontext(static_cast<ucontext_t*>(from->ucontext_), static_cast<ucontext_t*>(to->ucontext_));
#endif
  Landed();
}

}  // namespace baton::sim
