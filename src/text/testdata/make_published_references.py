#!/usr/bin/env python3
"""Writes published/NAME.json: what the reference libraries make of texts with real vocabularies.

usage: make_published_references.py FOLDER     (needs the Python packages tokenizers, sentencepiece)

FOLDER is what tools/fetch_vocabularies.sh filled. The vocabularies are not part of the repository; these
expectations are, and published_vocabularies_test compares with them. Texts are bytes in hex, since some of
them are not UTF-8: the references are given them with each invalid part replaced, as Baton does itself.
"""
import json
import pathlib
import random
import sys

import sentencepiece
import tokenizers

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
from make_tokenizer_testdata import SENTENCES, TEXTS  # noqa: E402

CODE = '''#include <vector>
template <class T> struct Slot { T* at(size_t i) const { return i < n ? p + i : nullptr; } size_t n; T* p; };
int main(int argc, char** argv) {\t// tabs\t\there
  for (auto&& [k, v] : std::map<int, double>{{1, 1e-9}, {0x1F, .5f}}) printf("%d %g\\n", k, v);
\treturn argc > 1 ? 0 : -1;   \r\n}
SELECT a.id, COUNT(*) FROM t AS a LEFT JOIN u USING (id) WHERE a.x <= 10 AND u.y LIKE '%z_' GROUP BY 1;
<div class="a b"><a href="https://example.org/?q=1&r=%20">x</a></div> $HOME/.config ~/x && ls -la | grep -v '^d'
'''
MORE = [
    CODE,
    'Zażółć gęślą jaźń. Příliš žluťoučký kůň. Árvíztűrő tükörfúrógép. İstanbul\'da ığdır. Tiếng Việt có dấu.',
    'Ελληνικά: ΟΔΥΣΣΕΥΣ Σίσυφος. Українська мова. Ქართული ენა. Հայերեն. አማርኛ። ქართული',
    'हिन्दी में एक वाक्य। বাংলা ভাষা। தமிழ் மொழி. తెలుగు. ಕನ್ನಡ. മലയാളം. ਪੰਜਾਬੀ. ગુજરાતી. සිංහල.',
    'ภาษาไทยไม่มีช่องว่าง ພາສາລາວ မြန်မာဘာသာ ភាសាខ្មែរ བོད་སྐད།',
    'العربية: اللُّغَةُ العَرَبِيَّةُ ١٢٣٤. فارسی ۱۲۳. עִבְרִית 123. اردو',
    '日本語の文章です。カタカナ、ひらがな、漢字。中文句子，没有空格。繁體中文。한국어 문장입니다.',
    '😀😃😄 👩🏽‍💻👨‍👩‍👧‍👦 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🇩🇪🇯🇵 ☺️ ❤️‍🔥 1️⃣ 👋🏿👋🏻',
    'e\u0301\u0327\u0323 Z\u0351\u036b\u0343\u036a\u0302\u036b\u033da\u0301\u0302l\u0303g\u0304o\u0305 \u0041\u030a \u212b \u1e9b\u0323',
    ''.join(chr(c) for c in range(0, 0x21)) + '\x7f\u0080\u009f\u00ad\u200b\u200e\u2060\ufeff\ufff9',
    ' '.join(str(10 ** k) for k in range(18)) + ' 3.14159 1,234,567.89 0b1010 0xDEADBEEF 1e-10',
    'CamelCaseIdentifiersAndsnake_case_identifiers and SCREAMING_SNAKE_CASE and kebab-case-words HTTPServer2XMLParser',
    'x' * 1500,
    'antidisestablishmentarianism' * 40,
    'Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft' * 6,
    '語' * 300 + 'あ' * 300,
    ' ' * 200 + 'x' + '\n' * 120 + '\t' * 50 + '\u3000' * 20,
    '.' * 200 + '-' * 130 + '=' * 77 + '!' * 65,
    '-+*/' * 100,
    '<|endoftext|><|im_start|>system\nx<|im_end|> <s>a</s> <bos> <|begin_of_text|>y<|eot_id|> [INST] z [/INST]',
]


def random_bytes(rng, kind):
    n = rng.randrange(1, 200)
    if kind == 0:
        return bytes(rng.randrange(256) for _ in range(n))
    if kind == 1:  # any code points
        chars = []
        while len(chars) < n // 2:
            c = rng.choice([rng.randrange(0x80), rng.randrange(0x800), rng.randrange(0x10000), rng.randrange(0x110000)])
            if not 0xD800 <= c < 0xE000:
                chars.append(chr(c))
        return ''.join(chars).encode()
    return bytes(rng.choice(b'abcXYZ019 .,_-\n\t\'"') for _ in range(n))


def all_texts():
    rng = random.Random(5)
    texts = [t.encode() for t in TEXTS + SENTENCES + MORE]
    return texts + [random_bytes(rng, i % 3) for i in range(60)]


def rust(path):
    tokenizer = tokenizers.Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = False
    return (lambda s: tokenizer.encode(s, add_special_tokens=False).ids,
            lambda ids: tokenizer.decode(ids, skip_special_tokens=False))


def piece(path):
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return model.encode, None


def main():
    folder = pathlib.Path(sys.argv[1])
    texts = all_texts()
    out = HERE / 'published'
    out.mkdir(exist_ok=True)
    for path in sorted(folder.glob('*/tokenizer.*')):
        if path.suffix not in ('.json', '.model'):
            continue
        encode, decode = (rust if path.suffix == '.json' else piece)(path)
        cases = []
        for raw in texts:
            text = raw.decode('utf-8', 'replace')
            if decode is None and any(t in text for t in ('<s>', '</s>', '<unk>')):
                continue  # the library alone spells control tokens; Baton recognises them
            ids = encode(text)
            case = [raw.hex(), ids]
            if decode is not None and decode(ids) != text:
                case.append(decode(ids))
            cases.append(case)
        (out / (path.parent.name + '.json')).write_text(
            json.dumps({'file': path.name, 'cases': cases}, ensure_ascii=True, separators=(',', ':')) + '\n')
        print(path, len(cases), sum(len(c[1]) for c in cases))


main()
