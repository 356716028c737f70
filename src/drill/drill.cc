#include "drill/drill.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "drill/drill_internal.h"
#include "handoff/checks_for_testing.h"

namespace baton::drill {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateResult;

constexpr int64_t kBoundaryMin = 48;  // faults reach back 16 tokens and swap blocks

// Log-probabilities by token id, from the list of all of them.
std::vector<double> ByToken(const engine::TokenEvent& event, size_t vocab) {
  std::vector<double> logprobs(vocab);
  for (const auto& [token, logprob] : event.top) logprobs[token] = logprob;
  return logprobs;
}

double KlOf(const std::vector<double>& right, const std::vector<double>& wrong) {
  double sum = 0;
  for (size_t i = 0; i < right.size(); ++i) sum += std::exp(right[i]) * (right[i] - wrong[i]);
  return std::max(0.0, sum);
}

double Distance(const std::vector<double>& right, const std::vector<double>& wrong) {
  double sum = 0;
  for (size_t i = 0; i < right.size(); ++i)
    sum += std::abs(std::exp(right[i]) - std::exp(wrong[i]));
  return sum / 2;
}

bool KvGrows(const Layout& layout) {
  return std::any_of(layout.groups().begin(), layout.groups().end(),
                     [](const KvGroup& group) { return group.window == 0; });
}

// `boundary`: of the victim's bundle.
bool Applies(const Fault& f,
             const Layout& layout,
             uint64_t boundary,
             const std::string& connector,
             std::string* why) {
  size_t parts = 0, axes = SIZE_MAX;
  for (const StatePart& part : layout.parts()) {
    if (part.component != f.needs_component) continue;
    ++parts;
    axes = std::min(axes, part.shape.size());
  }
  if (!f.not_applicable.empty()) {
    *why = f.not_applicable;
  } else if (f.needs_state && !layout.has_state()) {
    *why = "this model has no recurrent state";
  } else if (f.needs_kv && layout.groups().empty()) {
    *why = "this model has no KV cache";
  } else if (f.rest == Rest::kParked && !KvGrows(layout)) {
    *why = "this model's KV is a window and does not grow: nobody is preempted for want of it";
  } else if (f.needs_kv && layout.BlockCount(0, boundary) < f.needs_blocks) {
    *why = "this model's window is one KV block";
  } else if (!f.needs_component.empty() && parts < f.needs_parts) {
    *why = parts == 0 ? absl::StrCat("this model's state has no \"", f.needs_component, "\"")
                      : "this model has one recurrent layer";
  } else if (!f.needs_component.empty() && axes < f.needs_axes) {
    *why = absl::StrCat("this model's \"", f.needs_component, "\" has one axis");
  } else if (!f.only_connector.empty() && f.only_connector != connector) {
    *why = absl::StrCat("only over ", f.only_connector);
  }
  return why->empty();
}

}  // namespace

Drill::Drill(const model::Model* model, Inputs inputs, Digester digester)
    : model_(model), in_(std::move(inputs)), digester_(std::move(digester)) {}
Drill::~Drill() = default;

StatusOr<std::unique_ptr<Drill>> Drill::Create(const model::Model* model,
                                               Inputs inputs,
                                               Digester digester) {
  if (HandoffBoundary(static_cast<int64_t>(inputs.victim.size())) < kBoundaryMin ||
      inputs.other.size() < inputs.victim.size() || inputs.bystander.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a drill needs a victim of at least ", kBoundaryMin + 1,
        " tokens, another prompt at least as long, and a bystander; given ", inputs.victim.size(),
        ", ", inputs.other.size(), " and ", inputs.bystander.size()));
  }
  auto drill = std::unique_ptr<Drill>(new Drill(model, std::move(inputs), std::move(digester)));
  BATON_RETURN_IF_ERROR(drill->Prepare());
  return drill;
}

