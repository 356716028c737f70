#include "cli/service.h"

#include <signal.h>

#include <cstdio>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "server/model_text.h"
#include "server/token_ids_text.h"

namespace baton::cli {
namespace {

sigset_t EndSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

using server::MetricSample;

void Put(std::vector<MetricSample>* out,
         MetricSample::Type type,
         std::string name,
         std::string help,
         double value,
         std::vector<std::pair<std::string, std::string>> labels = {}) {
  out->push_back({std::move(name), std::move(help), type, std::move(labels), value});
}

void PutMemory(const engine::Worker& w, std::vector<MetricSample>* out) {
  auto& memory = const_cast<engine::Worker&>(w).memory();
  const_cast<engine::Worker&>(w).client().quarantine().Sweep();  // a look is a good time to ask
  const PoolSet pools = memory.pools();
  const auto gauge = MetricSample::Type::kGauge;
  uint64_t quarantined = 0;
  if (pools.slots != nullptr) {
    const PoolStats s = pools.slots->Stats();
    Put(out, gauge, "state_slots_used", "state slots in use", s.used);
    Put(out, gauge, "state_slots_total", "state slots there can be", memory.slots_max());
    Put(out, gauge, "state_bytes", "bytes of state slots in use",
        static_cast<double>(s.used) * static_cast<double>(s.unit_bytes));
    quarantined += s.quarantined * s.unit_bytes;
  }
  double used = 0, total = 0;
  for (BlockPool* p : pools.blocks) {
    const PoolStats s = p->Stats();
    used += s.used;
    total += s.units;
    quarantined += s.quarantined * s.unit_bytes;
  }
  const ElasticStats stats = memory.Stats();
  const auto bytes = [](uint64_t n) { return static_cast<double>(n); };
  // With one budget a block is refused when the bytes are used up, by whatever.
  if (memory.elastic() != nullptr) used = bytes(stats.bytes_used), total = bytes(stats.bytes);
  Put(out, gauge, "kv_cache_usage_perc", "share of KV blocks, or of the shared memory, in use",
      total > 0 ? used / total : 0);
  Put(out, gauge, "memory_bytes", "bytes of state slots and KV blocks", bytes(stats.bytes));
  Put(out, gauge, "memory_used_bytes", "bytes of those in use", bytes(stats.bytes_used));
  const auto counter = MetricSample::Type::kCounter;
  Put(out, counter, "memory_moved_bytes_total", "bytes moved by compaction",
      bytes(stats.bytes_moved));
  Put(out, counter, "memory_border_moves_total", "slots' worth of bytes given to the other side",
      bytes(stats.border_moves));
  Put(out, counter, "memory_refusals_total", "allocations that found no room",
      bytes(stats.refusals - stats.refusals_fixed), {{"cause", "full"}});
  Put(out, counter, "memory_refusals_total", "allocations that found no room",
      bytes(stats.refusals_fixed), {{"cause", "fixed"}});
  Put(out, gauge, "quarantined_bytes", "bytes some writer may still touch",
      static_cast<double>(quarantined));
}

void PutEngine(const engine::Worker& w, std::vector<MetricSample>* out) {
  const engine::EngineStats& s = const_cast<engine::Worker&>(w).engine().stats();
  const auto counter = MetricSample::Type::kCounter;
  Put(out, MetricSample::Type::kGauge, "checkpoints", "checkpoints held",
      static_cast<double>(s.checkpoints_held.load()));
  Put(out, counter, "engine_steps_total", "engine steps", static_cast<double>(s.steps.load()));
  Put(out, counter, "computed_tokens_total", "tokens run through the model",
      static_cast<double>(s.computed_rows.load()));
  Put(out, counter, "num_preemptions_total", "sequences that gave their memory back",
      static_cast<double>(s.preemptions.load()));
  Put(out, counter, "checkpoint_rejects_total", "checkpoints that failed verification",
      static_cast<double>(s.checkpoint_rejects.load()));
  Put(out, counter, "parked_total", "preempted sequences whose state was kept",
      static_cast<double>(s.parked.load()));
  Put(out, counter, "resumed_total", "parked sequences that went on",
      static_cast<double>(s.resumed.load()));
  Put(out, counter, "park_rejects_total", "parked states that failed verification",
      static_cast<double>(s.park_rejects.load()));
  Put(out, MetricSample::Type::kGauge, "parked_bytes", "bytes of parked states",
      static_cast<double>(s.parked_bytes.load()));
  Put(out, counter, "audits_total", "cache hits computed again and compared",
      static_cast<double>(s.audits.load()));
  Put(out, counter, "audits_from_zero_total", "of these, from token 0",
      static_cast<double>(s.audits_from_zero.load()));
  Put(out, counter, "audits_skipped_total", "audits that gave way to requests",
      static_cast<double>(s.audits_skipped.load()));
  Put(out, counter, "audit_mismatches_total", "audits that found a wrong state",
      static_cast<double>(s.audit_mismatches.load()));
}

void PutTiers(const engine::Worker& w, std::vector<MetricSample>* out) {
  const engine::Tiering& tiers = const_cast<engine::Worker&>(w).engine().tiers();
  const auto counter = MetricSample::Type::kCounter;
  const auto gauge = MetricSample::Type::kGauge;
  for (size_t i = 0; i < tiers.count(); ++i) {
    const TierStats s = tiers.tier(i).Stats();
    const auto put = [&](MetricSample::Type type, const char* name, const char* help, uint64_t v) {
      Put(out, type, name, help, static_cast<double>(v),
          {{"tier", std::string(tiers.tier(i).name())}});
    };
    put(gauge, "tier_bytes", "bytes of bundles at rest", s.bytes);
    put(gauge, "tier_budget_bytes", "bytes there may be", s.budget_bytes);
    put(gauge, "tier_bundles", "bundles at rest", s.bundles);
    put(counter, "tier_puts_total", "bundles stored", s.puts);
    put(counter, "tier_put_bytes_total", "bytes stored", s.put_bytes);
    put(counter, "tier_puts_failed_total", "bundles the medium did not take",
        s.puts_failed + s.puts_no_room);
    put(counter, "tier_puts_refused_total", "bundles that did not verify on the way down",
        s.puts_refused);
    put(counter, "tier_restores_total", "bundles restored and verified", s.restores);
    put(counter, "tier_restore_bytes_total", "bytes restored", s.restore_bytes);
    put(counter, "tier_misses_total", "bundles that were expected and not there", s.misses);
    put(counter, "tier_restores_failed_total", "restores the medium failed", s.restores_failed);
    Put(out, gauge, "tier_encoding_error_max",
        "largest relative error (rms) that --checkpoint-dtype made in a state",
        s.encoding_error_max, {{"tier", std::string(tiers.tier(i).name())}});
    put(counter, "tier_evictions_total", "bundles that made room", s.evictions);
    for (const auto& [reason, n] : s.rejects)
      Put(out, counter, "tier_rejects_total", "bundles at rest that failed verification",
          static_cast<double>(n),
          {{"tier", std::string(tiers.tier(i).name())},
           {"reason", std::string(ReasonName(reason))}});
  }
  Put(out, counter, "tier_demotions_dropped_total", "checkpoints that did not wait for a tier",
      static_cast<double>(tiers.demotions_dropped()));
}

void PutHandoff(const engine::Worker& w, std::vector<MetricSample>* out) {
  const HandoffStats& s = w.handoff_stats();
  const auto counter = MetricSample::Type::kCounter;
  Put(out, counter, "handoff_pulls_total", "bundles asked of peers",
      static_cast<double>(s.pulls.load()));
  Put(out, counter, "handoff_offers_total", "bundles offered to peers",
      static_cast<double>(s.offers.load()));
  Put(out, counter, "handoff_protocol_errors_total", "garbage on the hand-off port",
      static_cast<double>(s.protocol_errors.load()));
  Put(out, counter, "handoff_early_blocks_total", "KV blocks pulled while later tokens computed",
      static_cast<double>(s.early_blocks.load()));
  Put(out, counter, "handoff_hints_ignored_total", "checkpoints offered by peers not configured",
      static_cast<double>(const_cast<engine::Worker&>(w).engine().stats().hints_ignored.load()));
  for (const auto& [name, c] : s.connectors.Snapshot()) {
    Put(out, counter, "connector_pulls_total", "shares pulled, by connector",
        static_cast<double>(c.pulls), {{"connector", name}});
    Put(out, counter, "connector_bytes_total", "bytes landed, by connector",
        static_cast<double>(c.bytes), {{"connector", name}});
    Put(out, counter, "connector_failovers_total", "times another connector took over",
        static_cast<double>(c.failovers), {{"connector", name}});
    Put(out, counter, "connector_parts_moved_total", "parts another connector brought instead",
        static_cast<double>(c.shares_moved), {{"connector", name}});
  }
  Put(out, counter, "handoff_leases_expired_total", "offers whose lease ran out",
      static_cast<double>(s.leases_expired.load()));
}

}  // namespace

void BlockSignals() {
  const sigset_t set = EndSignals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

void WaitForSignal() {
  const sigset_t set = EndSignals();
  int number = 0;
  sigwait(&set, &number);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

std::string ServedName(const HttpFlags& flags, const std::string& model_dir) {
  if (!flags.served_names.empty()) return flags.served_names[0];
  return std::filesystem::weakly_canonical(model_dir).filename().string();
}

server::ServerOptions MakeServerOptions(const HttpFlags& flags, const std::string& model_name) {
  server::ServerOptions o;
  o.http.host = flags.host;
  o.http.port = static_cast<uint16_t>(flags.port);
  o.api.served_model_names = flags.served_names;
  if (o.api.served_model_names.empty()) o.api.served_model_names = {model_name};
  o.api.api_keys = flags.api_keys;
  o.api.version = BATON_VERSION;
  o.api.choices_in_flight_max = flags.max_waiting;
  return o;
}

StatusOr<std::unique_ptr<server::TextFrontend>> LoadText(const std::string& dir,
                                                         const HttpFlags& flags) {
  std::error_code error;
  if (!std::filesystem::exists(dir + "/tokenizer.json", error) &&
      !std::filesystem::exists(dir + "/tokenizer.model", error)) {
    LogWarning(dir + " has no tokenizer: prompts must be token ids, chat is refused");
    return std::unique_ptr<server::TextFrontend>(new server::TokenIdsText);
  }
  BATON_ASSIGN_OR_RETURN(
      auto text, server::ModelText::Load(dir, {flags.chat_template, flags.generation_config}));
  return std::unique_ptr<server::TextFrontend>(std::move(text));
}

void AddWorkerMetrics(const engine::Worker* worker, server::Metrics* metrics) {
  metrics->AddCollector([worker] {
    std::vector<MetricSample> out;
    PutMemory(*worker, &out);
    PutEngine(*worker, &out);
    PutTiers(*worker, &out);
    PutHandoff(*worker, &out);
    return out;
  });
}

int ServeUntilSignal(server::Server* server, const HttpFlags& flags, const std::string& line) {
  if (const Status started = server->Start(); !started.ok()) return Fail(started);
  LogInfo(absl::StrCat("serving at ", server->address(), ", ", line));
  WaitForSignal();
  LogInfo("draining; a second signal kills");
  const bool clean = server->Drain(std::chrono::seconds(flags.shutdown_timeout_s));
  server->Stop();
  LogInfo(clean ? "stopped" : "stopped; some requests were aborted");
  return 0;
}

}  // namespace baton::cli
