#include "cli/serve_flags.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/rng.h"
#include "handoff/transfer_plan.h"

namespace baton::cli {
namespace {

// Share of physical memory that pools may map; pages cost memory only when touched.
constexpr double kPoolShare = 0.5;
constexpr int64_t kBlocksMax = 1 << 20;
constexpr size_t kKeyFileMax = 4096;

uint64_t PhysicalBytes() {
  return static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
         static_cast<uint64_t>(sysconf(_SC_PAGE_SIZE));
}

// Enough for every sequence at full context, but no more than what memory holds.
int64_t DefaultBlocks(const model::Model& model, int64_t max_num_seqs, uint64_t slot_bytes_all) {
  uint64_t block_bytes = 0;
  for (const KvGroup& g : model.layout().groups()) block_bytes += g.block_bytes;
  if (block_bytes == 0) return 1;
  const auto pool = static_cast<uint64_t>(kPoolShare * static_cast<double>(PhysicalBytes()));
  const uint64_t left = pool > slot_bytes_all ? pool - slot_bytes_all : pool / 4;
  const int64_t fits = static_cast<int64_t>(left / block_bytes);
  const int64_t wanted = max_num_seqs * BlocksFor(model.max_model_len()) * 2;
  return std::max<int64_t>(std::min({fits, wanted, kBlocksMax}), 64);
}

StatusOr<Digester> MakeDigester(const HandoffFlags& f) {
  BATON_ASSIGN_OR_RETURN(const DigestAlgorithm algorithm, ParseDigestAlgorithm(f.digest));
  std::string key;
  if (!f.digest_key_file.empty()) {
    BATON_ASSIGN_OR_RETURN(std::string text, ReadFileBytes(f.digest_key_file, kKeyFileMax));
    while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.back())))
      text.pop_back();
    const bool hex = text.size() % 2 == 0 && std::all_of(text.begin(), text.end(), [](char c) {
                       return absl::ascii_isxdigit(static_cast<unsigned char>(c));
                     });
    if (!hex || text.size() < 32 || text.size() > 128)
      return absl::InvalidArgumentError(
          absl::StrCat("--digest-key-file ", f.digest_key_file, ": ", text.size(),
                       " characters, expected 32 to 128 hexadecimal digits, an even number; make "
                       "one with: openssl rand -hex 32"));
    key = absl::HexStringToBytes(text);
  }
  if (algorithm == DigestAlgorithm::kBlake2b && key.empty())
    return absl::InvalidArgumentError(
        "--digest blake2b needs --digest-key-file; make a key with: openssl rand -hex 32");
  if (algorithm != DigestAlgorithm::kBlake2b && !key.empty())
    return absl::InvalidArgumentError(
        "--digest-key-file is of no use with --digest xxh3-128; add --digest blake2b");
  return Digester::Create(algorithm, AsBytes(key));
}

}  // namespace

