// `baton drill`: the catalogue of faults against a model and connectors of the user's choice.
#include "drill/drill.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "cli/command.h"
#include "cli/model_path.h"
#include "cli/serve_flags.h"
#include "connector/connectors.h"
#include "drill/report.h"
#include "identity/digest.h"
#include "server/model_text.h"

namespace baton::cli {
namespace {

struct Flags {
  std::string model;
  std::vector<std::string> connectors = {"shm"};  // as split at commas
  std::vector<std::string> places = {"memory", "host", "disk", "parking"};
  std::string digest = "xxh3-128";
  bool all = false;
  std::vector<std::string> only;
  bool json = false;
  std::string plot;
};

struct Subject {
  const model::Model* model;
  const drill::Inputs* inputs;
  drill::Drill* drill;
};

// Token ids that are the same on every run, for models without a tokenizer.
std::vector<TokenId> Made(uint64_t seed, size_t n, int64_t vocab) {
  SplitMix64 rng(seed);
  std::vector<TokenId> tokens(n);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng.Below(static_cast<uint64_t>(vocab)));
  return tokens;
}

StatusOr<std::vector<TokenId>> Chat(const server::TextFrontend& text, const std::string& words) {
  server::ChatRender chat;
  chat.messages = OrderedJson::array({{{"role", "user"}, {"content", words}}});
  StatusOr<std::string> rendered = text.RenderChat(chat);
  return text.Encode(rendered.ok() ? *rendered : words, !rendered.ok());
}

// Two users tell different facts and ask for them: a state that changes hands changes the answer.
StatusOr<drill::Inputs> MakeInputs(const model::Model& model, const server::TextFrontend* text) {
  drill::Inputs in;
  if (text == nullptr) {
    in.victim = Made(1, 75, model.vocab_size());
    in.other = Made(2, 80, model.vocab_size());
    in.bystander = Made(3, 30, model.vocab_size());
    return in;
  }
  BATON_ASSIGN_OR_RETURN(
      in.victim,
      Chat(*text,
           "The code of river is 9056. The code of stone is 2467. My name is Anna and I live "
           "in Vienna. What is the code of river?"));
  BATON_ASSIGN_OR_RETURN(
      in.other,
      Chat(*text,
           "The code of river is 4821. The code of stone is 1730. My name is Peter and I "
           "live in London. I have a dog. What is the code of stone, and what is my name?"));
  BATON_ASSIGN_OR_RETURN(in.bystander,
                         Chat(*text, "The code of amber is 3342. What is the code of amber?"));
  in.stop_ids = text->defaults().eos_token_ids;
  return in;
}

std::vector<std::string> EveryConnector() {
  std::vector<std::string> names = {"shm", "tcp", "inproc"};
  if (HaveUcx()) names.push_back("ucx");
  return names;
}

// The two halves of a plan, "kv=shm" and "state=tcp", are one entry.
std::vector<std::string> JoinPlans(const std::vector<std::string>& split) {
  std::vector<std::string> joined;
  for (const std::string& word : split) {
    const bool second = !joined.empty() && absl::StrContains(word, '=') &&
                        absl::StrContains(joined.back(), '=') &&
                        !absl::StrContains(joined.back(), ',');
    if (second) {
      absl::StrAppend(&joined.back(), ",", word);
    } else {
      joined.push_back(word);
    }
  }
  return joined;
}

// Both workers of a drill live in this process: a key made for it will do.
StatusOr<Digester> MakeDigester(const std::string& name) {
  BATON_ASSIGN_OR_RETURN(const DigestAlgorithm algorithm, ParseDigestAlgorithm(name));
  const Sha256 key = RandomBytes<Sha256>();
  return Digester::Create(algorithm,
                          algorithm == DigestAlgorithm::kBlake2b ? AsBytes(key.bytes) : ByteSpan());
}

Status CheckFaultNames(const std::vector<std::string>& only, const drill::Drill& drill) {
  for (const std::string& id : only) {
    const auto named = [&](const drill::Fault& f) { return f.id == id; };
    if (id != "F02" && std::none_of(drill.faults().begin(), drill.faults().end(), named) &&
        std::none_of(drill.faults_at_rest().begin(), drill.faults_at_rest().end(), named))
      return absl::InvalidArgumentError(
          absl::StrCat("--fault ", id, ": there is no such fault; known are F01 to F30"));
  }
  return absl::OkStatus();
}

bool Wanted(const std::vector<std::string>& only, const std::string& id) {
  return only.empty() || std::find(only.begin(), only.end(), id) != only.end();
}

// Over one connector, F02 (below the hand-off) once with the first.
Status FillOver(const Flags& f,
                const std::string& connector,
                bool first,
                const Subject& subject,
                drill::Report* report) {
  bool slots_done = !first;
  for (const drill::Fault& fault : subject.drill->faults()) {
    if (!slots_done && fault.id > "F02") {
      slots_done = true;
      if (Wanted(f.only, "F02")) {
        BATON_ASSIGN_OR_RETURN(drill::FaultReport one,
                               drill::TwoSequencesInOneSlot(*subject.model, *subject.inputs));
        report->faults.push_back(std::move(one));
      }
    }
    if (!Wanted(f.only, fault.id)) continue;
    BATON_ASSIGN_OR_RETURN(drill::FaultReport one,
                           subject.drill->Run(fault, connector, /*divergence=*/first));
    report->faults.push_back(std::move(one));
  }
  return absl::OkStatus();
}

Status Fill(const Flags& f, const Subject& subject, drill::Report* report) {
  for (size_t c = 0; c < report->connectors.size(); ++c)
    BATON_RETURN_IF_ERROR(FillOver(f, report->connectors[c], c == 0, subject, report));
  for (const drill::Fault& fault : subject.drill->faults_at_rest()) {
    const std::string place = drill::RestName(fault.rest);
    if (!Wanted(f.only, fault.id) || !(f.all || Wanted(f.places, place))) continue;
    // What a user would have got is told once for each fault, where it is no hand-off's.
    const bool told = std::any_of(report->faults.begin(), report->faults.end(), [&](const auto& r) {
      return r.id == fault.id && r.divergence.has_value();
    });
    BATON_ASSIGN_OR_RETURN(drill::FaultReport one,
                           subject.drill->Run(fault, "", /*divergence=*/!told));
    report->faults.push_back(std::move(one));
  }
  return absl::OkStatus();
}

int RunDrill(const Flags& f) {
  auto dir = ResolveModel(f.model);
  if (!dir.ok()) return Fail(dir.status());
  auto text = server::ModelText::Load(*dir, {});
  const server::TextFrontend* frontend =
      text.ok() && (*text)->has_tokenizer() ? text->get() : nullptr;
  auto model = LoadModel(*dir, {});
  if (!model.ok()) return Fail(model.status());
  auto inputs = MakeInputs(**model, frontend);
  if (!inputs.ok()) return Fail(inputs.status());
  auto digester = MakeDigester(f.digest);
  if (!digester.ok()) return Fail(digester.status());
  auto drill = drill::Drill::Create(model->get(), *inputs, *digester);
  if (!drill.ok()) return Fail(drill.status());

  if (const Status s = CheckFaultNames(f.only, **drill); !s.ok()) return Fail(s);

  drill::Report report;
  report.model = f.model.empty() ? "the embedded model" : f.model;
  report.connectors = f.all ? EveryConnector() : JoinPlans(f.connectors);
  report.digest = f.digest;
  report.truth = (*drill)->truth();
  const Subject subject{model->get(), &*inputs, drill->get()};
  if (const Status s = Fill(f, subject, &report); !s.ok()) return Fail(s);

  drill::TextOf text_of;
  if (frontend != nullptr) {
    text_of = [frontend](std::span<const TokenId> ids) { return frontend->Decode(ids, true); };
  }
  if (!f.plot.empty()) {
    std::ofstream out(f.plot);
    out << drill::PlotSvg(report);
    if (!out.flush())
      return Fail(absl::UnavailableError(absl::StrCat(f.plot, ": cannot be written")));
  }
  if (f.json) {
    std::puts(drill::ToJson(report, text_of).dump(2).c_str());
  } else {
    std::fputs(drill::FormatTable(report, text_of).c_str(), stdout);
  }
  return report.Passed() ? 0 : 1;
}

}  // namespace

Run AddDrill(CLI::App* app) {
  auto f = std::make_shared<Flags>();
  app->add_option("model", f->model, "model directory; default: the embedded model");
  app->add_option("--connector", f->connectors,
                  "connectors to drill over, e.g. shm,tcp,ucx, or a plan: kv=shm,state=tcp")
      ->delimiter(',')
      ->capture_default_str();
  app->add_option("--at-rest", f->places,
                  "where states wait that are drilled too: memory,host,disk,parking or none")
      ->delimiter(',')
      ->check(CLI::IsMember({"memory", "host", "disk", "parking", "none"}))
      ->capture_default_str();
  app->add_option("--digest", f->digest,
                  "of state and KV: xxh3-128, or blake2b with a key made for the drill")
      ->check(CLI::IsMember({"xxh3-128", "blake2b"}))
      ->capture_default_str();
  app->add_flag("--all", f->all, "over every connector of this build, and everywhere at rest");
  app->add_option("--fault", f->only, "only these faults, e.g. F01,F11")->delimiter(',');
  app->add_flag("--json", f->json, "print JSON");
  app->add_option("--plot", f->plot, "write an SVG of the divergence along the answer");
  return [f] { return RunDrill(*f); };
}

}  // namespace baton::cli
