// Requests of a public trace: when they arrive and how long they are. Two formats are read by their
// extension: .jsonl with {timestamp ms, input_length, output_length} and perhaps
// hash_ids, .csv with TIMESTAMP,ContextTokens,GeneratedTokens. Thread rule: free functions.
#ifndef BATON_BENCH_MEMORY_TRACE_H_
#define BATON_BENCH_MEMORY_TRACE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace baton::bench {

struct TraceRequest {
  double arrival_s = 0;  // from the start of the trace
  int64_t input = 0;     // tokens, at least 1
  int64_t output = 0;
  std::vector<int64_t> blocks;  // ids of the prompt's 512-token blocks, where the trace has them
};

struct Trace {
  std::string name;
  std::vector<TraceRequest> requests;  // by arrival
};

// kInvalidArgument with file and line.
StatusOr<Trace> ReadTrace(const std::string& path);

}  // namespace baton::bench

#endif  // BATON_BENCH_MEMORY_TRACE_H_
