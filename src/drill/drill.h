// Runs the catalogue of faults against a model and a set of connectors, and says for each fault:
// which check found it, whether the request and the one beside it still got the tokens of an
// undisturbed run, whether anything leaked; and, with the guards off, what a user would have
// received. The only program part, beside tests, that can switch a check off.
//
// Thread rule: one thread.
#ifndef BATON_DRILL_DRILL_H_
#define BATON_DRILL_DRILL_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "drill/fault.h"

namespace baton::drill {

// What a request became whose memory was wrong and nobody looked.
struct Divergence {
  std::vector<TokenId> tokens;         // as received
  int64_t first_differing_token = -1;  // index in the output; -1: none differs
  // Of the right distribution from the wrong one, in nats, at each position of the right output
  // (both runs are fed the right tokens).
  std::vector<double> kl;
  double first_token_distance = 0;  // total variation of the first token's two distributions, 0..1
  std::string error;                // the engine stopped instead: its message
};

struct FaultReport {
  std::string id, variant, title, connector, check;
  std::string not_applicable;  // why; nothing else is set then
  // With every check on.
  bool detected = false;  // refused for its own reason; or found no way in (Expect::kPrevented)
  std::string reason;     // reason code, "prevented" or "cancelled"
  std::string message;
  bool tokens_equal = false;     // tokens and logits of the victim, to the bit
  bool bystander_equal = false;  // and of the requests beside it
  uint64_t held = 0;             // units, leases, references left behind
  int64_t recomputed_tokens = 0;
  // With the guards off.
  std::optional<bool> reaches_compute;
  std::string no_twin;  // why it was not tried
  std::optional<Divergence> divergence;

  bool Passed() const {
    return !not_applicable.empty() || (detected && tokens_equal && bystander_equal && held == 0 &&
                                       reaches_compute.value_or(true));
  }
};

class Drill {
 public:
  // Computes what is right. `model` outlives this; all workers digest with `digester`.
  // kInvalidArgument if a prompt is too short.
  static StatusOr<std::unique_ptr<Drill>> Create(const model::Model* model,
                                                 Inputs inputs,
                                                 Digester digester = {});
  ~Drill();

  // Of a hand-off, in order of id.
  const std::vector<Fault>& faults() const { return faults_; }
  // Of bundles at rest: by place, in order of id. Run ignores the connector for these.
  const std::vector<Fault>& faults_at_rest() const { return faults_at_rest_; }
  // `connector`: a name, or a plan like "kv=shm,state=tcp".
  // Errors are those of the rig (memory, endpoints), never of a fault. `divergence`: also measure
  // how far the twin's answer is off.
  StatusOr<FaultReport> Run(const Fault& fault, const std::string& connector, bool divergence);
  // The victim's right output.
  std::vector<TokenId> truth() const;

 private:
  struct Outcome;
  struct Attempted;
  Drill(const model::Model* model, Inputs inputs, Digester digester);
  Status Prepare();
  engine::GenerateRequest Victim() const;
  engine::GenerateRequest Bystander() const;
  RigOptions OptionsOf(const Fault& fault, const std::string& connector, bool twin) const;
  StatusOr<Outcome> Undisturbed(const engine::GenerateRequest& request) const;
  StatusOr<Attempted> Attack(const Fault& fault,
                             const std::string& connector,
                             bool twin,
                             const engine::GenerateRequest& victim) const;
  StatusOr<Attempted> AttackAtRest(const Fault& fault,
                                   bool twin,
                                   const engine::GenerateRequest& victim) const;
  StatusOr<Attempted> AttackParked(const Fault& fault,
                                   bool twin,
                                   const engine::GenerateRequest& victim) const;
  Status RunGuarded(const Fault& fault, const std::string& connector, FaultReport* report) const;
  Status RunTwin(const Fault& fault,
                 const std::string& connector,
                 bool divergence,
                 FaultReport* report) const;

  const model::Model* model_;
  const Inputs in_;
  const Digester digester_;
  std::vector<Fault> faults_;
  std::vector<Fault> faults_at_rest_;
  Payloads payloads_;
  std::unique_ptr<Outcome> truth_, beside_, forced_;
};

// F02, below the hand-off: two sequences in one slot of one step.
StatusOr<FaultReport> TwoSequencesInOneSlot(const model::Model& model, const Inputs& inputs);

}  // namespace baton::drill

#endif  // BATON_DRILL_DRILL_H_
