#!/usr/bin/env python3
"""Generated templates, rendered here and by jinja2: texts equal to the byte, errors of the same kind.

usage: jinja_differential.py JINJA_RENDER [SEED] [COUNT]        exit 77: jinja2 is not here

What Baton says it does not support, or that a limit was reached, is counted and not compared; nor are texts in
which Python prints the address or the type of an object.
"""
import copy
import json
import random
import re
import signal
import subprocess
import sys

sys.dont_write_bytecode = True
try:
    from make_jinja_testdata import render
except ImportError as missing:
    print('skipped:', missing, '(package python3-jinja2)')
    sys.exit(77)
from jinja_snippets import CONTEXT

FILTERS = '''trim|length|tojson|string|safe|default("d")|default("x",true)|items|join(",")|join|replace("l","L")|upper|lower|first|last
list|map("string")|map("upper")|map(attribute="name")|selectattr("age")|selectattr("age","equalto",31)|rejectattr("tags")|dictsort
indent(2)|int|float|abs|capitalize|title|sort|unique|reverse|min|max|sum|select|reject|select("string")|batch(2)|round|round(1)|e
count|center(9)|wordcount|truncate(5)|d("q")|tojson(indent=1)|attr("a")|groupby("age")|sort(attribute="age")|slice(2)'''
FILTERS = FILTERS.replace('\n', '|').split('|')
TESTS = ('defined,undefined,none,string,mapping,sequence,iterable,number,boolean,true,false,integer,float,odd,even,'
         'divisibleby(2),in lst,eq 1,equalto "a",lower,upper,callable,sameas none,gt 1').split(',')
METHODS = ('strip() lstrip() rstrip("d") split() split("o") split(",",1) startswith("H") endswith("d") items() keys() values() '
           'get("a") get("zz",1) upper() lower() title() replace("l","_") find("o") count("l") join(["a","b"]) splitlines() '
           'isdigit() index(1) zfill(9) rsplit("o",1) partition("o") capitalize() removeprefix("H") append(1) copy() swapcase() '
           'a x name zz 0').split(' ')
ADDRESS = re.compile(r'0x[0-9a-f]{6,}|<(generator|built-in|function|Macro|Namespace|LoopContext|list_reverse|bound|Cycler'
                     r'|jinja2|<)|Context')


