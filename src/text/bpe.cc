#include "text/bpe.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "text/byte_level.h"
#include "text/utf8.h"

namespace baton {
namespace {

// Up to this many symbols a plain search for the best pair beats a queue.
constexpr size_t kShortWord = 24;
// Longer tokens are rarely met as words; they are merged instead of looked up.
constexpr size_t kWholeWordBytesMax = 32;

absl::string_view Abs(std::string_view s) { return {s.data(), s.size()}; }

}  // namespace

StatusOr<Bpe> Bpe::Build(const std::vector<std::pair<std::string, TokenId>>& vocab,
                         const std::vector<Merge>& merges, BpeOptions options) {
  Bpe bpe;
  bpe.options_ = std::move(options);
  absl::flat_hash_map<absl::string_view, TokenId> by_token;
  by_token.reserve(vocab.size());
  for (const auto& [token, id] : vocab) by_token.emplace(token, id);
  if (bpe.options_.unk_token.has_value()) {
    const auto it = by_token.find(*bpe.options_.unk_token);
    if (it == by_token.end()) {
      return absl::InvalidArgumentError(absl::StrCat("/model/unk_token: \"",
                                                     *bpe.options_.unk_token,
                                                     "\" is not in the vocabulary"));
    }
    bpe.unk_ = it->second;
  }
  BATON_RETURN_IF_ERROR(bpe.AddMerges(merges, by_token));

  // Byte words are looked up as bytes, so the vocabulary is kept in that form; a token that is not
  // spelled in letters can never be met.
  bpe.spellings_.reserve(vocab.size());
  bpe.words_.reserve(vocab.size());
  for (const auto& [token, id] : vocab) {
    std::optional<std::string> word = token;
    if (bpe.options_.byte_words) word = LettersToBytes(token);
    if (!word.has_value()) continue;
    bpe.spellings_.push_back(*std::move(word));
    bpe.words_.emplace(bpe.spellings_.back(), Word{id, false});
  }
  for (size_t b = 0; b < 256; ++b) {
    std::string name = absl::StrFormat("<0x%02X>", b);
    if (bpe.options_.byte_words) name = BytesToLetters(std::string(1, static_cast<char>(b)));
    const auto it = by_token.find(name);
    if (it != by_token.end()) bpe.byte_tokens_[b] = it->second;
  }
  bpe.FindWholeWords();
  return bpe;
}

Status Bpe::AddMerges(const std::vector<Merge>& merges,
                      const absl::flat_hash_map<absl::string_view, TokenId>& vocab) {
  rules_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto& [left, right] = merges[rank];
    const std::string joined = left + right;
    TokenId ids[3];
    const std::string* names[3] = {&left, &right, &joined};
    for (int i = 0; i < 3; ++i) {
      const auto it = vocab.find(*names[i]);
      if (it == vocab.end()) {
        return absl::InvalidArgumentError(absl::StrCat("/model/merges/", rank, ": \"", *names[i],
                                                       "\" is not in the vocabulary"));
      }
      ids[i] = it->second;
    }
    // Of a pair listed twice the later rank counts, as in the Rust library.
    rules_[uint64_t{ids[0]} << 32 | ids[1]] = Rule{static_cast<uint32_t>(rank), ids[2]};
  }
  return absl::OkStatus();
}

// A token that merging its own spelling gives back can be found by one look-up.
void Bpe::FindWholeWords() {
  std::vector<TokenId> ids;
  for (auto& [word, entry] : words_) {
    if (options_.ignore_merges) {
      entry.whole = true;
      continue;
    }
    if (word.empty() || word.size() > kWholeWordBytesMax) continue;
    ids.clear();
    MergeWord(std::string_view(word.data(), word.size()), &ids);
    entry.whole = ids.size() == 1 && ids[0] == entry.id;
  }
}

void Bpe::EncodeWord(std::string_view word, std::vector<TokenId>* scratch,
                     std::vector<TokenId>* out) const {
  if (word.empty()) return;
  if (word.size() <= kWholeWordBytesMax || options_.ignore_merges) {
    const auto it = words_.find(Abs(word));
    if (it != words_.end() && it->second.whole) {
      out->push_back(it->second.id);
      return;
    }
  }
  scratch->clear();
  MergeWord(word, scratch);
  out->insert(out->end(), scratch->begin(), scratch->end());
}

void Bpe::MergeWord(std::string_view word, std::vector<TokenId>* ids) const {
  MakeSymbols(word, ids);
  if (ids->size() <= kShortWord) {
    MergeShort(ids);
  } else {
    MergeLong(ids);
  }
}

