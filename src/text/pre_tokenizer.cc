#include "text/pre_tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/byte_level.h"

namespace baton {
namespace {

// What ByteLevel splits by when its use_regex is on (GPT-2's pattern).
constexpr std::string_view kGpt2Pattern =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

}  // namespace

StatusOr<PreTokenizer> PreTokenizer::Read(const JsonNode& node) {
  PreTokenizer pre;
  if (node.is_null()) return pre;
  BATON_RETURN_IF_ERROR(pre.Append(node, 0));
  if (!pre.steps_.empty()) {
    if (auto* last = std::get_if<ByteLevel>(&pre.steps_.back())) {
      // A ByteLevel before it would have made letters already.
      bool only = true;
      for (size_t i = 0; i + 1 < pre.steps_.size(); ++i) {
        only = only && !std::holds_alternative<ByteLevel>(pre.steps_[i]);
      }
      if (only) {
        last->to_letters = false;
        pre.gives_bytes_ = true;
      }
    }
  }
  return pre;
}

Status PreTokenizer::Append(const JsonNode& node, int depth) {
  if (depth > 8) return node.Error("sequences nested too deeply");
  BATON_ASSIGN_OR_RETURN(const std::string type, node.TextMember("type"));
  if (type == "Sequence") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "pretokenizers"}));
    BATON_ASSIGN_OR_RETURN(const JsonNode list, node.Require("pretokenizers"));
    BATON_ASSIGN_OR_RETURN(const std::vector<JsonNode> items, list.Items());
    for (const JsonNode& item : items) BATON_RETURN_IF_ERROR(Append(item, depth + 1));
    return absl::OkStatus();
  }
  if (type == "Split") return AppendSplit(node);
  if (type == "ByteLevel") return AppendByteLevel(node);
  if (type == "Metaspace") return AppendMetaspace(node);
  if (type == "Digits") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "individual_digits"}));
    BATON_ASSIGN_OR_RETURN(const bool individual, node.Flag("individual_digits", false));
    return AppendPattern("\\p{N}", individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "Punctuation") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "behavior"}));
    Behavior behavior = Behavior::kIsolated;
    if (node.Find("behavior").has_value()) {
      BATON_ASSIGN_OR_RETURN(behavior, ReadBehavior(node));
    }
    return AppendPattern("[\\p{P}$+<=>\\^`|~]", behavior);
  }
  if (type == "Whitespace") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type"}));
    BATON_ASSIGN_OR_RETURN(Regex pattern, Regex::Compile("\\w+|[^\\w\\s]+"));
    steps_.emplace_back(Split{std::move(pattern), Behavior::kRemoved, true});
    return absl::OkStatus();
  }
  if (type == "WhitespaceSplit") {
    BATON_RETURN_IF_ERROR(node.AllowMembers({"type"}));
    return AppendPattern("\\s", Behavior::kRemoved);
  }
  return node.Unsupported(absl::StrCat("the pre-tokenizer \"", type, "\""));
}

Status PreTokenizer::AppendPattern(std::string_view pattern, Behavior behavior) {
  BATON_ASSIGN_OR_RETURN(Regex regex, Regex::Compile(pattern));
  steps_.emplace_back(Split{std::move(regex), behavior, false});
  return absl::OkStatus();
}

StatusOr<PreTokenizer::Behavior> PreTokenizer::ReadBehavior(const JsonNode& node) {
  BATON_ASSIGN_OR_RETURN(const JsonNode member, node.Require("behavior"));
  BATON_ASSIGN_OR_RETURN(const std::string name, member.Text());
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return member.Unsupported(absl::StrCat("the behavior \"", name, "\""));
}

Status PreTokenizer::AppendSplit(const JsonNode& node) {
  BATON_RETURN_IF_ERROR(node.AllowMembers({"type", "pattern", "behavior", "invert"}));
  BATON_ASSIGN_OR_RETURN(Regex pattern, node.Pattern("pattern"));
  BATON_ASSIGN_OR_RETURN(const Behavior behavior, ReadBehavior(node));
  BATON_ASSIGN_OR_RETURN(const bool invert, node.Flag("invert", false));
  steps_.emplace_back(Split{std::move(pattern), behavior, invert});
  return absl::OkStatus();
}

Status PreTokenizer::AppendByteLevel(const JsonNode& node) {
  // trim_offsets changes offsets, which are not reported here.
  BATON_RETURN_IF_ERROR(
      node.AllowMembers({"type", "add_prefix_space", "trim_offsets", "use_regex"}));
  BATON_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Flag("add_prefix_space", true));
  BATON_ASSIGN_OR_RETURN(const bool use_regex, node.Flag("use_regex", true));
  ByteLevel step{add_prefix_space, std::nullopt, true};
  if (use_regex) {
    BATON_ASSIGN_OR_RETURN(step.pattern, Regex::Compile(kGpt2Pattern));
  }
  steps_.emplace_back(std::move(step));
  return absl::OkStatus();
}

