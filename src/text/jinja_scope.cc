// Scope analysis. jinja2 compiles a template to Python functions and decides for each function
// (frame) where the first value of every name comes from: an enclosing frame, the variables passed
// to render, or nowhere. "Nowhere" is for a name whose first mention in the frame is an assignment
// and that no enclosing frame mentions: then a passed variable of that name is not seen even before
// the assignment. The interpreter looks names up at run time through its chain of scopes, which
// gives the same answer except for these names; they are collected here per frame.
//
// A frame is the template itself, a loop body, a macro, and each body of with, call, filter and
// block-set. An `if` opens none; its branches are analysed apart and merged.
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "text/jinja_parser.h"

namespace baton::jinja::internal {
namespace {

enum class Load { kParameter, kResolve, kAlias, kUndefined };

struct Frame {
  const Frame* parent = nullptr;
  std::map<Symbol, Load> loads;  // every name mentioned
  std::set<Symbol> stores;

  bool Mentions(Symbol symbol) const { return loads.count(symbol) > 0; }
  bool ParentMentions(Symbol symbol) const {
    for (const Frame* f = parent; f != nullptr; f = f->parent) {
      if (f->Mentions(symbol)) return true;
    }
    return false;
  }
  bool AnyMentions(Symbol symbol) const { return Mentions(symbol) || ParentMentions(symbol); }
};

class Analyzer {
 public:
  explicit Analyzer(Program* program)
      : caller_(program->Intern("caller")),
        varargs_(program->Intern("varargs")),
        kwargs_(program->Intern("kwargs")),
        loop_(program->Intern("loop")) {}

  // Analyses a frame whose parameters are already in `frame`, then the frames inside it.
  Shadowed Analyze(Frame* frame, Body& body) {
    for (const auto& s : body) VisitStatement(frame, *s);
    for (auto& s : body) EnterStatement(*frame, *s);
    Shadowed shadowed;
    for (const auto& [symbol, load] : frame->loads) {
      if (load == Load::kUndefined) shadowed.push_back(symbol);
    }
    return shadowed;
  }

 private:
  static void LoadName(Frame* frame, Symbol symbol) {
    if (!frame->AnyMentions(symbol)) frame->loads.emplace(symbol, Load::kResolve);
  }
  static void StoreName(Frame* frame, Symbol symbol) {
    frame->stores.insert(symbol);
    if (frame->Mentions(symbol)) return;
    frame->loads.emplace(symbol, frame->ParentMentions(symbol) ? Load::kAlias : Load::kUndefined);
  }

  static void StoreTarget(Frame* frame, const Target& target) {
    if (target.is_tuple) {
      for (const Target& element : target.elements) StoreTarget(frame, element);
    } else if (!target.attribute.empty()) {
      LoadName(frame, target.symbol);
    } else {
      StoreName(frame, target.symbol);
    }
  }
  static void AddParameters(Frame* frame, const Target& target) {
    if (target.is_tuple) {
      for (const Target& element : target.elements) AddParameters(frame, element);
    } else {
      frame->loads[target.symbol] = Load::kParameter;
      frame->stores.insert(target.symbol);
    }
  }

  template <class Fn>
  static void ForEachChild(const Expression& e, const Fn& fn) {
    for (const auto& operand : e.operands) {
      if (operand != nullptr) fn(*operand);
    }
    for (const auto& argument : e.arguments.positional) fn(*argument);
    for (const auto& named : e.arguments.named) fn(*named.second);
    if (e.arguments.star != nullptr) fn(*e.arguments.star);
    if (e.arguments.double_star != nullptr) fn(*e.arguments.double_star);
  }

  static void VisitExpression(Frame* frame, const Expression& e) {
    if (e.type == ExpressionType::kName) LoadName(frame, e.symbol);
    ForEachChild(e, [&](const Expression& child) { VisitExpression(frame, child); });
  }
  static void VisitOptional(Frame* frame, const ExpressionPtr& e) {
    if (e != nullptr) VisitExpression(frame, *e);
  }

  // What a statement mentions in the frame it stands in.
  static void VisitStatement(Frame* frame, const Statement& s) {
    switch (s.type) {
      case StatementType::kIf:
        VisitIf(frame, s);
        break;
      case StatementType::kFor:
        VisitExpression(frame, *s.expressions[0]);  // the rest belongs to inner frames
        break;
      case StatementType::kMacro:
        StoreName(frame, s.macro->symbol);
        break;
      case StatementType::kOutput:
      case StatementType::kCallBlock:
      case StatementType::kFilterBlock:
      case StatementType::kWith:
        for (const auto& e : s.expressions) VisitOptional(frame, e);
        break;
      case StatementType::kSet:
        VisitExpression(frame, *s.expressions[0]);
        StoreTarget(frame, s.targets[0]);
        break;
      case StatementType::kSetBlock:
        StoreTarget(frame, s.targets[0]);
        break;
      case StatementType::kData:
      case StatementType::kScope:
      case StatementType::kBreak:
      case StatementType::kContinue:
        break;
    }
  }

