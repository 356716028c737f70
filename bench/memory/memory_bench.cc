// Question: of the requests of a public trace, how many find no memory, when recurrent states and
// KV share the same bytes in three ways?
//   static    a fixed share for slots, the rest for blocks; shares from 5 to 95 %, of which the
//             best in hindsight and the half-and-half one are printed
//   padded    one page size for both kinds, padded, as engines with one paged pool do it
//   elastic   this project's: two kinds of unit, one budget, a border that moves
// Every allocator sees the same requests: admission takes a state and the prompt's KV, which is
// being received for a while; decoding grows the KV; the end frees all. A request that finds no
// room is dropped, one that cannot grow is cut off; both count as refused. The budget is a share
// (--share) of what all requests of the trace need at their peak. `ideal` would refuse only when
// the bytes that sequences need are more than the budget. No clock is read: time is the trace's.
//
//   memory_bench --traces DIR --config FILE [--config FILE] [--share 0.8]
//   memory_bench --trace FILE --config FILE --check
//   memory_bench --leases         another question: what do the leases of a step cost?
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <queue>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "allocators.h"
#include "leases.h"
#include "model/config.h"
#include "model/model_layout.h"
#include "trace.h"

namespace baton::bench {
namespace {

// What a machine would make of the requests; the same for all allocators.
struct Speeds {
  double prefill_tokens_s = 8000;  // a request waits for this before its state arrives
  double receive_bytes_s = 2e9;
  double decode_token_s = 0.03;
};

struct Result {
  int64_t dropped = 0;
  int64_t cut = 0;
  uint64_t needed_peak = 0;    // bytes that admitted sequences needed
  double idle_at_refusal = 0;  // bytes of the budget nobody needed, mean over refusals
  uint64_t bytes_moved = 0;
  int64_t refused() const { return dropped + cut; }
};

// Refuses only what does not fit in the bytes; with no budget, nothing.
class Ideal final : public Allocator {
 public:
  Ideal(const Geometry& geometry, uint64_t bytes) : geometry_(geometry), bytes_(bytes) {}
  bool Admit(size_t s, int64_t tokens) override { return Set(s, geometry_.Needed(tokens)); }
  void Landed(size_t) override {}
  bool Grow(size_t s, int64_t tokens) override { return Set(s, geometry_.Needed(tokens)); }
  void Finish(size_t s) override {
    used_ -= held_[s];
    held_[s] = 0;
  }
  Status CheckEmpty() const override {
    return used_ == 0 ? absl::OkStatus() : absl::InternalError("bytes are still held");
  }

 private:
  bool Set(size_t s, uint64_t bytes) {
    if (held_.size() <= s) held_.resize(s + 1, 0);
    if (used_ - held_[s] + bytes > bytes_) return false;
    used_ += bytes - held_[s];
    held_[s] = bytes;
    return true;
  }
  const Geometry geometry_;
  const uint64_t bytes_;
  uint64_t used_ = 0;
  std::vector<uint64_t> held_;
};

struct Event {
  double at = 0;
  int kind = 0;  // 0 finish, 1 grow, 2 landed: in this order at one instant
  size_t sequence = 0;
  bool operator>(const Event& o) const {
    return std::tie(at, kind, sequence) > std::tie(o.at, o.kind, o.sequence);
  }
};

class Replay {
 public:
  Replay(const Geometry& geometry, const Trace& trace, uint64_t budget, Allocator* allocator)
      : geometry_(geometry), trace_(trace), budget_(budget), allocator_(allocator) {
    tokens_.resize(trace.requests.size(), 0);
  }

  Result Run() {
    for (size_t i = 0; i < trace_.requests.size(); ++i) {
      Until(trace_.requests[i].arrival_s);
      Arrive(i);
    }
    Until(1e300);
    result_.bytes_moved = allocator_->bytes_moved();
    if (result_.refused() > 0) result_.idle_at_refusal /= static_cast<double>(result_.refused());
    const Status empty = allocator_->CheckEmpty();
    if (!empty.ok()) {
      std::fprintf(stderr, "%s\n", empty.ToString().c_str());
      std::exit(1);
    }
    return result_;
  }