void AddHttpFlags(CLI::App* app, HttpFlags* f) {
  app->add_option("--host", f->host, "address to listen on")->capture_default_str();
  app->add_option("--port", f->port, "port to listen on; 0: any free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  app->add_option("--api-key", f->api_keys, "bearer keys that are accepted; none: open");
  app->add_option("--served-model-name", f->served_names, "names clients may use for the model");
  app->add_option("--chat-template", f->chat_template, "Jinja file instead of the model's");
  app->add_option("--generation-config", f->generation_config,
                  "auto: defaults from the model's generation_config.json; vllm: neutral ones")
      ->check(CLI::IsMember({"auto", "vllm"}))
      ->capture_default_str();
  app->add_option("--shutdown-timeout", f->shutdown_timeout_s,
                  "seconds running requests may take after SIGTERM")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  app->add_option("--max-waiting", f->max_waiting, "queued requests; more are answered 429")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  app->add_option("--seed", f->seed, "seed of requests that name none")->capture_default_str();
}

void AddEngineFlags(CLI::App* app, EngineFlags* f) {
  app->add_option("--threads", f->threads, "compute threads; 0: all cores")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  app->add_option("--max-model-len", f->max_model_len, "context length; 0: the model's")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
      ->capture_default_str();
  app->add_option("--max-num-seqs", f->max_num_seqs, "sequences computed at once")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  app->add_option("--max-num-batched-tokens", f->max_num_batched_tokens,
                  "tokens per step, prefill and decode together")
      ->check(CLI::Range(int64_t{1}, int64_t{65536}))
      ->capture_default_str();
  app->add_option("--block-size", f->block_size, "tokens per KV block; always 16")
      ->check(CLI::IsMember({int64_t{16}}))
      ->capture_default_str();
  app->add_option("--memory-bytes", f->memory_bytes,
                  "memory that state slots and KV blocks share, e.g. 8GB; 0: by the machine")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--state-slots", f->state_slots,
                  "a fixed number of recurrent states, live and checkpoints; 0: as needed")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--kv-blocks", f->kv_blocks,
                  "a fixed number of KV blocks per group; 0: as needed")
      ->check(CLI::Range(int64_t{0}, kBlocksMax))
      ->capture_default_str();
  app->add_flag("--enable-prefix-caching,!--no-enable-prefix-caching", f->prefix_caching,
                "keep checkpoints and resume from them (default on)");
  app->add_option("--host-cache-bytes", f->host_cache_bytes,
                  "memory for checkpoints that have left the shared one, e.g. 4GB; 0: none")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--disk-cache", f->disk_cache,
                  "directory where checkpoints outlive this process; one process per directory");
  app->add_option("--disk-cache-bytes", f->disk_cache_bytes, "most that may lie there, e.g. 64GB")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--disk-sync", f->disk_sync,
                  "what a power cut may take: none, data or full (a killed process takes nothing "
                  "under any)")
      ->check(CLI::IsMember({"none", "data", "full"}))
      ->capture_default_str();
  app->add_option("--park-bytes", f->park_bytes,
                  "memory for the states of preempted sequences, e.g. 512MB; what does not fit is "
                  "computed again")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--checkpoint-dtype", f->checkpoint_dtype,
                  "how states rest in the tiers: same, or bf16, f16, int8, which give up that a "
                  "restored session continues with the very same bits")
      ->check(CLI::IsMember({"same", "bf16", "f16", "int8"}))
      ->capture_default_str();
  app->add_option("--audit", f->audit,
                  "share of cache hits that are computed again in the background and compared; "
                  "default 0.01, and 0 where --checkpoint-dtype is not same")
      ->check(CLI::Range(0.0, 1.0));
  app->add_option("--kv-cache-dtype", f->kv_cache_dtype, "auto or float32")
      ->check(CLI::IsMember({"auto", "float32"}));
  app->add_option("--mamba-ssm-cache-dtype", f->mamba_ssm_cache_dtype, "auto or float32")
      ->check(CLI::IsMember({"auto", "float32"}));
  AddStateDTypeFlag(app, &f->state_dtype);
}

void AddStateDTypeFlag(CLI::App* app, std::string* dtype) {
  app->add_option("--state-dtype", *dtype,
                  "of recurrent state between tokens; narrow ones are rounded once per 16 tokens "
                  "and give other bits than f32; the same on all workers; models with Mamba-2, "
                  "gated delta rule or lightning attention layers")
      ->check(CLI::IsMember({"f32", "bf16", "f16", "fp8_e4m3"}))
      ->capture_default_str();
}

void AddHandoffFlags(CLI::App* app, HandoffFlags* f) {
  app->add_option(
      "--handoff-listen", f->listen,
      "endpoints peers pull from: tcp:HOST:PORT, ucx:HOST:PORT, shm:@NAME; default: tcp "
      "and shm, any port");
  app->add_option("--handoff-retries", f->retries, "further tries after a rejected hand-off")
      ->check(CLI::Range(0, 16))
      ->capture_default_str();
  app->add_option("--on-reject", f->on_reject, "when the tries are used up")
      ->check(CLI::IsMember({"recompute", "fail"}))
      ->capture_default_str();
  app->add_option("--lease-seconds", f->lease_seconds, "how long an offer stays pinned")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  app->add_option("--digest", f->digest,
                  "of state and KV: xxh3-128, or blake2b with a key where peers or the network are "
                  "not trusted; the same on all workers")
      ->check(CLI::IsMember({"xxh3-128", "blake2b"}))
      ->capture_default_str();
  app->add_option("--digest-key-file", f->digest_key_file,
                  "file with the key of blake2b: 32 to 128 hexadecimal digits")
      ->check(CLI::ExistingFile);
  app->add_option(
         "--handoff-peer", f->peers,
         "endpoints of decode workers whose checkpoints this one may pull, exact or a prefix "
         "ending in *; default: none")
      ->type_name("ENDPOINT");
  app->add_option("--handoff-timeout", f->timeout_seconds, "seconds for ask, compute and pull")
      ->check(CLI::Range(1, 36000))
      ->capture_default_str();
}

CLI::Validator ConnectorChoice() {
  const auto check = [](const std::string& text) -> std::string {
    const auto single = [](const std::string& name) {
      return name == "shm" || name == "tcp" || name == "ucx";
    };
    if (single(text)) return "";
    const StatusOr<TransferPlan> plan = ParseTransferPlan(text);
    if (plan.ok() && plan->mixed() && single(plan->kv) && single(plan->state)) return "";
    return "'" + text + "' is not shm, tcp, ucx, or a plan like kv=shm,state=tcp";
  };
  return CLI::Validator(check, "{shm,tcp,ucx,kv=X,state=Y}");
}

