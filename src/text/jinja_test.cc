#include "text/jinja.h"

#include <ctime>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "gtest/gtest.h"
#include "text/chat_template.h"

namespace baton {
namespace {

const std::string kTestdata = std::string(BATON_SOURCE_DIR) + "/src/text/testdata/";

// What jinja2 made of every template; see testdata/make_jinja_testdata.py.
OrderedJson ReadCases() {
  const auto bytes = ReadFileBytes(kTestdata + "jinja_cases.json", 1 << 24);
  EXPECT_TRUE(bytes.ok()) << bytes.status();
  auto parsed = ParseJsonOrdered(bytes.ok() ? *bytes : "null");
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return parsed.ok() ? *std::move(parsed) : OrderedJson();
}

std::tm ClockOf(const OrderedJson& cases) {
  std::tm now{};
  strptime(cases["clock"].get<std::string>().c_str(), "%Y-%m-%dT%H:%M:%S", &now);
  return now;
}

StatusOr<std::string> Render(const std::string& source, const OrderedJson& variables = {},
                             const jinja::Limits& limits = {}) {
  BATON_ASSIGN_OR_RETURN(const jinja::Template parsed, jinja::Template::Parse(source));
  jinja::RenderInput input;
  input.variables = variables;
  input.limits = limits;
  return parsed.Render(input);
}

// The text is jinja2's to the byte; a refusal has its kind.
void ExpectSame(const StatusOr<std::string>& got, const OrderedJson& expected) {
  if (expected.contains("text")) {
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(*got, expected["text"].get<std::string>());
    return;
  }
  ASSERT_FALSE(got.ok()) << "rendered: " << *got;
  std::string kind = expected["error"];
  // Python itself refuses what jinja2 generates for a break outside of a loop.
  if (kind == "SyntaxError") kind = "TemplateSyntaxError";
  EXPECT_NE(got.status().message().find(": " + kind + ": "), std::string::npos)
      << got.status() << "; jinja2: " << kind;
}

TEST(Jinja, SnippetsAreJinja2s) {
  const OrderedJson cases = ReadCases();
  ASSERT_GT(cases["snippets"].size(), 250u);
  for (const OrderedJson& snippet : cases["snippets"]) {
    const std::string source = snippet["template"];
    SCOPED_TRACE(source);
    const auto parsed = jinja::Template::Parse(source);
    if (!parsed.ok()) {
      ExpectSame(parsed.status(), snippet);
      continue;
    }
    jinja::RenderInput input;
    input.variables = cases["context"];
    input.now = ClockOf(cases);
    ExpectSame(parsed->Render(input), snippet);
  }
}

TEST(ChatTemplate, ConversationsAreJinja2s) {
  const OrderedJson cases = ReadCases();
  ASSERT_GT(cases["chats"].size(), 20u);
  for (const OrderedJson& chat : cases["chats"]) {
    const std::string file = chat["file"];
    SCOPED_TRACE(file + " " + chat["case"].get<std::string>());
    const auto source = ReadFileBytes(kTestdata + "templates/" + file, 1 << 20);
    ASSERT_TRUE(source.ok()) << source.status();
    const auto made =
        ChatTemplate::FromString(*source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    ASSERT_TRUE(made.ok()) << made.status();
    RenderOptions options;
    options.now = ClockOf(cases);
    options.extra = OrderedJson::object();
    OrderedJson messages;
    for (const auto& [key, value] : chat["input"].items()) {
      if (key == "messages") {
        messages = value;
      } else if (key == "tools") {
        options.tools = value;
      } else if (key == "documents") {
        options.documents = value;
      } else if (key == "add_generation_prompt") {
        options.add_generation_prompt = value;
      } else {
        options.extra[key] = value;
      }
    }
    ExpectSame(made->Render(messages, options), chat);
  }
}

TEST(Jinja, ErrorsCarryLineAndReason) {
  EXPECT_EQ(Render("a\n\n{{ x.y }}").status().message(),
            "template line 3: UndefinedError: 'x' is undefined");
  EXPECT_EQ(Render("{% macro f(a) %}\n{{ a + 1 }}{% endmacro %}\n\n{{ f('x') }}").status().message(),
            "template line 2: TypeError: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(Render("x\n{% if %}").status().message(),
            "template line 2: TemplateSyntaxError: Expected an expression, got '%}'");
  EXPECT_EQ(Render("{{ raise_exception('no\nway') }}").status().message(),
            "template line 1: TemplateError: no\nway");
}

TEST(Jinja, WhatJinja2HasAndThisHasNotIsRefusedByName) {
  for (const char* source :
       {"{% include 'x' %}", "{% extends 'x' %}", "{% block a %}{% endblock %}",
        "{{ 'x' | urlencode }}", "{{ 'x' | pprint }}", "{{ [1] | random }}", "{{ cycler(1, 2) }}",
        "{{ lipsum() }}", "{{ '{}'.format(1) }}", "{{ 'x'.encode() }}"}) {
    const auto got = Render(source);
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_NE(got.status().message().find("Unsupported"), std::string::npos) << got.status();
  }
}

TEST(Jinja, EveryResourceIsBounded) {
  const char* kHostile[] = {
      // steps
      "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
      "{% set ns = namespace(l=[0]) %}{% for i in range(64) %}{% set ns.l = ns.l + ns.l %}"
      "{% endfor %}",
      "{{ [0] * 1000000000000 }}",
      "{% set a = [1] * 20000 %}{% set b = [1] * 20000 %}{% for i in range(20000) %}"
      "{% if a in ([b] | select) %}{% endif %}{% endfor %}",
      // output and text size
      "{% for a in range(100000) %}{{ 'x' * 10000 }}{% endfor %}",
      "{% set ns = namespace(s='x') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}"
      "{% endfor %}",
      "{{ 'x' * 100000000000 }}",
      "{{ ('x' * 100000) | replace('', 'y' * 10000) }}",
      "{{ 'x' | indent(100000000000, true) }}",
      "{{ 'x'.center(100000000000) }}",
      // depth
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(n) %}{{ g(n) }}{% endmacro %}{% macro g(n) %}{{ f([n]) }}{% endmacro %}{{ f(1) }}",
      "{% for i in [[]] recursive %}{{ loop([[]]) }}{% endfor %}",
      // deep and wide values
      "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% set ns.v = [ns.v] %}{% endfor %}",
      "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}{% set ns.v = [ns.v].index %}"
      "{% endfor %}",
      "{% set ns = namespace(v=[]) %}{% for i in range(1000) %}"
      "{% set ns.v = [1] | map('default', ns.v) %}{% endfor %}",
      "{% set ns = namespace(v=[1]) %}{% for i in range(100) %}{% set ns.v = [ns.v, ns.v] %}"
      "{% endfor %}{{ ns.v }}",
      "{% set ns = namespace(v=[1], w=[1]) %}{% for i in range(100) %}"
      "{% set ns.v = {'a': ns.v, 'b': ns.v} %}{% endfor %}{{ ns.v | tojson }}",
  };
  jinja::Limits limits;
  limits.steps_max = 500'000;
  limits.output_bytes_max = size_t{8} << 20;
  for (const char* source : kHostile) {
    const auto got = Render(source, {}, limits);
    ASSERT_FALSE(got.ok()) << source;
    EXPECT_TRUE(absl::IsResourceExhausted(got.status())) << source << "\n" << got.status();
  }
}

TEST(Jinja, DeepSourcesAreRefusedWithoutRecursingOffTheStack) {
  const auto repeat = [](const std::string& s, int n) {
    std::string out;
    for (int i = 0; i < n; ++i) out += s;
    return out;
  };
  const int n = 100000;
  EXPECT_FALSE(Render("{{ " + repeat("(", n) + "1" + repeat(")", n) + " }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("[", n) + repeat("]", n) + " }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("not ", n) + "1 }}").ok());
  EXPECT_FALSE(Render("{{ " + repeat("-", n) + "1 }}").ok());
  EXPECT_FALSE(Render("{{ 1" + repeat(" + 1", n) + " }}").ok());
  EXPECT_FALSE(Render("{{ 1" + repeat(" | string", n) + " }}").ok());
  EXPECT_FALSE(Render("{{ x" + repeat(".x", n) + " }}").ok());
  EXPECT_FALSE(Render("{{ 1" + repeat(" if 1 else 1", n) + " }}").ok());
  EXPECT_FALSE(Render(repeat("{% if 1 %}", n) + repeat("{% endif %}", n)).ok());
  EXPECT_FALSE(Render("{% set " + repeat("(", n) + "a" + repeat(")", n) + " = 1 %}").ok());
}

TEST(Jinja, CyclesThroughNamespacesAreFreed) {
  // LeakSanitizer sees what is not.
  EXPECT_TRUE(Render("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"
                     "{% macro m() %}{{ ns is defined }}{% endmacro %}{% set ns.m = m %}"
                     "{% for i in [1] recursive %}{% set ns.loop = loop %}{% endfor %}")
                  .ok());
}

TEST(Jinja, InputIsConvertedSafely) {
  EXPECT_EQ(*Render("{{ v }}", {{"v", "a\xff"}}), "a\xEF\xBF\xBD");
  EXPECT_FALSE(Render("{{ v }}", {{"v", 18446744073709551615u}}).ok());
  OrderedJson deep = 1;
  for (int i = 0; i < 1000; ++i) deep = OrderedJson::array({deep});
  EXPECT_TRUE(absl::IsResourceExhausted(Render("{{ v }}", {{"v", deep}}).status()));
  EXPECT_FALSE(jinja::Template::Parse("a\xff").ok());
}

TEST(ChatTemplate, ContinuesTheLastMessage) {
  const auto chat = ChatTemplate::FromString(
      "{% for m in messages %}[{{ m.role }}]{{ m.content | trim }}<end>{% endfor %}");
  ASSERT_TRUE(chat.ok());
  RenderOptions options;
  options.continue_final_message = true;
  const OrderedJson messages = {{{"role", "user"}, {"content", "hi"}},
                                {{"role", "assistant"}, {"content", "The answer is "}}};
  EXPECT_EQ(*chat->Render(messages, options), "[user]hi<end>[assistant]The answer is ");
  options.add_generation_prompt = true;
  EXPECT_FALSE(chat->Render(messages, options).ok());
}

TEST(ChatTemplate, RefusesWrongInput) {
  const auto chat = ChatTemplate::FromString("{{ messages }}");
  ASSERT_TRUE(chat.ok());
  RenderOptions options;
  EXPECT_FALSE(chat->Render({{"role", "user"}}, options).ok());
  options.extra = {{"messages", 1}};
  EXPECT_FALSE(chat->Render(OrderedJson::array(), options).ok());
  options.extra = OrderedJson::array();
  EXPECT_FALSE(chat->Render(OrderedJson::array(), options).ok());
  options.extra = nullptr;
  options.tools = "x";
  EXPECT_FALSE(chat->Render(OrderedJson::array(), options).ok());
}

}  // namespace
}  // namespace baton
