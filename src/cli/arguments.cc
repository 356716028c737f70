#include "cli/arguments.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <string_view>

namespace baton::cli {
namespace {

struct ForeignFlag {
  std::string_view theirs;
  std::string_view ours;
};

// SGLang and llama.cpp names, and vLLM's that mean something else here.
constexpr ForeignFlag kForeignFlags[] = {
    {"--model-path", "the model directory as a plain argument"},
    {"--model", "the model directory as a plain argument"},
    {"--context-length", "--max-model-len"},
    {"--ctx-size", "--max-model-len"},
    {"--max-running-requests", "--max-num-seqs"},
    {"--parallel", "--max-num-seqs"},
    {"--chunked-prefill-size", "--max-num-batched-tokens"},
    {"--batch-size", "--max-num-batched-tokens"},
    {"--max-prefill-tokens", "--max-num-batched-tokens"},
    {"--disaggregation-mode", "--role"},
    {"--disaggregation-transfer-backend", "--connector"},
    {"--disable-radix-cache", "--no-enable-prefix-caching"},
    {"--mem-fraction-static", "--memory-bytes, or --state-slots and --kv-blocks"},
    {"--gpu-memory-utilization", "--memory-bytes, or --state-slots and --kv-blocks"},
    {"--max-mamba-cache-size", "--state-slots"},
    {"--page-size", "--block-size"},
    {"--mamba-ssm-dtype", "--state-dtype"},
    {"--tp", "nothing: one worker is one shard"},
    {"--tensor-parallel-size", "nothing: one worker is one shard"},
    {"--random-seed", "--seed"},
    {"--kv-transfer-config", "--role, --handoff-listen and --connector"},
};

std::string NameOf(const std::string& argument) { return argument.substr(0, argument.find('=')); }

std::string AnswerForeign(const std::vector<std::string>& arguments) {
  for (const std::string& a : arguments)
    for (const ForeignFlag& f : kForeignFlags)
      if (NameOf(a) == f.theirs)
        return std::string(f.theirs) + " is not a flag of baton; did you mean " +
               std::string(f.ours) + "?";
  return "";
}

bool Given(const std::vector<std::string>& arguments, const std::string& key) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& a) {
    return NameOf(a) == "--" + key || NameOf(a) == "--no-" + key;
  });
}

std::string Append(const std::string& key, const YAML::Node& value, std::vector<std::string>* out) {
  if (value.IsSequence()) {
    for (const YAML::Node& item : value) {
      if (!item.IsScalar()) return "key '" + key + "' holds a nested list";
      out->push_back("--" + key + "=" + item.as<std::string>());
    }
    return "";
  }
  if (!value.IsScalar()) return "key '" + key + "' is neither a value nor a list";
  const std::string text = value.as<std::string>();
  if (text == "true") {
    out->push_back("--" + key);
  } else if (text == "false") {
    out->push_back("--no-" + key);
  } else {
    out->push_back("--" + key + "=" + text);
  }
  return "";
}

std::string ReadConfig(const std::string& path,
                       const std::vector<std::string>& given,
                       std::vector<std::string>* out) {
  YAML::Node root;
  try {
    root = YAML::LoadFile(path);
  } catch (const YAML::Exception& e) {
    return "--config " + path + ": " + e.what();
  }
  if (!root.IsMap()) return "--config " + path + ": expected keys that are long flag names";
  for (const auto& entry : root) {
    const std::string key = entry.first.as<std::string>();
    if (Given(given, key)) continue;
    if (const std::string problem = Append(key, entry.second, out); !problem.empty())
      return "--config " + path + ": " + problem;
  }
  return "";
}

}  // namespace

std::string ExpandArguments(std::vector<std::string>* arguments) {
  if (std::string answer = AnswerForeign(*arguments); !answer.empty()) return answer;
  for (size_t i = 0; i < arguments->size(); ++i) {
    std::string path;
    size_t count = 1;
    if ((*arguments)[i] == "--config") {
      if (i + 1 == arguments->size()) return "--config needs a file name";
      path = (*arguments)[i + 1];
      count = 2;
    } else if (NameOf((*arguments)[i]) == "--config") {
      path = (*arguments)[i].substr(sizeof("--config=") - 1);
    } else {
      continue;
    }
    arguments->erase(arguments->begin() + static_cast<ptrdiff_t>(i),
                     arguments->begin() + static_cast<ptrdiff_t>(i + count));
    std::vector<std::string> flags;
    if (std::string problem = ReadConfig(path, *arguments, &flags); !problem.empty())
      return problem;
    if (std::string answer = AnswerForeign(flags); !answer.empty()) return answer;
    arguments->insert(arguments->begin() + static_cast<ptrdiff_t>(i), flags.begin(), flags.end());
    break;
  }
  return "";
}

}  // namespace baton::cli
