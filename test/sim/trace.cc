#include "sim/trace.h"

#include <cstdio>

namespace baton::sim {

void Trace::Mix(std::string_view what, uint64_t a, uint64_t b) {
  ++count_;
  const auto mix = [this](uint64_t x) {
    hash_ ^= x;
    hash_ *= 0x9E3779B97F4A7C15ull;
    hash_ ^= hash_ >> 29;
  };
  for (const char c : what) mix(static_cast<uint8_t>(c));
  mix(static_cast<uint64_t>(scheduler_->now().count()));
  mix(a);
  mix(b);
  scheduler_->Wake(&count_, /*all=*/true);
}

void Trace::Print(std::string_view what, const std::string& text) {
  const Fiber* fiber = scheduler_->running();
  std::printf("%12.6f  %-18s %-18.*s %s\n",
              Seconds(scheduler_->now() - Instant(std::chrono::hours(1))),
              fiber == nullptr ? "" : Scheduler::NameOf(fiber).c_str(),
              static_cast<int>(what.size()), what.data(), text.c_str());
}

}  // namespace baton::sim
