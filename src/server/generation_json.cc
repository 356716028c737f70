#include "server/generation_json.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "server/cat.h"

namespace baton::server {
namespace {

using engine::FinishReason;
using engine::GenerateRequest;
using engine::GenerateResult;
using engine::HandoffRecord;
using engine::PromptScore;
using engine::SamplingParams;
using engine::TokenEvent;
using engine::Usage;

constexpr size_t kPromptMax = size_t{1} << 24;
constexpr size_t kBiasMax = size_t{1} << 12;
constexpr std::string_view kFinishNames[] = {"stop", "length", "cancelled", "error"};

// Reads fields of an object; the first wrong one is kept. Absent fields are wrong too: both ends
// are of one version, so a missing field is damage.
class Reader {
 public:
  explicit Reader(const Json& object) : object_(object) {
    if (!object.is_object()) status_ = absl::InvalidArgumentError("not a JSON object");
  }

  const Json* Get(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto it = object_.find(name);
    if (it != object_.end()) return &*it;
    Wrong(name);
    return nullptr;
  }
  void Int(const char* name, int64_t* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_number_integer()) return Wrong(name);
    *out = v->get<int64_t>();
  }
  void Uint(const char* name, uint64_t* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_number_unsigned()) return Wrong(name);
    *out = v->get<uint64_t>();
  }
  void Double(const char* name, double* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_number()) return Wrong(name);
    *out = v->get<double>();
  }
  void Bool(const char* name, bool* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_boolean()) return Wrong(name);
    *out = v->get<bool>();
  }
  void String(const char* name, std::string* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_string()) return Wrong(name);
    *out = v->get<std::string>();
  }
  void Tokens(const char* name, std::vector<TokenId>* out) {
    const Json* v = Get(name);
    if (v == nullptr) return;
    if (!v->is_array() || v->size() > kPromptMax) return Wrong(name);
    out->reserve(v->size());
    for (const Json& id : *v) {
      if (!id.is_number_unsigned() || id.get<uint64_t>() > UINT32_MAX) return Wrong(name);
      out->push_back(id.get<TokenId>());
    }
  }
  void Wrong(const char* name) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(Cat("field '", name, "' is missing or malformed"));
    }
  }
  const Status& status() const { return status_; }

 private:
  const Json& object_;
  Status status_;
};

std::string ToHex(std::string_view bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (const char c : bytes) {
    hex.push_back(kDigits[static_cast<uint8_t>(c) >> 4]);
    hex.push_back(kDigits[static_cast<uint8_t>(c) & 15]);
  }
  return hex;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool FromHex(std::string_view hex, std::string* out) {
  if (hex.size() % 2 != 0) return false;
  out->clear();
  for (size_t i = 0; i < hex.size(); i += 2) {
    const int hi = HexDigit(hex[i]);
    const int lo = HexDigit(hex[i + 1]);
    if (hi < 0 || lo < 0) return false;
    out->push_back(static_cast<char>(hi * 16 + lo));
  }
  return true;
}

bool HashFromJson(const Json& json, Sha256* out) {
  std::string bytes;
  if (!json.is_string() || !FromHex(json.get_ref<const std::string&>(), &bytes) ||
      bytes.size() != Sha256::kSize) {
    return false;
  }
  std::copy(bytes.begin(), bytes.end(), out->bytes.begin());
  return true;
}

Json FloatToJson(float v) { return std::isfinite(v) ? Json(static_cast<double>(v)) : Json(); }

bool FloatFromJson(const Json& json, float* out) {
  if (!json.is_null() && !json.is_number()) return false;
  *out = -std::numeric_limits<float>::infinity();
  if (json.is_null()) return true;
  const double v = json.get<double>();
  if (std::fabs(v) > std::numeric_limits<float>::max()) return false;
  *out = static_cast<float>(v);
  return true;
}

using TokenValues = std::vector<std::pair<TokenId, float>>;

// [[token, value], ...]
Json PairsToJson(const TokenValues& pairs) {
  Json list = Json::array();
  for (const auto& [id, value] : pairs) list.push_back(Json::array({id, FloatToJson(value)}));
  return list;
}

bool PairsFromJson(const Json& json, TokenValues* out) {
  if (!json.is_array()) return false;
  out->reserve(json.size());
  for (const Json& pair : json) {
    float value = 0;
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() ||
        pair[0].get<uint64_t>() > UINT32_MAX || !FloatFromJson(pair[1], &value)) {
      return false;
    }
    out->emplace_back(pair[0].get<TokenId>(), value);
  }
  return true;
}