Status Drill::Prepare() {
  faults_ = Catalogue(model_->layout());
  for (const Rest rest : {Rest::kMemory, Rest::kHost, Rest::kDisk, Rest::kParked})
    for (Fault& fault : CatalogueAtRest(model_->layout(), rest))
      faults_at_rest_.push_back(std::move(fault));
  const auto g = static_cast<size_t>(HandoffBoundary(static_cast<int64_t>(in_.victim.size())));
  const std::span<const TokenId> victim(in_.victim);
  BATON_ASSIGN_OR_RETURN(payloads_.other, ComputeBundle(*model_, std::span(in_.other).first(g)));
  BATON_ASSIGN_OR_RETURN(payloads_.truth, ComputeBundle(*model_, victim.first(g)));
  BATON_ASSIGN_OR_RETURN(payloads_.token_before, ComputeBundle(*model_, victim.first(g - 1)));
  BATON_ASSIGN_OR_RETURN(payloads_.token_after, ComputeBundle(*model_, victim.first(g + 1)));
  BATON_ASSIGN_OR_RETURN(payloads_.block_less_one, ComputeBundle(*model_, victim.first(g - 15)));
  BATON_ASSIGN_OR_RETURN(payloads_.block_before, ComputeBundle(*model_, victim.first(g - 16)));

  BATON_ASSIGN_OR_RETURN(Outcome truth, Undisturbed(Victim()));
  BATON_ASSIGN_OR_RETURN(Outcome bystander, Undisturbed(Bystander()));
  GenerateRequest forced = Victim();
  forced.sampling.forced_tokens = truth.tokens();
  forced.sampling.max_tokens = static_cast<int64_t>(truth.tokens().size());
  forced.sampling.stop_token_ids.clear();
  forced.sampling.logprobs = static_cast<int32_t>(model_->vocab_size());
  if (truth.tokens().empty()) {
    return absl::InvalidArgumentError("the model answers the drill's prompt with nothing at all");
  }
  BATON_ASSIGN_OR_RETURN(Outcome right, Undisturbed(forced));
  truth_ = std::make_unique<Outcome>(std::move(truth));
  beside_ = std::make_unique<Outcome>(std::move(bystander));
  forced_ = std::make_unique<Outcome>(std::move(right));
  return absl::OkStatus();
}

std::vector<TokenId> Drill::truth() const { return truth_->tokens(); }

GenerateRequest Drill::Victim() const {
  GenerateRequest r;
  r.prompt = in_.victim;
  r.sampling.temperature = 0;
  r.sampling.max_tokens = in_.max_tokens;
  r.sampling.stop_token_ids = in_.stop_ids;
  r.label = "victim";
  return r;
}

GenerateRequest Drill::Bystander() const {
  GenerateRequest r;
  r.prompt = in_.bystander;
  r.sampling.temperature = 0;
  r.sampling.max_tokens = kBystanderTokens;
  return r;
}

StatusOr<Drill::Outcome> Drill::Undisturbed(const GenerateRequest& request) const {
  BATON_ASSIGN_OR_RETURN(auto rig, Rig::Create(model_, RigOptions{}));
  auto sink = std::make_shared<Recorder>();
  BATON_RETURN_IF_ERROR(rig->Start(request, sink).status());
  Outcome outcome{sink->Wait(), sink->events()};
  if (!Done(outcome.result)) return outcome.result.error;
  return outcome;
}

RigOptions Drill::OptionsOf(const Fault& fault, const std::string& connector, bool twin) const {
  RigOptions options;
  options.digester = digester_;
  options.connector = connector;
  options.rest = fault.rest;
  options.lease = fault.lease;
  if (twin) {
    for (const Check c : fault.guards) options.checks = ChecksForTesting::Also(options.checks, c);
    options.pool_checks_off = fault.pool_guards;
    if (fault.twin_slots > 0) options.slots = fault.twin_slots;
  }
  return options;
}