int ThreadsOf(const EngineFlags& flags) {
  if (flags.threads > 0) return flags.threads;
  return static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

StatusOr<std::unique_ptr<model::Model>> LoadModel(const std::string& dir,
                                                  const EngineFlags& flags) {
  ThreadPool pool(ThreadsOf(flags));
  model::LoadOptions options;
  options.pool = &pool;
  options.max_model_len = flags.max_model_len;
  const auto state = kernel::ParseStateDType(flags.state_dtype);
  if (!state.has_value())
    return absl::InvalidArgumentError(absl::StrCat("--state-dtype ", flags.state_dtype,
                                                   ": expected f32, bf16, f16 or fp8_e4m3"));
  options.state_dtype = *state;
  return model::Model::Load(dir, options);
}

StatusOr<engine::WorkerOptions> MakeWorkerOptions(const model::Model& model,
                                                  const EngineFlags& f,
                                                  const HandoffFlags& handoff,
                                                  const std::string& role) {
  if (f.max_num_batched_tokens < f.max_num_seqs)
    return absl::InvalidArgumentError(absl::StrCat(
        "--max-num-batched-tokens is ", f.max_num_batched_tokens, " but --max-num-seqs is ",
        f.max_num_seqs, ": a step must have room for one token of every sequence"));
  engine::WorkerOptions o;
  o.engine.threads = ThreadsOf(f);
  o.engine.max_num_seqs = f.max_num_seqs;
  o.engine.token_budget = f.max_num_batched_tokens;
  o.engine.prefix_caching = f.prefix_caching;
  o.engine.park_bytes = f.park_bytes;
  BATON_ASSIGN_OR_RETURN(o.checkpoint_dtype, ParseRestEncoding(f.checkpoint_dtype));
  const bool exact = o.checkpoint_dtype == RestEncoding::kSame;
  if (!exact && f.audit.value_or(0) > 0)
    return absl::InvalidArgumentError("--audit compares bits, and --checkpoint-dtype " +
                                      f.checkpoint_dtype + " gives them up; use one of the two");
  o.engine.audit_share = f.prefix_caching ? f.audit.value_or(exact ? 0.01 : 0) : 0;
  if (!f.prefix_caching && (f.host_cache_bytes > 0 || !f.disk_cache.empty()))
    return absl::InvalidArgumentError(
        "--host-cache-bytes and --disk-cache keep checkpoints; drop --no-enable-prefix-caching");
  o.host_cache_bytes = f.host_cache_bytes;
  if (!f.disk_cache.empty()) {
    if (f.disk_cache_bytes == 0)
      return absl::InvalidArgumentError("--disk-cache-bytes is 0; give --disk-cache some room");
    DiskStoreOptions disk;
    disk.directory = f.disk_cache;
    BATON_ASSIGN_OR_RETURN(disk.fsync, ParseFsyncPolicy(f.disk_sync));
    o.disk = std::move(disk);
    o.disk_cache_bytes = f.disk_cache_bytes;
  }
  o.engine.handoff_retries = handoff.retries;
  o.engine.fail_on_reject = handoff.on_reject == "fail";
  o.engine.serve_from_cache_only = role == "decode";
  o.engine.handoff_timeout = std::chrono::seconds(handoff.timeout_seconds);
  const int64_t slots = f.state_slots > 0 ? f.state_slots : 3 * f.max_num_seqs;
  if (f.memory_bytes > 0 && (f.state_slots > 0 || f.kv_blocks > 0))
    return absl::InvalidArgumentError(
        "--memory-bytes is shared as needed, --state-slots and --kv-blocks are fixed shares; give "
        "the one or the others");
  o.memory.slots = static_cast<uint32_t>(slots);
  const uint64_t slot_bytes =
      (model.layout().slot_bytes() + model.slot_tail_bytes()) * static_cast<uint64_t>(slots);
  o.memory.blocks = static_cast<uint32_t>(
      f.kv_blocks > 0 ? f.kv_blocks : DefaultBlocks(model, f.max_num_seqs, slot_bytes));
  if (f.state_slots == 0 && f.kv_blocks == 0)
    o.memory.budget_bytes =
        f.memory_bytes > 0
            ? f.memory_bytes
            : engine::NodeMemoryBytes(model.layout(), o.memory.slots, o.memory.blocks,
                                      model.slot_tail_bytes());
  o.lease = std::chrono::seconds(handoff.lease_seconds);
  BATON_ASSIGN_OR_RETURN(o.digester, MakeDigester(handoff));
  o.listen = handoff.listen;
  o.engine.hint_peers = handoff.peers;
  if (o.listen.empty() && role != "all")
    o.listen = {"tcp:127.0.0.1:0", "shm:@baton-" + RandomBytes<NodeId>().Hex()};
  return o;
}

int Fail(const Status& status) {
  std::fprintf(stderr, "baton: %s\n", std::string(status.message()).c_str());
  return 1;
}

}  // namespace baton::cli