Json SamplingToJson(const SamplingParams& s) {
  return Json{{"temperature", s.temperature},
              {"top_k", s.top_k},
              {"top_p", s.top_p},
              {"min_p", s.min_p},
              {"repetition_penalty", s.repetition_penalty},
              {"presence_penalty", s.presence_penalty},
              {"frequency_penalty", s.frequency_penalty},
              {"logit_bias", PairsToJson(s.logit_bias)},
              {"seed", s.seed},
              {"max_tokens", s.max_tokens},
              {"min_tokens", s.min_tokens},
              {"ignore_eos", s.ignore_eos},
              {"stop_token_ids", s.stop_token_ids},
              {"logprobs", s.logprobs},
              {"prompt_logprobs", s.prompt_logprobs}};
}

Status SamplingFromJson(const Json& json, SamplingParams* s) {
  Reader r(json);
  int64_t logprobs = -1;
  int64_t prompt_logprobs = -1;
  r.Double("temperature", &s->temperature);
  r.Int("top_k", &s->top_k);
  r.Double("top_p", &s->top_p);
  r.Double("min_p", &s->min_p);
  r.Double("repetition_penalty", &s->repetition_penalty);
  r.Double("presence_penalty", &s->presence_penalty);
  r.Double("frequency_penalty", &s->frequency_penalty);
  const Json* bias = r.Get("logit_bias");
  if (bias != nullptr && (bias->size() > kBiasMax || !PairsFromJson(*bias, &s->logit_bias)))
    r.Wrong("logit_bias");
  r.Uint("seed", &s->seed);
  r.Int("max_tokens", &s->max_tokens);
  r.Int("min_tokens", &s->min_tokens);
  r.Bool("ignore_eos", &s->ignore_eos);
  r.Tokens("stop_token_ids", &s->stop_token_ids);
  r.Int("logprobs", &logprobs);
  if (logprobs < -1 || logprobs > 1'000'000) r.Wrong("logprobs");
  s->logprobs = static_cast<int32_t>(logprobs);
  r.Int("prompt_logprobs", &prompt_logprobs);
  if (prompt_logprobs < -1 || prompt_logprobs > 1'000'000) r.Wrong("prompt_logprobs");
  s->prompt_logprobs = static_cast<int32_t>(prompt_logprobs);
  return r.status();
}

Json UsageToJson(const Usage& u) {
  return Json{
      {"prompt_tokens", u.prompt_tokens},         {"completion_tokens", u.completion_tokens},
      {"cached_tokens", u.cached_tokens},         {"local_prefill_tokens", u.local_prefill_tokens},
      {"recomputed_tokens", u.recomputed_tokens}, {"rejects", u.rejects}};
}

Status UsageFromJson(const Json& json, Usage* u) {
  Reader r(json);
  r.Int("prompt_tokens", &u->prompt_tokens);
  r.Int("completion_tokens", &u->completion_tokens);
  r.Int("cached_tokens", &u->cached_tokens);
  r.Int("local_prefill_tokens", &u->local_prefill_tokens);
  r.Int("recomputed_tokens", &u->recomputed_tokens);
  r.Int("rejects", &u->rejects);
  return r.status();
}

Status HandoffFromJson(const Json& json, HandoffRecord* h) {
  Reader r(json);
  r.String("state_id", &h->state_id);
  r.Int("boundary", &h->boundary);
  r.Int("parts", &h->parts);
  r.Int("kv_bytes", &h->kv_bytes);
  r.Int("state_bytes", &h->state_bytes);
  r.Double("milliseconds", &h->milliseconds);
  r.Double("wait_milliseconds", &h->wait_milliseconds);
  r.String("connector", &h->connector);
  r.Bool("verified", &h->verified);
  r.String("reason", &h->reason);
  r.String("message", &h->message);
  return r.status();
}