 private:
  void Need(size_t i, int64_t tokens) {
    if (tokens_[i] > 0) needed_ -= geometry_.Needed(tokens_[i]);
    tokens_[i] = tokens;
    if (tokens > 0) needed_ += geometry_.Needed(tokens);
    result_.needed_peak = std::max(result_.needed_peak, needed_);
  }
  void Refused() { result_.idle_at_refusal += static_cast<double>(budget_ - needed_); }

  void Arrive(size_t i) {
    const TraceRequest& r = trace_.requests[i];
    if (!allocator_->Admit(i, r.input)) {
      ++result_.dropped;
      return Refused();
    }
    Need(i, r.input);
    const double received =
        static_cast<double>(r.input) / speeds_.prefill_tokens_s +
        static_cast<double>(geometry_.Needed(r.input)) / speeds_.receive_bytes_s;
    events_.push({r.arrival_s + received, 2, i});
  }
  // One event per 16 tokens of output.
  void Next(size_t i, double now) {
    const TraceRequest& r = trace_.requests[i];
    const int64_t left = r.input + r.output - tokens_[i];
    const double step = speeds_.decode_token_s * static_cast<double>(std::min<int64_t>(16, left));
    events_.push({now + step, left <= 16 ? 0 : 1, i});
  }
  void End(size_t i) {
    allocator_->Finish(i);
    Need(i, 0);
  }
  void Until(double time) {
    while (!events_.empty() && events_.top().at <= time) {
      const Event e = events_.top();
      events_.pop();
      if (e.kind == 0) {
        End(e.sequence);
      } else if (e.kind == 2) {
        allocator_->Landed(e.sequence);
        Next(e.sequence, e.at);
      } else if (allocator_->Grow(e.sequence, tokens_[e.sequence] + 16)) {
        Need(e.sequence, tokens_[e.sequence] + 16);
        Next(e.sequence, e.at);
      } else {
        ++result_.cut;
        Refused();
        End(e.sequence);
      }
    }
  }