StatusOr<Drill::Attempted> Drill::Attack(const Fault& fault,
                                         const std::string& connector,
                                         bool twin,
                                         const GenerateRequest& victim) const {
  if (fault.rest == Rest::kParked) return AttackParked(fault, twin, victim);
  if (fault.rest != Rest::kNowhere) return AttackAtRest(fault, twin, victim);
  BATON_ASSIGN_OR_RETURN(auto rig, Rig::Create(model_, OptionsOf(fault, connector, twin)));

  // The bystander is decoding before the attack begins. A twin has none: it may harm anybody.
  std::shared_ptr<Recorder> beside;
  if (!twin) {
    beside = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(rig->Start(Bystander(), beside).status());
    beside->WaitForTokens(1);
  }

  std::shared_ptr<engine::Generation> handle;
  Mutex mu;
  Trial trial{*rig, in_, payloads_,
              static_cast<uint64_t>(HandoffBoundary(static_cast<int64_t>(victim.prompt.size())))};
  trial.cancel = [&] {
    for (;;) {  // until Start has returned
      {
        MutexLock lock(&mu);
        if (handle != nullptr) return handle->Cancel();
      }
      std::this_thread::yield();
    }
  };
  const auto& arm = twin && fault.twin_arm != nullptr ? fault.twin_arm : fault.arm;
  BATON_RETURN_IF_ERROR(arm(trial));
  auto sink = std::make_shared<Recorder>(trial.on_first_token);
  std::vector<std::pair<GenerateRequest, std::shared_ptr<Recorder>>> extra;
  {
    BATON_ASSIGN_OR_RETURN(auto started, rig->Start(victim, sink));
    MutexLock lock(&mu);
    handle = std::move(started);
  }
  for (GenerateRequest& r : trial.extra_requests) {
    auto recorder = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(rig->Start(r, recorder).status());
    extra.emplace_back(std::move(r), std::move(recorder));
  }

  Attempted out;
  out.victim = Outcome{sink->Wait(), sink->events()};
  if (fault.expect == Expect::kCancelled) {
    auto again = std::make_shared<Recorder>();
    BATON_RETURN_IF_ERROR(rig->Start(victim, again).status());
    out.afterwards = std::make_unique<Outcome>(Outcome{again->Wait(), again->events()});
  }
  for (const auto& [request, recorder] : extra) {
    BATON_ASSIGN_OR_RETURN(const Outcome right, Undisturbed(request));
    if (!Outcome{recorder->Wait(), recorder->events()}.Same(right)) out.beside_equal = false;
  }
  if (beside != nullptr) {
    if (!Outcome{beside->Wait(), beside->events()}.Same(*beside_)) out.beside_equal = false;
    out.held = rig->Held();
  }
  return out;
}

Status Drill::RunGuarded(const Fault& fault,
                         const std::string& connector,
                         FaultReport* report) const {
  BATON_ASSIGN_OR_RETURN(const Attempted a, Attack(fault, connector, false, Victim()));
  const GenerateResult& result = a.victim.result;
  report->bystander_equal = a.beside_equal;
  report->held = a.held;
  report->recomputed_tokens = result.usage.recomputed_tokens;
  report->tokens_equal =
      a.afterwards != nullptr ? a.afterwards->Same(*truth_) : a.victim.Same(*truth_);
  if (fault.expect == Expect::kCancelled) {
    report->detected = result.reason == FinishReason::kCancelled;
    report->reason = report->detected ? "cancelled" : "";
    return absl::OkStatus();
  }
  if (fault.rest != Rest::kNowhere && fault.expect == Expect::kPrevented) {
    report->detected =
        result.usage.rejects == 0 && result.usage.cached_tokens == 0 && report->tokens_equal;
    report->reason = report->detected ? "prevented" : "";
    return absl::OkStatus();
  }
  if (result.handoffs.empty()) return absl::OkStatus();
  const engine::HandoffRecord& first = result.handoffs[0];
  if (fault.expect == Expect::kPrevented) {
    report->detected = first.verified;
    report->reason = first.verified ? "prevented" : first.reason;
    report->message = first.message;
    return absl::OkStatus();
  }
  report->reason = first.reason;
  report->message = first.message;
  report->detected = !first.verified && std::find(fault.reasons.begin(), fault.reasons.end(),
                                                  first.reason) != fault.reasons.end();
  return absl::OkStatus();
}

Status Drill::RunTwin(const Fault& fault,
                      const std::string& connector,
                      bool divergence,
                      FaultReport* report) const {
  Attempted a;
  bool differs = false;
  for (int i = 0; i < fault.twin_tries && !report->reaches_compute.value_or(false); ++i) {
    BATON_ASSIGN_OR_RETURN(a, Attack(fault, connector, true, Victim()));
    const std::vector<engine::HandoffRecord>& handoffs = a.victim.result.handoffs;
    differs = !a.victim.Same(*truth_);
    // Where the bits are the right ones, an honest retry must not pass for the twin.
    report->reaches_compute =
        fault.rest != Rest::kNowhere
            ? a.accepted && (fault.same_bits || differs)
            : !handoffs.empty() && (fault.same_bits ? handoffs.front().verified
                                                    : handoffs.back().verified && differs);
  }
  const GenerateResult& result = a.victim.result;
  if (!divergence || fault.same_bits || !differs) return absl::OkStatus();

  Divergence d;
  d.tokens = a.victim.tokens();
  const std::vector<TokenId> right = truth_->tokens();
  for (size_t i = 0; i < std::max(d.tokens.size(), right.size()); ++i) {
    if (i < d.tokens.size() && i < right.size() && d.tokens[i] == right[i]) continue;
    d.first_differing_token = static_cast<int64_t>(i);
    break;
  }
  if (!Done(result)) d.error = std::string(result.error.message());

  GenerateRequest forced = Victim();
  forced.sampling.forced_tokens = right;
  forced.sampling.max_tokens = static_cast<int64_t>(right.size());
  forced.sampling.stop_token_ids.clear();
  const auto vocab = static_cast<size_t>(model_->vocab_size());
  forced.sampling.logprobs = static_cast<int32_t>(vocab);
  BATON_ASSIGN_OR_RETURN(const Attempted f, Attack(fault, connector, true, forced));
  const size_t n = std::min(f.victim.events.size(), forced_->events.size());
  for (size_t i = 0; i < n; ++i) {
    const std::vector<double> p = ByToken(forced_->events[i], vocab);
    const std::vector<double> q = ByToken(f.victim.events[i], vocab);
    d.kl.push_back(KlOf(p, q));
    if (i == 0) d.first_token_distance = Distance(p, q);
  }
  report->divergence = std::move(d);
  return absl::OkStatus();
}