// [token, logprob, logits hash, [[token, logprob], ...]]
Status EventFromJson(const Json& json, TokenEvent* event) {
  const Status wrong = absl::InvalidArgumentError("malformed token event");
  if (!json.is_array() || json.size() != 4 || !json[0].is_number_unsigned() ||
      json[0].get<uint64_t>() > UINT32_MAX || !FloatFromJson(json[1], &event->logprob) ||
      !HashFromJson(json[2], &event->logits_hash) || !PairsFromJson(json[3], &event->top)) {
    return wrong;
  }
  event->token = json[0].get<TokenId>();
  return absl::OkStatus();
}

// [logprob, rank, [[token, logprob], ...]]
Status ScoreFromJson(const Json& json, PromptScore* score) {
  if (!json.is_array() || json.size() != 3 || !FloatFromJson(json[0], &score->logprob) ||
      !json[1].is_number_unsigned() || json[1].get<uint64_t>() > UINT32_MAX ||
      !PairsFromJson(json[2], &score->top)) {
    return absl::InvalidArgumentError("malformed score of a prompt token");
  }
  score->rank = json[1].get<int64_t>();
  return absl::OkStatus();
}

StatusOr<GenerateResult> ResultFromJson(const Json& json) {
  GenerateResult result;
  Reader r(json);
  std::string finish;
  r.String("finish", &finish);
  const Json* stop = r.Get("stop_token");
  const Json* error = r.Get("error");
  const Json* usage = r.Get("usage");
  const Json* handoffs = r.Get("handoffs");
  const Json* scores = r.Get("prompt_scores");
  BATON_RETURN_IF_ERROR(r.status());
  const auto* name = std::find(std::begin(kFinishNames), std::end(kFinishNames), finish);
  if (name == std::end(kFinishNames) || !handoffs->is_array() || !scores->is_array() ||
      scores->size() > static_cast<size_t>(engine::kPromptScoresMax)) {
    return absl::InvalidArgumentError("malformed result");
  }
  result.reason = static_cast<FinishReason>(name - std::begin(kFinishNames));
  if (stop->is_number_unsigned()) result.stop_token = stop->get<TokenId>();
  if (!error->is_null()) {
    BATON_ASSIGN_OR_RETURN(result.error, StatusFromJson(*error));
  }
  BATON_RETURN_IF_ERROR(UsageFromJson(*usage, &result.usage));
  for (const Json& item : *handoffs) {
    result.handoffs.emplace_back();
    BATON_RETURN_IF_ERROR(HandoffFromJson(item, &result.handoffs.back()));
  }
  for (const Json& item : *scores) {
    result.prompt_scores.emplace_back();
    BATON_RETURN_IF_ERROR(ScoreFromJson(item, &result.prompt_scores.back()));
  }
  return result;
}

}  // namespace

Json HandoffToJson(const HandoffRecord& h) {
  return Json{{"state_id", h.state_id},
              {"boundary", h.boundary},
              {"parts", h.parts},
              {"kv_bytes", h.kv_bytes},
              {"state_bytes", h.state_bytes},
              {"milliseconds", h.milliseconds},
              {"wait_milliseconds", h.wait_milliseconds},
              {"connector", h.connector},
              {"verified", h.verified},
              {"reason", h.reason},
              {"message", h.message}};
}

Json StatusToJson(const Status& status) {
  const auto reason = ReasonOf(status);
  return Json{{"code", absl::StatusCodeToString(status.code())},
              {"message", std::string(status.message())},
              {"reason", reason ? Json(std::string(ReasonName(*reason))) : Json()}};
}

