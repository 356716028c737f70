#!/usr/bin/env python3
"""Writes byte_level.json, metaspace.json (two small vocabularies) and tokenizer_cases.json.

The expectations come from the Rust library (Python package `tokenizers`), which is needed to run
this and for nothing else. A variant is a JSON merge patch (RFC 7386) on one of the vocabularies.
"""
import copy
import json
import pathlib
import random

from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

HERE = pathlib.Path(__file__).parent
QWEN_LIKE = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
O200K_LIKE = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
SENTENCES = [
    "The state of a sequence is a fixed-size tensor that is valid at exactly one boundary.",
    "It's the reader who can't know whether they've read it; we'll say so, and I'm sure you'd agree.",
    "A checksum proves that bytes arrived, not that they are the right ones: 12, 345 and 6789 of them.",
    "Der Zustand einer Folge ist größer als man denkt, und übermäßig schön ist er auch nicht.",
    "L'état d'une séquence n'est valable qu'à une seule frontière, été comme hiver.",
    "Состояние последовательности действительно только на одной границе.",
    "状態は一つの境界でのみ有効です。序列的状态只在一个边界上有效。",
    "def advance(state, tokens):\n    for t in tokens:\n        state = step(state, t)\n    return state\n",
]
TEXTS = [
    "",
    " ",
    "a",
    "Hello world",
    "  leading and trailing  ",
    "The state of a sequence is valid at one boundary.",
    "It's I'LL you'RE they'd we've don't 'tis ſ's",
    "numbers 1 12 123 1234 12345 3.14 1,000,000 ½ ² Ⅷ ١٢٣ １２",
    "größer über naïve café été Zustand",
    "e\u0301 n\u0303 \u212b \ufb01 \u1e9b\u0323 \uac00 \u1100\u1161\u11a8 \u0958",
    "Состояние границе привет",
    "状態は有効です。序列的状态 こんにちは 안녕하세요",
    "שלום مرحبا नमस्ते สวัสดี",
    "🙂 👩‍👩‍👧‍👦 🏳️‍🌈 👍🏽 🇫🇷",
    "tabs\tand\nnewlines\r\nand\n\n\nmore   \n  mixed \t \n",
    "\u00a0nbsp\u3000ideographic\u2028line\u200bzero\u180evowel\u0085nel\ufeffbom",
    "\x00\x01\x1b\x7f control \x1c\x1f",
    "def f(x):\n    return {x: [1, 2]} // /* c */ != == ->\n",
    "!@#$%^&*()_+-=[]{}|;:,.<>?/~`\"'\\",
    "a" * 60,
    "ab" * 20 + "é" * 20 + "漢" * 10,
    " " * 40 + "x" + " " * 3,
    "\n" * 20,
    "<|im_start|>user\nhi<|im_end|>\n<|end|>",
    "x <|im_end|>  y<|im_end|>z <|pad|> <|pad|>",
    "<0x41><0x0A> literal <unk> <s> </s> ▁ ▁▁x",
    "word added wordadded added-word ADDED addedx xadded added",
    "Ünïcode ADDED Straße STRASSE İ I ı ΟΔΟΣ",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "...!!!???,,, --- *** ~~~ ___",
    "MixedCase camelCase PascalCase SCREAMING_CASE HTTPServer iPhone's",
]


def byte_level():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(QWEN_LIKE), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(
        SENTENCES * 3,
        trainers.BpeTrainer(
            vocab_size=520,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
            show_progress=False,
        ),
    )
    return json.loads(t.to_str())


def metaspace():
    t = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    t.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    t.train_from_iterator(
        [s for s in SENTENCES if "状" not in s] * 3,
        trainers.BpeTrainer(
            vocab_size=520, special_tokens=special, limit_alphabet=90, show_progress=False
        ),
    )
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if a["content"] in ("<unk>", "<s>", "</s>")]
    j["decoder"] = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    return j


def added(i, content, **flags):
    base = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": i, "content": content, **{**base, **flags}}


