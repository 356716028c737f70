#include "text/jinja_loop.h"

#include <utility>

namespace baton::jinja::internal {

std::optional<Value> LoopState::Attribute(std::string_view name) const {
  const auto integer = [](size_t i) { return Value(static_cast<int64_t>(i)); };
  if (name == "index0") return integer(index0_);
  if (name == "index") return integer(index0_ + 1);
  if (name == "length") return integer(size());
  if (name == "revindex") return integer(size() - index0_);
  if (name == "revindex0") return integer(size() - index0_ - 1);
  if (name == "first") return Value(index0_ == 0);
  if (name == "last") return Value(index0_ + 1 == size());
  if (name == "depth") return Value(int64_t{depth0_} + 1);
  if (name == "depth0") return Value(int64_t{depth0_});
  if (name == "previtem") {
    if (index0_ == 0) return Value::Undefined("there is no previous item");
    return items_->items[index0_ - 1];
  }
  if (name == "nextitem") {
    if (index0_ + 1 >= size()) return Value::Undefined("there is no next item");
    return items_->items[index0_ + 1];
  }
  return std::nullopt;
}

bool LoopState::Changed(const Value& arguments) {
  if (last_changed_.has_value() && Equal(*last_changed_, arguments)) return false;
  last_changed_ = arguments;
  return true;
}

}  // namespace baton::jinja::internal
