// A stack of its own and the switch between two of them: what a simulated thread runs on. x86-64 in
// eight instructions, elsewhere ucontext. Tells AddressSanitizer what it does.
// Thread rule: contexts belong to one OS thread.
#ifndef BATON_TEST_SIM_CONTEXT_H_
#define BATON_TEST_SIM_CONTEXT_H_

#include <cstddef>

namespace baton::sim {

// Memory of one stack with a guard page below it.
class Stack {
 public:
  Stack();
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;
  std::byte* base() const { return base_; }  // lowest usable address
  size_t size() const;

 private:
  std::byte* base_;
};

class Context {
 public:
  Context() = default;
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;
  ~Context();

  // The next switch to this context calls entry(argument) on `stack`; entry never returns.
  void Prepare(const Stack& stack, void (*entry)(void*), void* argument);
  // Saves the present context in `from` and goes on in `to`. `leaving`: `from` is never resumed.
  static void Switch(Context* from, Context* to, bool leaving);

 private:
  static void Landed();
  void* sp_ = nullptr;
  void* ucontext_ = nullptr;  // where there is no assembly
  const void* stack_base_ = nullptr;
  size_t stack_size_ = 0;
  void* fake_stack_ = nullptr;  // AddressSanitizer's
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  friend struct ContextStart;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_CONTEXT_H_
