#!/usr/bin/python3
"""Writes jinja_cases.json: what jinja2 makes of the templates below.

Needs python3-jinja2. The environment is the one transformers uses for chat templates: sandboxed and
immutable, trim_blocks, lstrip_blocks, loop controls, tojson without HTML escapes.
Run it in this folder after changing jinja_snippets.py or a file in templates/.
"""
import datetime
import json
import pathlib

import jinja2
import jinja2.ext
import jinja2.sandbox

from jinja_snippets import CHAT_CASES, CONTEXT, SNIPPETS

HERE = pathlib.Path(__file__).parent
CLOCK = datetime.datetime(2026, 1, 2, 3, 4, 5)


class Generation(jinja2.ext.Extension):
    """{% generation %} ... {% endgeneration %}: marks the assistant's text, prints it as it is."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_render", [])
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


def make_environment():
    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
        )

    env = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
    )
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: CLOCK.strftime(f)
    return env


def render(source, variables):
    try:
        return {"text": make_environment().from_string(source).render(**variables)}
    except Exception as error:  # pylint: disable=broad-except
        return {"error": type(error).__name__}


def main():
    out = {"clock": CLOCK.isoformat(), "context": CONTEXT, "snippets": [], "chats": []}
    for source in SNIPPETS:
        out["snippets"].append({"template": source, **render(source, CONTEXT)})
    for path in sorted((HERE / "templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        for name, case in CHAT_CASES.items():
            variables = {"tools": None, "documents": None, "add_generation_prompt": False}
            variables.update({"bos_token": "<s>", "eos_token": "</s>"})
            variables.update(case)
            out["chats"].append(
                {"file": path.name, "case": name, "input": case, **render(source, variables)}
            )
    (HERE / "jinja_cases.json").write_text(
        json.dumps(out, ensure_ascii=False, indent=1) + "\n", encoding="utf-8"
    )
    failed = [s for s in out["snippets"] if "error" in s]
    print(len(out["snippets"]), "snippets,", len(failed), "of them refused,", len(out["chats"]), "chats")


if __name__ == "__main__":
    main()