StatusOr<Status> StatusFromJson(const Json& json) {
  Reader r(json);
  std::string code;
  std::string message;
  r.String("code", &code);
  r.String("message", &message);
  const Json* reason = r.Get("reason");
  BATON_RETURN_IF_ERROR(r.status());
  if (reason->is_string()) {
    for (int i = 0; i <= static_cast<int>(Reason::kCancelled); ++i) {
      const auto candidate = static_cast<Reason>(i);
      if (ReasonName(candidate) == reason->get_ref<const std::string&>()) {
        return Reject(candidate, message);
      }
    }
  }
  for (int i = 1; i <= static_cast<int>(absl::StatusCode::kUnauthenticated); ++i) {
    const auto candidate = static_cast<absl::StatusCode>(i);
    if (absl::StatusCodeToString(candidate) == code) return Status(candidate, message);
  }
  return absl::UnknownError(Cat(code, ": ", message));
}

std::string EncodeRequest(const GenerateRequest& request) {
  return DumpJson(Json{
      {"prompt", request.prompt},
      {"prompt_len", request.prompt_len},
      {"sampling", SamplingToJson(request.sampling)},
      {"cache_salt_hex", ToHex(request.cache_salt)},
      {"conversation_len", request.conversation_len},
      {"logits_hash", request.logits_hash ? Json(request.logits_hash->Hex()) : Json()},
      {"prefill_endpoint", request.prefill_endpoint},
      {"label", request.label},
  });
}

StatusOr<GenerateRequest> DecodeRequest(std::string_view text) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJsonLenient(text));
  GenerateRequest request;
  Reader r(json);
  std::string salt;
  r.Tokens("prompt", &request.prompt);
  r.Int("prompt_len", &request.prompt_len);
  r.String("cache_salt_hex", &salt);
  if (!FromHex(salt, &request.cache_salt)) r.Wrong("cache_salt_hex");
  r.Int("conversation_len", &request.conversation_len);
  r.String("prefill_endpoint", &request.prefill_endpoint);
  r.String("label", &request.label);
  const Json* hash = r.Get("logits_hash");
  if (hash != nullptr && !hash->is_null() && !HashFromJson(*hash, &request.logits_hash.emplace())) {
    r.Wrong("logits_hash");
  }
  const Json* sampling = r.Get("sampling");
  BATON_RETURN_IF_ERROR(r.status());
  BATON_RETURN_IF_ERROR(SamplingFromJson(*sampling, &request.sampling));
  return request;
}

std::string EncodeEvents(std::span<const TokenEvent> events) {
  Json list = Json::array();
  for (const TokenEvent& event : events) {
    list.push_back(Json::array({event.token, FloatToJson(event.logprob), event.logits_hash.Hex(),
                                PairsToJson(event.top)}));
  }
  return DumpJson(Json{{"tokens", std::move(list)}}) + "\n";
}

std::string EncodeResult(const GenerateResult& result) {
  Json handoffs = Json::array();
  for (const HandoffRecord& h : result.handoffs) handoffs.push_back(HandoffToJson(h));
  Json scores = Json::array();
  for (const PromptScore& score : result.prompt_scores) {
    scores.push_back(Json::array({FloatToJson(score.logprob), score.rank, PairsToJson(score.top)}));
  }
  Json json{{"finish", std::string(kFinishNames[static_cast<int>(result.reason)])},
            {"stop_token", result.stop_token ? Json(*result.stop_token) : Json()},
            {"error", result.error.ok() ? Json() : StatusToJson(result.error)},
            {"usage", UsageToJson(result.usage)},
            {"handoffs", std::move(handoffs)},
            {"prompt_scores", std::move(scores)}};
  return DumpJson(Json{{"result", std::move(json)}}) + "\n";
}

StatusOr<GenerationLine> DecodeLine(std::string_view line) {
  BATON_ASSIGN_OR_RETURN(const Json json, ParseJsonLenient(line));
  if (json.is_object() && json.contains("result")) {
    BATON_ASSIGN_OR_RETURN(GenerateResult result, ResultFromJson(json["result"]));
    return GenerationLine(std::move(result));
  }
  if (!json.is_object() || !json.contains("tokens") || !json["tokens"].is_array()) {
    return absl::InvalidArgumentError("neither token events nor a result");
  }
  std::vector<TokenEvent> events;
  for (const Json& item : json["tokens"]) {
    events.emplace_back();
    BATON_RETURN_IF_ERROR(EventFromJson(item, &events.back()));
  }
  return GenerationLine(std::move(events));
}

}  // namespace baton::server
