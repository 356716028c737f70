// Flags shared by `serve` and whoever starts workers: names as vLLM's where the meaning is the
// same.
#ifndef BATON_CLI_SERVE_FLAGS_H_
#define BATON_CLI_SERVE_FLAGS_H_

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/worker.h"
#include "model/model.h"

namespace baton::cli {

// Of every HTTP server: serve and route.
struct HttpFlags {
  std::string host = "127.0.0.1";
  int port = 8000;
  std::vector<std::string> api_keys;
  std::vector<std::string> served_names;
  std::string chat_template;               // file; empty: the model's
  std::string generation_config = "auto";  // auto: the model's; vllm: neutral defaults
  int shutdown_timeout_s = 30;
  int max_waiting = 1024;
  uint64_t seed = 0;
};
void AddHttpFlags(CLI::App* app, HttpFlags* flags);

// Of every engine: serve and generate.
struct EngineFlags {
  int threads = 0;  // 0: all cores
  int64_t max_model_len = 0;
  int64_t max_num_seqs = 64;
  int64_t max_num_batched_tokens = 256;
  int64_t block_size = 16;
  uint64_t memory_bytes = 0;  // shared by slots and blocks; 0: by memory
  int64_t state_slots = 0;    // this or the next given: fixed shares; 0: three per sequence
  int64_t kv_blocks = 0;      // 0: by memory
  bool prefix_caching = true;
  uint64_t host_cache_bytes = 0;
  std::string disk_cache;  // directory; empty: none
  uint64_t disk_cache_bytes = uint64_t{16} << 30;
  std::string disk_sync = "none";
  std::string checkpoint_dtype = "same";
  uint64_t park_bytes = uint64_t{512} << 20;
  std::optional<double> audit;  // 0.01 where the bits are the same
  std::string kv_cache_dtype = "auto";
  std::string mamba_ssm_cache_dtype = "auto";
  std::string state_dtype = "f32";
};
void AddEngineFlags(CLI::App* app, EngineFlags* flags);

// --state-dtype, for whoever loads or inspects a model.
void AddStateDTypeFlag(CLI::App* app, std::string* dtype);

struct HandoffFlags {
  std::vector<std::string> listen;
  int retries = 1;
  std::string on_reject = "recompute";
  int lease_seconds = 30;
  int timeout_seconds = 120;
  std::string digest = "xxh3-128";
  std::string digest_key_file;  // 32..128 hexadecimal digits, for blake2b
  std::vector<std::string> peers;
};
void AddHandoffFlags(CLI::App* app, HandoffFlags* flags);

// "shm", "tcp", or a plan "kv=shm,state=tcp".
CLI::Validator ConnectorChoice();

int ThreadsOf(const EngineFlags& flags);
StatusOr<std::unique_ptr<model::Model>> LoadModel(const std::string& dir, const EngineFlags& flags);
// Sizes pools from flags, layout and the machine's memory. InvalidArgument names the flag.
StatusOr<engine::WorkerOptions> MakeWorkerOptions(const model::Model& model,
                                                  const EngineFlags& engine,
                                                  const HandoffFlags& handoff,
                                                  const std::string& role);

// Prints "baton: MESSAGE" to stderr and returns 1.
int Fail(const Status& status);

}  // namespace baton::cli

#endif  // BATON_CLI_SERVE_FLAGS_H_
