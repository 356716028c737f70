// Typed, bounded access to the keys of one config.json. The first problem is kept and later reads
// return defaults, so a parser reads as a list of keys and checks status() once at its end.
// Thread rule: plain object.
#ifndef BATON_MODEL_CONFIG_READER_H_
#define BATON_MODEL_CONFIG_READER_H_

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace baton::model {

// Allowed range of a whole number, both ends included.
struct Range {
  int64_t min;
  int64_t max;
};

// Bounds of every count, far above any published model, so that products fit 63 bits.
inline constexpr Range kLayersRange{1, 1024};
inline constexpr Range kWidthRange{1, int64_t{1} << 20};
inline constexpr Range kVocabRange{1, int64_t{1} << 24};
inline constexpr Range kHeadsRange{1, 4096};
inline constexpr Range kHeadDimRange{1, 256};
inline constexpr Range kAttentionDimRange{1, 512};  // kernel::kMaxAttentionDim
inline constexpr Range kStateRange{1, 4096};
inline constexpr Range kConvRange{2, 8};
inline constexpr Range kExpertsRange{0, 4096};
// Rotation angles are exact enough up to 2^22 radians (kernel/functions.h).
inline constexpr Range kPositionRange{1, int64_t{1} << 22};

class ConfigReader {
 public:
  // Spellings of one key, the preferred one first.
  using Names = std::initializer_list<const char*>;

  explicit ConfigReader(const Json& json) : json_(json) {}

  // Absent and null both give `fallback`; without a fallback, absence is an error.
  int64_t Int(Names names, std::optional<int64_t> fallback, Range range);
  // Finite, above 0.
  double Positive(Names names, std::optional<double> fallback);
  double Number(Names names, double fallback);
  bool Bool(Names names, bool fallback);
  std::string Text(Names names, const std::string& fallback);
  // A whole number, or "auto" which gives nullopt like absence.
  std::optional<int64_t> IntOrAuto(Names names, Range range);
  std::vector<int64_t> Ints(Names names, size_t max);
  // Finite.
  std::vector<double> Numbers(Names names, size_t max);
  std::vector<std::string> Texts(Names names, size_t max);
  // The value, or null if absent or JSON null.
  const Json* Find(Names names) const;
  // Keeps the first problem.
  void Fail(const std::string& message);
  // Fails unless the key is absent, null, false, 0 or an empty container.
  void RequireAbsent(Names names, const char* why);

  const Status& status() const { return status_; }
  bool ok() const { return status_.ok(); }

 private:
  const Json& json_;
  Status status_;
};

}  // namespace baton::model

#endif  // BATON_MODEL_CONFIG_READER_H_