Status PreTokenizer::AppendMetaspace(const JsonNode& node) {
  // str_rep repeats replacement; add_prefix_space is the older form of prepend_scheme.
  BATON_RETURN_IF_ERROR(node.AllowMembers(
      {"type", "replacement", "str_rep", "add_prefix_space", "prepend_scheme", "split"}));
  Metaspace step;
  BATON_ASSIGN_OR_RETURN(step.replacement, node.TextMember("replacement"));
  BATON_ASSIGN_OR_RETURN(const bool add_prefix_space, node.Flag("add_prefix_space", true));
  step.prepend =
      add_prefix_space ? Metaspace::Prepend::kAlways : Metaspace::Prepend::kNever;
  if (const std::optional<JsonNode> member = node.Find("prepend_scheme")) {
    BATON_ASSIGN_OR_RETURN(const std::string scheme, member->Text());
    if (scheme == "always") {
      step.prepend = Metaspace::Prepend::kAlways;
    } else if (scheme == "first") {
      step.prepend = Metaspace::Prepend::kFirst;
    } else if (scheme == "never") {
      step.prepend = Metaspace::Prepend::kNever;
    } else {
      return member->Unsupported(absl::StrCat("the scheme \"", scheme, "\""));
    }
  }
  BATON_ASSIGN_OR_RETURN(const bool split, node.Flag("split", true));
  if (split) {
    BATON_ASSIGN_OR_RETURN(step.pattern, Regex::Literal(step.replacement));
  }
  steps_.emplace_back(std::move(step));
  return absl::OkStatus();
}

Status PreTokenizer::Run(Words* words) const {
  for (const Step& step : steps_) {
    BATON_RETURN_IF_ERROR(std::visit([&](const auto& s) { return Apply(s, words); }, step));
  }
  return absl::OkStatus();
}

StatusOr<std::vector<std::string_view>> PreTokenizer::SplitText(std::string_view text,
                                                                const Split& split) {
  BATON_ASSIGN_OR_RETURN(const std::vector<TextRange> matches, split.pattern.FindAll(text));
  struct Part {
    size_t begin;
    size_t end;
    bool is_match;
  };
  std::vector<Part> parts;
  size_t previous = 0;
  for (const TextRange& match : matches) {
    if (match.begin != previous) parts.push_back({previous, match.begin, split.invert});
    parts.push_back({match.begin, match.end, !split.invert});
    previous = match.end;
  }
  if (previous != text.size()) parts.push_back({previous, text.size(), split.invert});

  std::vector<TextRange> merged;
  merged.reserve(parts.size());
  bool previous_match = false;
  const auto add = [&](const Part& part) { merged.push_back({part.begin, part.end}); };
  switch (split.behavior) {
    case Behavior::kRemoved:
      for (const Part& part : parts) {
        if (!part.is_match) add(part);
      }
      break;
    case Behavior::kIsolated:
      for (const Part& part : parts) add(part);
      break;
    case Behavior::kContiguous:
      for (const Part& part : parts) {
        if (part.is_match == previous_match && !merged.empty()) {
          merged.back().end = part.end;
        } else {
          add(part);
        }
        previous_match = part.is_match;
      }
      break;
    case Behavior::kMergedWithPrevious:
      for (const Part& part : parts) {
        if (part.is_match && !previous_match && !merged.empty()) {
          merged.back().end = part.end;
        } else {
          add(part);
        }
        previous_match = part.is_match;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
        if (part->is_match && !previous_match && !merged.empty()) {
          merged.back().begin = part->begin;
        } else {
          add(*part);
        }
        previous_match = part->is_match;
      }
      std::reverse(merged.begin(), merged.end());
      break;
  }
  std::vector<std::string_view> texts;
  texts.reserve(merged.size());
  for (const TextRange& range : merged) {
    if (range.end > range.begin) texts.push_back(text.substr(range.begin, range.end - range.begin));
  }
  return texts;
}

Status PreTokenizer::SplitWords(const Split& split, Words* words) {
  std::vector<Words::Word> out;
  for (const Words::Word& word : words->words) {
    BATON_ASSIGN_OR_RETURN(const std::vector<std::string_view> parts, SplitText(word.text, split));
    for (const std::string_view part : parts) {
      out.push_back({part, word.at_start && part.data() == word.text.data()});
    }
  }
  words->words = std::move(out);
  return absl::OkStatus();
}

Status PreTokenizer::Apply(const Split& step, Words* words) { return SplitWords(step, words); }

Status PreTokenizer::Apply(const ByteLevel& step, Words* words) {
  if (step.add_prefix_space) {
    for (Words::Word& word : words->words) {
      if (word.text.empty() || word.text[0] == ' ') continue;
      word.text = words->storage.emplace_back(absl::StrCat(" ", std::string(word.text)));
    }
  }
  if (step.pattern.has_value()) {
    BATON_RETURN_IF_ERROR(
        SplitWords(Split{*step.pattern, Behavior::kIsolated, false}, words));
  }
  if (!step.to_letters) return absl::OkStatus();
  for (Words::Word& word : words->words) {
    word.text = words->storage.emplace_back(BytesToLetters(word.text));
  }
  return absl::OkStatus();
}

Status PreTokenizer::Apply(const Metaspace& step, Words* words) {
  for (Words::Word& word : words->words) {
    std::string text;
    for (const char c : word.text) {
      if (c == ' ') {
        text += step.replacement;
      } else {
        text.push_back(c);
      }
    }
    const bool wanted = step.prepend == Metaspace::Prepend::kAlways ||
                        (step.prepend == Metaspace::Prepend::kFirst && word.at_start);
    if (wanted && text.compare(0, step.replacement.size(), step.replacement) != 0) {
      text.insert(0, step.replacement);
    }
    word.text = words->storage.emplace_back(std::move(text));
  }
  if (!step.pattern.has_value()) return absl::OkStatus();
  return SplitWords(Split{*step.pattern, Behavior::kMergedWithNext, false}, words);
}

}  // namespace baton
