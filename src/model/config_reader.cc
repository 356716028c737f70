#include "model/config_reader.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace baton::model {
namespace {

// At most 60 characters of a value, for an error text.
std::string Shown(const Json& value) {
  std::string text = DumpJson(value);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

bool IsWhole(const Json& value) {
  if (value.is_number_unsigned()) return value.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX);
  return value.is_number_integer();
}

}  // namespace

const Json* ConfigReader::Find(Names names) const {
  for (const char* name : names) {
    const auto it = json_.find(name);
    if (it != json_.end() && !it->is_null()) return &*it;
  }
  return nullptr;
}

void ConfigReader::Fail(const std::string& message) {
  if (status_.ok()) status_ = absl::InvalidArgumentError(message);
}

int64_t ConfigReader::Int(Names names, std::optional<int64_t> fallback, Range range) {
  const Json* value = Find(names);
  if (value == nullptr) {
    if (fallback.has_value()) return *fallback;
    Fail(absl::StrCat("\"", *names.begin(), "\" is missing"));
    return range.min;
  }
  if (!IsWhole(*value) || value->get<int64_t>() < range.min || value->get<int64_t>() > range.max) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is ", Shown(*value), ", expected a whole number ",
                      "from ", range.min, " to ", range.max));
    return range.min;
  }
  return value->get<int64_t>();
}

std::optional<int64_t> ConfigReader::IntOrAuto(Names names, Range range) {
  const Json* value = Find(names);
  if (value == nullptr || (value->is_string() && *value == "auto")) return std::nullopt;
  return Int(names, std::nullopt, range);
}

double ConfigReader::Number(Names names, double fallback) {
  const Json* value = Find(names);
  if (value == nullptr) return fallback;
  if (!value->is_number()) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is ", Shown(*value), ", expected a number"));
    return fallback;
  }
  return value->get<double>();
}

double ConfigReader::Positive(Names names, std::optional<double> fallback) {
  if (!fallback.has_value() && Find(names) == nullptr) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is missing"));
    return 1;
  }
  const double value = Number(names, fallback.value_or(1));
  // The narrowest type a value ends up in is f32.
  if (!std::isfinite(value) || value < 1e-30 || value > 1e30) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is ", value,
                      ", expected a number from 1e-30 to 1e30"));
    return 1;
  }
  return value;
}

bool ConfigReader::Bool(Names names, bool fallback) {
  const Json* value = Find(names);
  if (value == nullptr) return fallback;
  if (!value->is_boolean()) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is ", Shown(*value), ", expected true or false"));
    return fallback;
  }
  return value->get<bool>();
}

std::string ConfigReader::Text(Names names, const std::string& fallback) {
  const Json* value = Find(names);
  if (value == nullptr) return fallback;
  if (!value->is_string()) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is ", Shown(*value), ", expected a string"));
    return fallback;
  }
  return value->get<std::string>();
}

std::vector<int64_t> ConfigReader::Ints(Names names, size_t max) {
  std::vector<int64_t> out;
  const Json* value = Find(names);
  if (value == nullptr) return out;
  if (!value->is_array() || value->size() > max) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is not a list of at most ", max, " whole numbers"));
    return out;
  }
  for (const Json& item : *value) {
    if (!IsWhole(item)) {
      Fail(
          absl::StrCat("\"", *names.begin(), "\" holds ", Shown(item), ", expected whole numbers"));
      return {};
    }
    out.push_back(item.get<int64_t>());
  }
  return out;
}

std::vector<double> ConfigReader::Numbers(Names names, size_t max) {
  std::vector<double> out;
  const Json* value = Find(names);
  if (value == nullptr) return out;
  if (!value->is_array() || value->size() > max) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is not a list of at most ", max, " numbers"));
    return out;
  }
  for (const Json& item : *value) {
    if (!item.is_number() || !(std::fabs(item.get<double>()) <= 1e30)) {
      Fail(absl::StrCat("\"", *names.begin(), "\" holds ", Shown(item),
                        ", expected numbers up to 1e30"));
      return {};
    }
    out.push_back(item.get<double>());
  }
  return out;
}

std::vector<std::string> ConfigReader::Texts(Names names, size_t max) {
  std::vector<std::string> out;
  const Json* value = Find(names);
  if (value == nullptr) return out;
  if (!value->is_array() || value->size() > max) {
    Fail(absl::StrCat("\"", *names.begin(), "\" is not a list of at most ", max, " strings"));
    return out;
  }
  for (const Json& item : *value) {
    if (!item.is_string()) {
      Fail(absl::StrCat("\"", *names.begin(), "\" holds ", Shown(item), ", expected strings"));
      return {};
    }
    out.push_back(item.get<std::string>());
  }
  return out;
}

void ConfigReader::RequireAbsent(Names names, const char* why) {
  const Json* value = Find(names);
  if (value == nullptr) return;
  const bool off = (value->is_boolean() && !value->get<bool>()) ||
                   (value->is_number() && value->get<double>() == 0) ||
                   (value->is_structured() && value->empty());
  if (!off) Fail(absl::StrCat("\"", *names.begin(), "\" is ", Shown(*value), ": ", why));
}

}  // namespace baton::model
