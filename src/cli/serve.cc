// `baton serve`: one worker.
#include "cli/serve.h"

#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/service.h"

namespace baton::cli {
namespace {

std::string StartLine(const std::string& role, const std::string& name, engine::Worker& w) {
  const bool shared = w.memory().elastic() != nullptr;
  std::string line =
      absl::StrCat("role ", role, ", model ", name, ", weights ", w.model().weight_bytes() >> 20,
                   " MiB, compute float32, ", shared ? "up to " : "", w.memory().blocks_per_group(),
                   " KV blocks of 16 tokens, ", shared ? "up to " : "", w.memory().slots_max(),
                   " state slots of ",
                   w.model().layout().slot_bytes() + w.model().slot_tail_bytes(), " bytes");
  if (w.model().slot_tail_bytes() > 0)
    absl::StrAppend(&line, " (state in ",
                    std::string(kernel::StateDTypeName(w.model().state_dtype())), ", ",
                    w.model().slot_tail_bytes(), " of them tail)");
  if (shared)
    absl::StrAppend(&line, ", sharing ", w.memory().capacity_bytes() >> 20, " MiB of memory");
  for (const std::string& e : w.endpoints()) absl::StrAppend(&line, ", hand-off ", e);
  return line;
}

server::NodeInfo Describe(const std::string& role, const std::string& name, engine::Worker& w) {
  server::NodeInfo info;
  info.role = role;
  info.model = name;
  info.fingerprint = w.model().fingerprint().Hex();
  info.epoch = w.self().epoch.Hex();
  for (const std::string& e : w.endpoints()) info.handoff[e.substr(0, e.find(':'))] = e;
  info.max_model_len = w.engine().max_model_len();
  info.vocab_size = w.engine().vocab_size();
  return info;
}

server::StatusRows Rows(engine::Worker& w) {
  const engine::EngineStats& s = w.engine().stats();
  const HandoffStats& h = w.handoff_stats();
  server::StatusRows rows;
  auto add = [&](const char* name, auto value) { rows.emplace_back(name, absl::StrCat(value)); };
  add("running", s.running.load());
  add("waiting", s.waiting.load());
  add("pulling", s.pulling.load());
  add("steps", s.steps.load());
  add("tokens computed", s.computed_rows.load());
  add("checkpoints held", s.checkpoints_held.load());
  add("preemptions", s.preemptions.load());
  if (w.memory().slots() != nullptr)
    add("state slots used",
        absl::StrCat(w.memory().slots()->Stats().used, " of ", w.memory().slots_max()));
  const ElasticStats memory = w.memory().Stats();
  add("memory in use", absl::StrCat(memory.bytes_used >> 20, " of ", memory.bytes >> 20, " MiB, ",
                                    memory.bytes_moved >> 20, " MiB moved, ", memory.border_moves,
                                    " border moves, ", memory.refusals, " refusals"));
  const engine::Tiering& tiers = w.engine().tiers();
  for (size_t i = 0; i < tiers.count(); ++i) {
    const TierStats t = tiers.tier(i).Stats();
    uint64_t rejects = 0;
    for (const auto& [reason, n] : t.rejects) rejects += n;
    rows.emplace_back(
        absl::StrCat(std::string(tiers.tier(i).name()), " tier"),
        absl::StrCat(t.bundles, " bundles, ", t.bytes >> 20, " of ", t.budget_bytes >> 20, " MiB, ",
                     t.restores, " restored, ", rejects, " rejected"));
  }
  add("parked and resumed", absl::StrCat(s.parked.load(), ", ", s.resumed.load()));
  add("audits", absl::StrCat(s.audits.load(), ", mismatches ", s.audit_mismatches.load()));
  add("bundles pulled and verified", h.verified.load());
  add("bundles offered", h.offers.load());
  add("state bytes landed", h.state_bytes.load());
  add("KV bytes landed", h.kv_bytes.load());
  return rows;
}

}  // namespace

int RunServe(const ServeFlags& f, const WorkerHook& hook) {
  BlockSignals();
  StatusOr<std::string> dir = ResolveModel(f.model);
  if (!dir.ok()) return Fail(dir.status());
  auto text = LoadText(*dir, f.http);
  if (!text.ok()) return Fail(text.status());
  auto model = LoadModel(*dir, f.engine);
  if (!model.ok()) return Fail(model.status());
  auto options = MakeWorkerOptions(**model, f.engine, f.handoff, f.role);
  if (!options.ok()) return Fail(options.status());
  options->engine.max_waiting = f.http.max_waiting;
  if (hook) hook(&*options);
  auto worker = engine::Worker::Create(model->get(), *std::move(options));
  if (!worker.ok()) return Fail(worker.status());
  engine::Worker& w = **worker;

  const std::string name = ServedName(f.http, *dir);
  server::IoPool io(1);
  server::ServerOptions server_options = MakeServerOptions(f.http, name);
  server_options.api.internal_endpoint = true;
  server::ApiDeps deps;
  deps.generator = &w.engine();
  deps.text = text->get();
  deps.metrics = std::make_shared<server::Metrics>(server::Metrics::Options{name, true});
  AddWorkerMetrics(&w, deps.metrics.get());
  deps.node_info = [&] { return Describe(f.role, name, w); };
  deps.status_rows = [&] { return Rows(w); };
  server::Server server(&io, server_options, deps);
  const int code = ServeUntilSignal(&server, f.http, StartLine(f.role, name, w));
  // Requests end before the loop that answers them, and the loop before what it answers from.
  w.Stop();
  io.Stop();
  return code;
}

void AddServeFlags(CLI::App* app, ServeFlags* f) {
  app->add_option("model", f->model, "model directory; default: the embedded demo model");
  app->add_option("--role", f->role, "what this worker does")
      ->check(CLI::IsMember({"all", "prefill", "decode"}))
      ->capture_default_str();
  AddHttpFlags(app, &f->http);
  AddEngineFlags(app, &f->engine);
  AddHandoffFlags(app, &f->handoff);
}

Run AddServe(CLI::App* app) {
  auto f = std::make_shared<ServeFlags>();
  AddServeFlags(app, f.get());
  return [f] { return RunServe(*f, nullptr); };
}

}  // namespace baton::cli