class Generator:
    def __init__(self, seed):
        self.r = random.Random(seed)
        self.names = list(CONTEXT) + ['undef', 'undef2']

    def one(self, *choices):
        return self.r.choice(choices)

    def atom(self):
        kind = self.r.random()
        if kind < .45:
            return self.r.choice(self.names)
        if kind < .6:
            return self.one('0', '1', '2', '-1', '7', '1.5', '100', '0.1', '3.0')
        if kind < .78:
            return self.one("''", "'a'", "'Hello'", "' x '", "'é漢'", "'12'", "'1.5'", "'a,b'")
        if kind < .86:
            return self.one('true', 'false', 'none')
        if kind < .93:
            return self.one('[]', '[1,2]', '["b","a"]', '{}', '{"a":1}', '(1,2)', '()')
        return self.one('range(3)', 'namespace(a=1)', 'dict(a=1)', 'users[0]', 'nested.x.y', 'd.items()', 'lst[1:]')

    def expression(self, depth):
        if depth <= 0:
            return self.atom()
        x = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.r.random()
        if kind < .12:
            return '(%s)' % x()
        if kind < .34:
            return '%s|%s' % (x(), self.r.choice(FILTERS))
        if kind < .44:
            return '(%s).%s' % (x(), self.r.choice(METHODS))
        if kind < .52:
            if self.r.random() < .5:
                # Of names alone: jinja2 folds a slice of a constant by other rules than it runs one.
                return '%s[%s]' % (self.r.choice(self.names), self.one('1:', '::-1', ':2', '::2', '-2:'))
            return '(%s)[%s]' % (x(), self.one('0', '-1', '"a"', '"name"', '1', '5', self.expression(depth - 2)))
        if kind < .62:
            return '%s is %s%s' % (x(), self.one('', 'not '), self.r.choice(TESTS))
        if kind < .76:
            return '%s %s %s' % (x(), self.one('+', '-', '*', '/', '//', '~'), x())
        if kind < .86:
            return '%s %s %s' % (x(), self.one('==', '!=', '<', '>', '<=', '>=', 'in', 'not in', 'and', 'or'), x())
        if kind < .92:
            return '%s if %s else %s' % (x(), x(), x())
        return self.one('not %s', '-%s', '[%s]') % x()

    def tag(self, text):  # with any white space control
        return '{%' + self.one('', '', '-', '+') + ' ' + text + ' ' + self.one('', '', '-', '+') + '%}'

    def statement(self, depth):
        e, s = self.expression, lambda: self.statement(depth - 1)
        kind = self.r.random()
        if depth <= 0 or kind < .35:
            return self.one('{{ %s }}', '{{- %s }}', '{{ %s -}}') % e(self.r.randrange(4))
        if kind < .45:
            return self.one('\n', '  ', 'x\n  ', ' text ', '\n\n', '{# c #}\n', '  {#- c #}')
        if kind < .58:
            return (self.tag('if ' + e(2)) + s() + self.one('', self.tag('elif ' + e(1)) + s()) +
                    self.one('', self.tag('else') + s()) + self.tag('endif'))
        if kind < .74:
            body = self.one('{{ i }}', '{{ loop.index }}{{ loop.last }}', '{{ k }}{{ v }}', '',
                            '{{ loop.previtem }}|{{ loop.nextitem is defined }}')
            return (self.tag('for ' + self.one('i', 'i', 'k, v', 'x') + ' in ' + e(2) + self.one('', '', ' if ' + e(1))) + body +
                    s() + self.one('', '{% break %}', '{% if loop.first %}{% continue %}{% endif %}') + s() +
                    self.one('', self.tag('else') + s()) + self.tag('endfor'))
        if kind < .86:
            return self.tag('set ' + self.one('x', 'y', 'i', 's', 'ns', 'undef', 'a, b') + ' = ' + e(2))
        if kind < .89:
            return '{% set y %}' + s() + '{% endset %}{{ y }}'
        if kind < .93:
            return ('{% macro m(p, q=' + e(1) + ') %}' + s() + '{{ p }}{{ q }}{{ x }}{% endmacro %}{{ m(' +
                    self.one('', e(1), e(1) + ', ' + e(1), 'q=' + e(1)) + ') }}')
        if kind < .95:
            return '{% with x = ' + e(1) + ' %}' + s() + '{{ x }}{% endwith %}'
        if kind < .97:
            return '{% filter ' + self.one('upper', 'trim', 'indent') + ' %}' + s() + '{% endfilter %}'
        return '{% set ns = namespace(c=0) %}{% set ns.c = ' + e(1) + ' %}{{ ns.c }}'

    def template(self):
        if self.r.random() < .5:
            return '{{ ' + self.expression(self.r.randrange(1, 5)) + ' }}'
        return ''.join(self.statement(3) for _ in range(self.r.randrange(1, 4)))


def too_long(*_):
    raise MemoryError


def expected(template):
    signal.alarm(3)
    try:
        return render(template, copy.deepcopy(CONTEXT))
    except MemoryError:
        return {'error': 'MemoryError'}
    finally:
        signal.alarm(0)


def main():
    binary = sys.argv[1]
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 2000
    generator = Generator(seed)
    templates = [generator.template() for _ in range(count)]
    lines = '\n'.join(json.dumps(x) for x in [CONTEXT] + templates) + '\n'
    run = subprocess.run([binary], input=lines, capture_output=True, text=True, check=True)
    answers = [json.loads(line) for line in run.stdout.rstrip('\n').split('\n')]
    assert len(answers) == count, (len(answers), count)
    signal.signal(signal.SIGALRM, too_long)
    same = errors = apart = wrong = 0
    for template, answer in zip(templates, answers):
        error = answer.get('error', '')
        want = expected(template)
        if ('Unsupported' in error or 'LimitReached' in error or 'beyond 64 bit' in error or
                want == {'error': 'MemoryError'} or ADDRESS.search(want.get('text', ''))):
            apart += 1
        elif 'text' in want and answer.get('text') == want['text']:
            same += 1
        elif 'error' in want and error:
            errors += 1
        else:
            wrong += 1
            print('template:', repr(template), '\n  jinja2:', want, '\n  here:  ', answer)
    print('%d templates: %d equal, %d refused by both, %d not compared, %d DIFFER' % (count, same, errors, apart, wrong))
    return 1 if wrong or same < count // 4 else 0


sys.exit(main())
