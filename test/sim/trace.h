// The events of a run: a hash over all of them, a count, and on request a readable line for each.
// Thread rule: one OS thread.
#ifndef BATON_TEST_SIM_TRACE_H_
#define BATON_TEST_SIM_TRACE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "sim/scheduler.h"

namespace baton::sim {

class Trace {
 public:
  Trace(Scheduler* scheduler, bool print) : scheduler_(scheduler), print_(print) {}

  // `text` is called only if lines are printed.
  template <class Text>
  void Event(std::string_view what, uint64_t a, uint64_t b, const Text& text) {
    Mix(what, a, b);
    if (print_) Print(what, text());
  }
  // Whoever waits for this address is woken by every event.
  const void* event_address() const { return &count_; }
  uint64_t hash() const { return hash_; }
  uint64_t count() const { return count_; }

 private:
  void Mix(std::string_view what, uint64_t a, uint64_t b);
  void Print(std::string_view what, const std::string& text);
  Scheduler* scheduler_;
  const bool print_;
  uint64_t hash_ = 0xcbf29ce484222325ull;
  uint64_t count_ = 0;
};

}  // namespace baton::sim

#endif  // BATON_TEST_SIM_TRACE_H_