  const Geometry& geometry_;
  const Trace& trace_;
  const uint64_t budget_;
  Allocator* allocator_;
  const Speeds speeds_;
  std::priority_queue<Event, std::vector<Event>, std::greater<Event>> events_;
  std::vector<int64_t> tokens_;  // 0: holds nothing
  uint64_t needed_ = 0;
  Result result_;
};

StatusOr<Geometry> ReadGeometry(const std::string& path) {
  BATON_ASSIGN_OR_RETURN(const model::ModelConfig config, model::ReadConfig(path));
  BATON_ASSIGN_OR_RETURN(const Layout layout, model::BuildLayout(config, Sha256()));
  if (!layout.has_state() || layout.groups().empty())
    return absl::InvalidArgumentError(path + ": not a hybrid");
  Geometry g;
  g.name = std::filesystem::path(path).stem().string();
  for (const StatePart& p : layout.parts()) {
    // The layout is f32 throughout; published checkpoints keep the window in bf16.
    g.state_bytes += p.component == model::kConvComponent ? p.bytes / 2 : p.bytes;
    g.state_layers += p.component != model::kConvComponent;
  }
  g.kv_token_bytes = layout.kv_bytes_per_token() / 2;
  g.attention_layers = static_cast<uint32_t>(layout.groups()[0].layers.size());
  return g;
}

void Print(const char* name, const Result& r, const Trace& trace, uint64_t budget) {
  const auto share = [&](double n) { return 100 * n / static_cast<double>(budget); };
  std::printf("  %-22s %7lld refused (%6.3f %%: %lld dropped, %lld cut)  peak use %5.1f %%", name,
              static_cast<long long>(r.refused()),
              100.0 * static_cast<double>(r.refused()) / static_cast<double>(trace.requests.size()),
              static_cast<long long>(r.dropped), static_cast<long long>(r.cut),
              share(static_cast<double>(r.needed_peak)));
  if (r.refused() > 0) std::printf("  idle when refusing %5.2f %%", share(r.idle_at_refusal));
  if (r.bytes_moved > 0) std::printf("  moved %.1f GB", static_cast<double>(r.bytes_moved) / 1e9);
  std::printf("\n");
}

// False if the claim of the page does not hold.
bool Compare(const Geometry& g, const Trace& trace, double share) {
  Ideal unlimited(g, UINT64_MAX);
  const uint64_t peak = Replay(g, trace, UINT64_MAX, &unlimited).Run().needed_peak;
  const auto budget = static_cast<uint64_t>(share * static_cast<double>(peak));
  std::printf("%s, %s: %zu requests, budget %.1f GB (%.0f %% of the peak need)\n", g.name.c_str(),
              trace.name.c_str(), trace.requests.size(), static_cast<double>(budget) / 1e9,
              100 * share);
  const auto run = [&](Allocator* a) { return Replay(g, trace, budget, a).Run(); };
  Result best;
  int best_share = 0;
  for (int percent = 5; percent < 100; percent += 5) {
    const Result r = run(StaticSplit(g, budget, percent / 100.0).get());
    if (percent == 50) Print("static 50 %", r, trace, budget);
    if (best_share == 0 || r.refused() < best.refused()) {
      best = r;
      best_share = percent;
    }
  }
  Print(absl::StrCat("static ", best_share, " %, the best").c_str(), best, trace, budget);
  const Result padded = run(PaddedPages(g, budget).get());
  Print("padded", padded, trace, budget);
  const Result elastic = run(Elastic(g, budget).get());
  Print("elastic", elastic, trace, budget);
  Ideal ideal(g, budget);
  Print("ideal", run(&ideal), trace, budget);
  return elastic.refused() <= best.refused() && elastic.refused() <= padded.refused();
}

struct Arguments {
  std::vector<std::string> traces;
  std::vector<std::string> configs;
  double share = 0.8;
  bool check = false;
};

bool Parse(int argc, char** argv, Arguments* a) {
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--check") {
      a->check = true;
      continue;
    }
    if (i + 1 >= argc) return false;
    const std::string value = argv[++i];
    if (flag == "--traces") {
      for (const auto& entry : std::filesystem::directory_iterator(value))
        if (entry.path().extension() == ".csv" || entry.path().extension() == ".jsonl")
          a->traces.push_back(entry.path().string());
      std::sort(a->traces.begin(), a->traces.end());
    } else if (flag == "--trace") {
      a->traces.push_back(value);
    } else if (flag == "--config") {
      a->configs.push_back(value);
    } else if (flag == "--share") {
      a->share = std::atof(value.c_str());
    } else {
      return false;
    }
  }
  return !a->traces.empty() && !a->configs.empty() && a->share > 0 && a->share <= 1;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--leases") return MeasureLeases();
  Arguments arguments;
  if (!Parse(argc, argv, &arguments)) {
    std::fprintf(stderr,
                 "usage: memory_bench (--traces DIR | --trace FILE)... --config FILE... "
                 "[--share 0.8] [--check], or memory_bench --leases\n");
    return 2;
  }
  std::vector<Trace> traces;
  for (const std::string& path : arguments.traces) {
    auto trace = ReadTrace(path);
    if (!trace.ok()) {
      std::fprintf(stderr, "%s\n", trace.status().ToString().c_str());
      return 1;
    }
    traces.push_back(*std::move(trace));
  }
  bool holds = true;
  for (const std::string& path : arguments.configs) {
    const auto geometry = ReadGeometry(path);
    if (!geometry.ok()) {
      std::fprintf(stderr, "%s: %s\n", path.c_str(), geometry.status().ToString().c_str());
      return 1;
    }
    std::printf("%s: state %.1f MB, KV %llu bytes a token, padded block %lld tokens\n",
                geometry->name.c_str(), static_cast<double>(geometry->state_bytes) / 1e6,
                static_cast<unsigned long long>(geometry->kv_token_bytes),
                static_cast<long long>(PaddedBlockTokens(*geometry)));
    for (const Trace& trace : traces) holds &= Compare(*geometry, trace, arguments.share);
  }
  if (arguments.check && !holds) {
    std::fprintf(stderr, "elastic memory refused more than another allocator\n");
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace baton::bench

int main(int argc, char** argv) { return baton::bench::Main(argc, argv); }
