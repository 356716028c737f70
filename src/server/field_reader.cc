#include "server/field_reader.h"

#include <cmath>

#include "server/cat.h"

namespace baton::server {
namespace {

// Integers written as 16.0 are accepted, as Python servers do.
std::optional<int64_t> AsInt(const OrderedJson& value) {
  if (value.is_number_unsigned()) {
    const uint64_t v = value.get<uint64_t>();
    if (v > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(v);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (value.is_number_float()) {
    const double v = value.get<double>();
    if (std::nearbyint(v) == v && std::fabs(v) < 9.0e15) return static_cast<int64_t>(v);
  }
  return std::nullopt;
}

std::string ShowNumber(double v) { return absl::StrCat(v); }

}  // namespace

std::string ShowJson(const OrderedJson& value) {
  constexpr size_t kMax = 80;
  if (value.is_array() && value.size() > 16) return Cat("a list of ", value.size(), " elements");
  std::string text = DumpJson(value);
  if (text.size() > kMax) {
    size_t cut = kMax;
    while (cut > 0 && (static_cast<uint8_t>(text[cut]) & 0xC0) == 0x80) --cut;
    text.resize(cut);
    text += "...";
  }
  return text;
}

const OrderedJson* FieldReader::Find(std::string_view name) const {
  const auto it = object_.find(std::string(name));
  if (it == object_.end() || it->is_null()) return nullptr;
  return &*it;
}

void FieldReader::Fail(ApiError error) {
  if (!error_.has_value()) error_ = std::move(error);
}

void FieldReader::FailType(std::string_view name,
                           std::string_view expected,
                           const OrderedJson& found) {
  Fail(BadRequest(Cat(name, " must be ", expected, ", got ", ShowJson(found)), name));
}

std::optional<bool> FieldReader::Bool(std::string_view name) {
  const OrderedJson* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) {
    FailType(name, "true or false", *value);
    return std::nullopt;
  }
  return value->get<bool>();
}

std::optional<int64_t> FieldReader::Int(std::string_view name, int64_t min, int64_t max) {
  const OrderedJson* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> v = AsInt(*value);
  if (!v.has_value() || *v < min || *v > max) {
    FailType(name, Cat("an integer in [", min, ", ", max, "]"), *value);
    return std::nullopt;
  }
  return v;
}

std::optional<double> FieldReader::Number(std::string_view name, const NumberRange& range) {
  const OrderedJson* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const double v = value->is_number() ? value->get<double>() : NAN;
  const bool above = range.min_open ? v > range.min : v >= range.min;
  if (!std::isfinite(v) || !above || v > range.max) {
    FailType(name,
             Cat("a number in ", range.min_open ? "(" : "[", ShowNumber(range.min), ", ",
                 ShowNumber(range.max), "]"),
             *value);
    return std::nullopt;
  }
  return v;
}

std::optional<std::string> FieldReader::String(std::string_view name, size_t bytes_max) {
  const OrderedJson* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() || value->get_ref<const std::string&>().size() > bytes_max) {
    FailType(name, Cat("a string of at most ", bytes_max, " bytes"), *value);
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::vector<std::string> FieldReader::Strings(std::string_view name,
                                              size_t count_max,
                                              size_t bytes_max) {
  std::vector<std::string> out;
  const OrderedJson* value = Find(name);
  if (value == nullptr) return out;
  const auto acceptable = [&](const OrderedJson& v) {
    return v.is_string() && !v.get_ref<const std::string&>().empty() &&
           v.get_ref<const std::string&>().size() <= bytes_max;
  };
  bool ok = true;
  if (value->is_array()) {
    ok = value->size() <= count_max;
    for (size_t i = 0; ok && i < value->size(); ++i) {
      ok = acceptable((*value)[i]);
      if (ok) out.push_back((*value)[i].get<std::string>());
    }
  } else if (value->is_string() && value->get_ref<const std::string&>().empty()) {
    return out;  // some clients send "" for none
  } else {
    ok = acceptable(*value);
    if (ok) out.push_back(value->get<std::string>());
  }
  if (!ok) {
    FailType(name,
             Cat("a non-empty string or a list of at most ", count_max,
                 " such strings, each of at most ", bytes_max, " bytes"),
             *value);
    out.clear();
  }
  return out;
}

std::optional<ApiError> ReadTokenIds(const OrderedJson& list,
                                     std::string_view name,
                                     int64_t vocab_size,
                                     std::vector<TokenId>* out) {
  std::vector<TokenId> ids;
  ids.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const std::optional<int64_t> id = AsInt(list[i]);
    if (!id.has_value() || *id < 0 || *id >= vocab_size) {
      return BadRequest(Cat(name, "[", i, "] must be a token id in [0, ", vocab_size - 1, "], got ",
                            ShowJson(list[i])),
                        name);
    }
    ids.push_back(static_cast<TokenId>(*id));
  }
  *out = std::move(ids);
  return std::nullopt;
}

std::vector<TokenId> FieldReader::TokenIds(std::string_view name,
                                           int64_t vocab_size,
                                           size_t count_max) {
  std::vector<TokenId> ids;
  const OrderedJson* value = Find(name);
  if (value == nullptr) return ids;
  if (!value->is_array() || value->size() > count_max) {
    FailType(name, Cat("a list of at most ", count_max, " token ids"), *value);
    return ids;
  }
  if (auto error = ReadTokenIds(*value, name, vocab_size, &ids)) Fail(std::move(*error));
  return ids;
}

}  // namespace baton::server
