#include "trace.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "base/json.h"

namespace baton::bench {
namespace {

bool ParseJsonLine(const std::string& line, TraceRequest* r) {
  const StatusOr<Json> json = ParseJsonLenient(line);
  if (!json.ok() || !json->is_object()) return false;
  for (const char* key : {"timestamp", "input_length", "output_length"})
    if (!json->contains(key) || !(*json)[key].is_number()) return false;
  r->arrival_s = (*json)["timestamp"].get<double>() / 1e3;
  r->input = (*json)["input_length"].get<int64_t>();
  r->output = (*json)["output_length"].get<int64_t>();
  if (!json->contains("hash_ids")) return true;
  const Json& ids = (*json)["hash_ids"];
  if (!ids.is_array()) return false;
  for (const Json& id : ids) {
    if (!id.is_number_integer()) return false;
    r->blocks.push_back(id.get<int64_t>());
  }
  return true;
}

// "2023-11-16 18:15:46.6805900,374,44"; the traces do not cross a day.
bool ParseCsvLine(const std::string& line, TraceRequest* r) {
  int hour = 0, minute = 0;
  double second = 0;
  long long input = 0, output = 0;
  if (std::sscanf(line.c_str(), "%*d-%*d-%*d %d:%d:%lf,%lld,%lld", &hour, &minute, &second, &input,
                  &output) != 5)
    return false;
  r->arrival_s = hour * 3600.0 + minute * 60.0 + second;
  r->input = input;
  r->output = output;
  return true;
}

}  // namespace

StatusOr<Trace> ReadTrace(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrCat("cannot open ", path));
  Trace trace;
  trace.name = std::filesystem::path(path).stem().string();
  const bool csv = path.size() > 4 && path.substr(path.size() - 4) == ".csv";
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.empty() || (csv && number == 1)) continue;
    TraceRequest r;
    if (!(csv ? ParseCsvLine(line, &r) : ParseJsonLine(line, &r)) || r.input < 1 || r.output < 0)
      return absl::InvalidArgumentError(absl::StrCat(path, ":", number, ": not a trace line"));
    trace.requests.push_back(r);
  }
  if (trace.requests.empty()) return absl::InvalidArgumentError(absl::StrCat(path, ": empty"));
  std::stable_sort(
      trace.requests.begin(), trace.requests.end(),
      [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_s < b.arrival_s; });
  const double start = trace.requests[0].arrival_s;
  for (TraceRequest& r : trace.requests) r.arrival_s -= start;
  return trace;
}

}  // namespace baton::bench
