// What the parser makes and the interpreter walks. Names are interned: a variable is a number.
// Thread rule: immutable after Parse.
#ifndef BATON_TEXT_JINJA_AST_H_
#define BATON_TEXT_JINJA_AST_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_value.h"

namespace baton::jinja::internal {

using Symbol = int;  // index into Program::names

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<std::unique_ptr<Statement>>;

// Call arguments. `star` and `double_star` may be null.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr star;
  ExpressionPtr double_star;
};

enum class ExpressionType : uint8_t {
  kConstant,   // constant
  kName,       // symbol, text
  kTuple,      // operands
  kList,       // operands
  kDict,       // operands: key, value, key, value, ...
  kAttribute,  // operands[0] . text
  kItem,       // operands[0] [ operands[1] ]
  kSlice,      // operands[0] [ operands[1] : operands[2] : operands[3] ], each bound may be null
  kCall,       // operands[0] ( arguments )
  kFilter,     // operands[0] | text ( arguments ); null operand: the text of a filter block
  kTest,       // operands[0] is text ( arguments )
  kNot,        // operands[0]
  kNegate,
  kPlus,
  kAnd,     // operands[0], operands[1]
  kOr,
  kBinary,  // operands[0] text operands[1], text in + - * / // % **
  kConcat,   // operands joined as text
  kCompare,  // operands[0] comparisons[0] operands[1] comparisons[1] ...
  kCondition,  // operands: value, test, otherwise (may be null)
};

struct Expression {
  ExpressionType type;
  int line;
  std::string text;
  Symbol symbol = -1;
  Value constant;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> comparisons;
  CallArguments arguments;
};

// Where a value is stored: a name, a tuple of targets, or an attribute of a namespace.
struct Target {
  Symbol symbol = -1;
  std::string attribute;        // not empty: symbol.attribute
  std::vector<Target> elements;  // not empty: unpack
  bool is_tuple = false;
  int line = 0;
};

// Names that are assigned in a frame before they are read there and that no enclosing frame knows:
// reading one before its assignment gives undefined even if the caller passed a variable of that
// name. See scope_analysis in jinja_scope.cc.
using Shadowed = std::vector<Symbol>;

struct MacroDefinition {
  Symbol symbol = -1;
  std::string name;  // empty for the body of a call block
  std::vector<Symbol> parameters;
  std::vector<ExpressionPtr> defaults;  // for the last parameters
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool explicit_caller = false;  // a parameter is called "caller"
  Body body;
  Shadowed shadowed;
};

enum class StatementType : uint8_t {
  kData,       // text
  kOutput,     // expressions: one printed value
  kIf,         // expressions[i] guards bodies[i]; a further body is the else
  kFor,        // target in expressions[0] if expressions[1] (may be null); bodies: loop, else
  kSet,        // target = expressions[0]
  kSetBlock,   // target = text of bodies[0], through filter expressions[0] (may be null)
  kMacro,      // macro
  kCallBlock,  // expressions[0] is the call, macro the caller
  kFilterBlock,  // bodies[0] through expressions[0]
  kWith,         // targets[i] = expressions[i] around bodies[0]
  kScope,        // {% generation %}: bodies[0] in a frame of its own
  kBreak,
  kContinue,
};

struct Statement {
  StatementType type;
  int line;
  std::string text;
  std::vector<ExpressionPtr> expressions;
  std::vector<Target> targets;
  std::vector<Body> bodies;
  std::vector<Shadowed> shadowed;  // of each body that opens a frame
  std::unique_ptr<MacroDefinition> macro;
  bool recursive = false;
};

struct Program {
  std::vector<std::string> names;  // by Symbol
  std::map<std::string, Symbol, std::less<>> symbols;
  Body body;
  Shadowed shadowed;

  Symbol Intern(std::string_view name) {
    const auto it = symbols.find(name);
    if (it != symbols.end()) return it->second;
    names.emplace_back(name);
    const auto symbol = static_cast<Symbol>(names.size() - 1);
    symbols.emplace(std::string(name), symbol);
    return symbol;
  }
};

}  // namespace baton::jinja::internal

#endif  // BATON_TEXT_JINJA_AST_H_