void Bpe::MakeSymbols(std::string_view word, std::vector<TokenId>* ids) const {
  ids->reserve(word.size());
  // A run of unknown symbols waits here, so that fuse_unk can join it. As in the Rust library, a
  // byte fallback in between does not end the run.
  bool unk_waits = false;
  const auto unknown = [&] {
    if (!unk_.has_value()) return;
    if (unk_waits && !options_.fuse_unk) ids->push_back(*unk_);
    unk_waits = true;
  };
  const auto known = [&](TokenId id) {
    if (unk_waits) ids->push_back(*unk_);
    unk_waits = false;
    ids->push_back(id);
  };
  for (size_t pos = 0; pos < word.size();) {
    if (options_.byte_words) {
      const std::optional<TokenId> id = byte_tokens_[static_cast<uint8_t>(word[pos++])];
      id.has_value() ? known(*id) : unknown();
      continue;
    }
    const std::string_view symbol = word.substr(pos, Utf8Length(word[pos]));
    pos += symbol.size();
    const auto it = words_.find(Abs(symbol));
    if (it != words_.end()) {
      known(it->second.id);
      continue;
    }
    const auto has_token = [&](char b) { return byte_tokens_[static_cast<uint8_t>(b)].has_value(); };
    if (options_.byte_fallback && std::all_of(symbol.begin(), symbol.end(), has_token)) {
      for (const char b : symbol) ids->push_back(*byte_tokens_[static_cast<uint8_t>(b)]);
    } else {
      unknown();
    }
  }
  if (unk_waits) ids->push_back(*unk_);
}

// Lowest rank first, leftmost among equals: the same order as MergeLong.
void Bpe::MergeShort(std::vector<TokenId>* ids) const {
  std::array<const Rule*, kShortWord> rules{};  // of the pair (i, i + 1)
  size_t n = ids->size();
  for (size_t i = 0; i + 1 < n; ++i) rules[i] = FindRule((*ids)[i], (*ids)[i + 1]);
  while (n > 1) {
    size_t best = n;
    for (size_t i = 0; i + 1 < n; ++i) {
      if (rules[i] != nullptr && (best == n || rules[i]->rank < rules[best]->rank)) best = i;
    }
    if (best == n) break;
    (*ids)[best] = rules[best]->result;
    for (size_t i = best + 1; i + 1 < n; ++i) {
      (*ids)[i] = (*ids)[i + 1];
      rules[i] = i + 2 < n ? rules[i + 1] : nullptr;
    }
    --n;
    rules[n - 1] = nullptr;
    if (best > 0) rules[best - 1] = FindRule((*ids)[best - 1], (*ids)[best]);
    if (best + 1 < n) rules[best] = FindRule((*ids)[best], (*ids)[best + 1]);
  }
  ids->resize(n);
}

void Bpe::MergeLong(std::vector<TokenId>* ids) const {
  struct Candidate {
    uint32_t rank;
    int32_t position;
    TokenId result;
    bool operator>(const Candidate& other) const {
      return std::tie(rank, position) > std::tie(other.rank, other.position);
    }
  };
  const auto count = static_cast<int32_t>(ids->size());
  std::vector<Symbol> symbols(ids->size());
  std::vector<Candidate> initial;
  initial.reserve(ids->size());
  for (int32_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    symbols[at] = {(*ids)[at], i - 1, i + 1 < count ? i + 1 : -1, false};
    if (i + 1 == count) break;
    if (const Rule* rule = FindRule((*ids)[at], (*ids)[at + 1])) {
      initial.push_back({rule->rank, i, rule->result});
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(
      std::greater<>(), std::move(initial));
  const auto symbol = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  const auto offer = [&](int32_t left) {
    const int32_t right = symbol(left).next;
    if (right < 0) return;
    if (const Rule* rule = FindRule(symbol(left).id, symbol(right).id)) {
      queue.push({rule->rank, left, rule->result});
    }
  };
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbol(best.position);
    if (left.dead || left.next < 0) continue;
    Symbol& right = symbol(left.next);
    // The pair may have changed since it was offered.
    const Rule* rule = FindRule(left.id, right.id);
    if (rule == nullptr || rule->result != best.result) continue;
    left.id = best.result;
    right.dead = true;
    left.next = right.next;
    if (left.next >= 0) symbol(left.next).previous = best.position;
    if (left.previous >= 0) offer(left.previous);
    offer(best.position);
  }
  ids->clear();
  for (int32_t i = 0; i >= 0; i = symbol(i).next) ids->push_back(symbol(i).id);
}

}  // namespace baton