  static Frame VisitBranch(const Frame& frame, const Body& body) {
    Frame branch = frame;
    for (const auto& inner : body) VisitStatement(&branch, *inner);
    return branch;
  }

  // jinja2 always sees three branches: body, the elifs one after another, else. A name that not
  // all three assign keeps the value from outside in the others.
  static void VisitIf(Frame* frame, const Statement& s) {
    VisitExpression(frame, *s.expressions[0]);
    Frame elifs = *frame;
    for (size_t i = 1; i < s.expressions.size(); ++i) {
      VisitExpression(&elifs, *s.expressions[i]);
      MergeBranches(&elifs, {VisitBranch(elifs, s.bodies[i]), elifs, elifs});
    }
    const bool has_else = s.bodies.size() > s.expressions.size();
    MergeBranches(frame, {VisitBranch(*frame, s.bodies[0]), std::move(elifs),
                          has_else ? VisitBranch(*frame, s.bodies.back()) : *frame});
  }

  static void MergeBranches(Frame* frame, const std::vector<Frame>& branches) {
    std::map<Symbol, size_t> assigned;  // in how many branches
    for (const Frame& branch : branches) {
      for (const Symbol symbol : branch.stores) {
        if (frame->stores.count(symbol) == 0) ++assigned[symbol];
      }
    }
    for (const Frame& branch : branches) {
      for (const auto& [symbol, load] : branch.loads) frame->loads[symbol] = load;
      frame->stores.insert(branch.stores.begin(), branch.stores.end());
    }
    for (const auto& [symbol, count] : assigned) {
      if (count == branches.size()) continue;
      frame->loads[symbol] = frame->ParentMentions(symbol) ? Load::kAlias : Load::kResolve;
    }
  }

  // The frames that a statement opens.
  void EnterStatement(const Frame& frame, Statement& s) {
    if (s.type == StatementType::kIf) {
      for (Body& body : s.bodies) {
        for (auto& inner : body) EnterStatement(frame, *inner);
      }
      return;
    }
    if (s.macro != nullptr) EnterMacro(frame, s.macro.get());
    for (size_t i = 0; i < s.bodies.size(); ++i) {
      Frame inner;
      inner.parent = &frame;
      if (s.type == StatementType::kFor && i == 0) {
        inner.loads[loop_] = Load::kParameter;
        AddParameters(&inner, s.targets[0]);
      }
      if (s.type == StatementType::kWith) {
        for (const Target& target : s.targets) AddParameters(&inner, target);
      }
      s.shadowed.push_back(Analyze(&inner, s.bodies[i]));
    }
  }

  void EnterMacro(const Frame& frame, MacroDefinition* macro) {
    Frame inner;
    inner.parent = &frame;
    for (const Symbol parameter : macro->parameters) {
      inner.loads[parameter] = Load::kParameter;
      macro->explicit_caller = macro->explicit_caller || parameter == caller_;
    }
    macro->uses_caller = !macro->explicit_caller && BodyReads(macro->body, caller_);
    macro->uses_varargs = BodyReads(macro->body, varargs_);
    macro->uses_kwargs = BodyReads(macro->body, kwargs_);
    if (macro->uses_caller) inner.loads[caller_] = Load::kParameter;
    if (macro->uses_varargs) inner.loads[varargs_] = Load::kParameter;
    if (macro->uses_kwargs) inner.loads[kwargs_] = Load::kParameter;
    for (const auto& e : macro->defaults) VisitExpression(&inner, *e);
    macro->shadowed = Analyze(&inner, macro->body);
  }

  static bool Reads(const Expression& e, Symbol symbol) {
    if (e.type == ExpressionType::kName && e.symbol == symbol) return true;
    bool reads = false;
    ForEachChild(e, [&](const Expression& child) { reads = reads || Reads(child, symbol); });
    return reads;
  }
  static bool BodyReads(const Body& body, Symbol symbol) {
    for (const auto& s : body) {
      for (const auto& e : s->expressions) {
        if (e != nullptr && Reads(*e, symbol)) return true;
      }
      for (const Body& inner : s->bodies) {
        if (BodyReads(inner, symbol)) return true;
      }
      if (s->macro != nullptr && BodyReads(s->macro->body, symbol)) return true;
    }
    return false;
  }

  Symbol caller_, varargs_, kwargs_, loop_;
};

}  // namespace

void AnalyzeScopes(Program* program) {
  Frame root;
  program->shadowed = Analyzer(program).Analyze(&root, program->body);
}

}  // namespace baton::jinja::internal