StatusOr<FaultReport> Drill::Run(const Fault& fault,
                                 const std::string& connector,
                                 bool divergence) {
  FaultReport report;
  report.id = fault.id;
  report.variant = fault.variant;
  report.title = fault.title;
  report.connector = fault.rest == Rest::kNowhere ? connector : RestName(fault.rest);
  report.check = fault.check;
  report.no_twin = fault.no_twin;
  const auto boundary =
      static_cast<uint64_t>(HandoffBoundary(static_cast<int64_t>(in_.victim.size())));
  if (!Applies(fault, model_->layout(), boundary, connector, &report.not_applicable)) return report;
  BATON_RETURN_IF_ERROR(RunGuarded(fault, connector, &report));
  if (fault.no_twin.empty()) BATON_RETURN_IF_ERROR(RunTwin(fault, connector, divergence, &report));
  return report;
}

StatusOr<FaultReport> TwoSequencesInOneSlot(const model::Model& model, const Inputs& in) {
  FaultReport report;
  report.id = "F02";
  report.title = "two sequences bound to one slot";
  report.check = "a step refuses a slot that is named twice";
  const Layout& layout = model.layout();
  if (!layout.has_state()) {
    report.not_applicable = "this model has no recurrent state";
    return report;
  }
  // One token each; what matters is whose state it is.
  const auto vocab = static_cast<size_t>(model.vocab_size());
  model::Workspace work;
  const auto step = [&](std::vector<std::byte*> slots, std::vector<std::vector<float>>* logits) {
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::vector<std::byte*>> blocks;
    std::vector<model::BatchItem> items(slots.size());
    logits->assign(slots.size(), std::vector<float>(vocab));
    memory.reserve(slots.size() * layout.groups().size());
    blocks.reserve(slots.size() * layout.groups().size());
    for (size_t i = 0; i < slots.size(); ++i) {
      items[i].tokens = std::span(i == 0 ? in.victim : in.other).first(1);
      items[i].slot = slots[i];
      items[i].logits = (*logits)[i].data();
      for (const KvGroup& group : layout.groups()) {
        memory.emplace_back(group.block_bytes);
        blocks.push_back({memory.back().data()});
        items[i].blocks.emplace_back(blocks.back());
      }
    }
    return model.Forward(items, &work, nullptr);
  };
  std::vector<std::byte> a(layout.slot_bytes()), b(layout.slot_bytes());
  std::vector<std::vector<float>> logits, right, wrong;
  const Status refused = step({a.data(), a.data()}, &logits);
  report.detected = !refused.ok();
  report.reason = refused.ok() ? "" : "refused";
  report.message = std::string(refused.message());
  std::fill(a.begin(), a.end(), std::byte{0});
  BATON_RETURN_IF_ERROR(step({a.data(), b.data()}, &right));
  // What each of the two gives alone, in a slot of its own.
  std::vector<std::byte> c(layout.slot_bytes()), d(layout.slot_bytes());
  std::vector<std::vector<float>> alone, other;
  BATON_RETURN_IF_ERROR(step({c.data()}, &alone));
  BATON_RETURN_IF_ERROR(step({c.data(), d.data()}, &other));
  report.tokens_equal = right[0] == alone[0];
  report.bystander_equal = right[1] == other[1];
  // The twin: the two advance in the one slot, one after the other.
  std::fill(a.begin(), a.end(), std::byte{0});
  BATON_RETURN_IF_ERROR(step({a.data()}, &wrong));
  BATON_RETURN_IF_ERROR(step({b.data(), a.data()}, &wrong));
  report.reaches_compute = wrong[1] != right[1];
  return report;
}

}  // namespace baton::drill
