// The `loop` variable. Thread rule: one render.
#ifndef BATON_TEXT_JINJA_LOOP_H_
#define BATON_TEXT_JINJA_LOOP_H_

#include <memory>
#include <optional>
#include <string_view>
#include <utility>

#include "text/jinja_value.h"

namespace baton::jinja::internal {

struct Statement;
struct Scope;

class LoopState {
 public:
  LoopState(SequencePtr items, int depth0) : items_(std::move(items)), depth0_(depth0) {}

  size_t size() const { return items_->items.size(); }
  size_t index0() const { return index0_; }
  int depth0() const { return depth0_; }
  // Nesting of the values inside, for kValueDepthMax.
  int depth() const { return items_->depth + 1; }
  const Value& current() const { return items_->items[index0_]; }
  void set_index0(size_t i) { index0_ = i; }
  // {% for ... recursive %}: loop(items) runs `statement` again in `scope`.
  void MakeRecursive(const Statement* statement, std::shared_ptr<Scope> scope) {
    statement_ = statement;
    scope_ = std::move(scope);
  }
  const Statement* statement() const { return statement_; }  // null unless recursive
  const std::shared_ptr<Scope>& scope() const { return scope_; }

  // loop.NAME, or nullopt if there is no such attribute. Methods are not found here.
  std::optional<Value> Attribute(std::string_view name) const;
  // loop.changed(...): whether the arguments differ from those of the call before.
  bool Changed(const Value& arguments);

 private:
  SequencePtr items_;
  size_t index0_ = 0;
  int depth0_;
  std::optional<Value> last_changed_;
  const Statement* statement_ = nullptr;
  std::shared_ptr<Scope> scope_;
};

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_LOOP_H_