def variants(bl, ms):
    n, m = len(bl["model"]["vocab"]), len(ms["model"]["vocab"])
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    seq = lambda *steps: {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps), "add_prefix_space": None, "trim_offsets": None, "use_regex": None}}
    split = lambda regex, behavior, invert=False: {"type": "Split", "pattern": {"Regex": regex}, "behavior": behavior, "invert": invert}
    plain = dict(level, use_regex=False)
    yield "byte_level", "plain", {}
    yield "byte_level", "gpt2", {"pre_tokenizer": dict(level, pretokenizers=None)}
    yield "byte_level", "prefix_space", {"pre_tokenizer": dict(level, pretokenizers=None, add_prefix_space=True)}
    yield "byte_level", "o200k", seq(split(O200K_LIKE, "Isolated"), plain)
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        yield "byte_level", "split_" + behavior, seq(split(r"\s|[aeiou]", behavior), plain)
        yield "byte_level", "split_inverted_" + behavior, seq(split(r"\w+", behavior, True), plain)
    yield "byte_level", "split_string", seq({"type": "Split", "pattern": {"String": "st"}, "behavior": "Isolated", "invert": False}, plain)
    yield "byte_level", "digits", seq({"type": "Digits", "individual_digits": True}, level)
    yield "byte_level", "digit_runs", seq({"type": "Digits", "individual_digits": False}, level)
    yield "byte_level", "punctuation", seq({"type": "Punctuation", "behavior": "Contiguous"}, level, {"type": "Digits", "individual_digits": False}, split("[0-9][0-9][0-9]", "Isolated"))
    yield "byte_level", "whitespace", seq({"type": "Whitespace"}, plain)
    yield "byte_level", "whitespace_split", seq({"type": "WhitespaceSplit"}, plain)
    yield "byte_level", "no_pre_tokenizer", {"pre_tokenizer": None, "normalizer": {"type": "ByteLevel"}}
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        yield "byte_level", form, {"normalizer": {"type": form}}
    yield "byte_level", "normalizers", {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Strip", "strip_left": True, "strip_right": False}, {"type": "NFD"}, {"type": "StripAccents"}, {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "}, {"type": "Prepend", "prepend": ">"}, {"type": "Lowercase"}]}}
    yield "byte_level", "ignore_merges", {"model": {"ignore_merges": True}}
    yield "byte_level", "no_decoder", {"decoder": None}
    yield "byte_level", "template", {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|im_end|>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}, "<|im_end|>": {"id": "<|im_end|>", "ids": [2], "tokens": ["<|im_end|>"]}}}}
    yield "byte_level", "processors", {"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}, {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<|im_start|>": {"id": "<|im_start|>", "ids": [1], "tokens": ["<|im_start|>"]}}}]}}
    yield "byte_level", "added", {"added_tokens": bl["added_tokens"] + [
        added(n, "<|pad|>", lstrip=True, rstrip=True),
        added(n + 1, "added", single_word=True, special=False, normalized=True),
        added(n + 2, "<|end|>", special=False),
        added(n + 3, "<|end", special=False),
        added(n + 4, "  ", special=False),
        added(n + 5, "Ünï", special=False, normalized=True),
    ]}
    yield "byte_level", "added_lower", {"normalizer": {"type": "Lowercase"}, "added_tokens": bl["added_tokens"] + [
        added(n, "ADDED", special=False, normalized=True),
        added(n + 1, "Straße", special=False),
        added(n + 2, "漢", special=False, normalized=True, lstrip=True),
    ]}
    yield "metaspace", "plain", {}
    yield "metaspace", "no_fuse", {"model": {"fuse_unk": False, "byte_fallback": False}}
    yield "metaspace", "fuse", {"model": {"fuse_unk": True, "byte_fallback": False}}
    yield "metaspace", "no_unk", {"model": {"unk_token": None, "byte_fallback": False}}
    yield "metaspace", "bos", {"post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}}}
    for scheme in ("always", "first", "never"):
        for is_split in (True, False):
            step = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": is_split}
            yield "metaspace", f"metaspace_{scheme}_{is_split}", {"normalizer": None, "pre_tokenizer": step, "decoder": dict(step, decoders=None)}
    yield "metaspace", "space_split", {"normalizer": {"type": "Replace", "normalizers": None, "pattern": {"String": " "}, "content": "▁"}, "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}, "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}}
    yield "metaspace", "strip_each", {"decoder": {"type": "Sequence", "decoders": [{"type": "Strip", "content": "▁", "start": 1, "stop": 0}, {"type": "Fuse"}]}}


def merge_patch(target, patch):
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        else:
            target[key] = merge_patch(target.get(key), value)
    return target


def run(file, texts):
    text = json.dumps(file, ensure_ascii=False)
    with_special, without = Tokenizer.from_str(text), Tokenizer.from_str(text)
    without.encode_special_tokens = True
    out = []
    for s in texts:
        ids = with_special.encode(s, add_special_tokens=True).ids
        decoded = with_special.decode(ids, skip_special_tokens=False)
        case = {"ids": ids}
        if decoded != s:
            case["decoded"] = decoded
        bare = with_special.encode(s, add_special_tokens=False).ids
        if bare != ids:
            case["bare"] = bare
        as_text = without.encode(s, add_special_tokens=False).ids
        if as_text != bare:
            case["as_text"] = as_text
        skipped = with_special.decode(ids, skip_special_tokens=True)
        if skipped != decoded:
            case["skipped"] = skipped
        out.append(case)
    return out


def main():
    random.seed(7)
    alphabet = "abc ABC 123 .,!\n\t'é\u0301ßЖ漢🙂\u00a0-_<|>"
    texts = TEXTS + ["".join(random.choice(alphabet) for _ in range(random.randrange(2, 60))) for _ in range(20)]
    files = {"byte_level": byte_level(), "metaspace": metaspace()}
    for name, file in files.items():
        (HERE / (name + ".json")).write_text(json.dumps(file, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    cases = []
    for base, name, patch in variants(files["byte_level"], files["metaspace"]):
        file = merge_patch(copy.deepcopy(files[base]), patch)
        cases.append({"base": base, "name": name, "patch": patch, "results": run(file, texts)})
    lines = ",\n".join(json.dumps(c, ensure_ascii=False, separators=(",", ":")) for c in cases)
    head = json.dumps(texts, ensure_ascii=False)
    (HERE / "tokenizer_cases.json").write_text('{"texts": %s,\n"variants": [\n%s\n]}\n' % (head, lines), encoding="utf-8")
    print(len(cases), "variants,", len(texts), "texts")


if __name__ == "__main__":
    main()
