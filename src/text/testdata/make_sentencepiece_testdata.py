#!/usr/bin/env python3
"""Writes sentencepiece/{bpe,unigram}/tokenizer.model and expected.json, by the Python package sentencepiece."""
import json
import pathlib
import sys

import sentencepiece

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE))
from make_tokenizer_testdata import SENTENCES, TEXTS  # noqa: E402

for kind, options in {
    'bpe': {'vocab_size': 420, 'byte_fallback': True},
    'unigram': {'vocab_size': 150, 'byte_fallback': False, 'add_dummy_prefix': False,
                'remove_extra_whitespaces': False},
}.items():
    out = HERE / 'sentencepiece' / kind
    out.mkdir(parents=True, exist_ok=True)
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 3), model_prefix=str(out / 'tokenizer'), model_type=kind,
        character_coverage=0.98, user_defined_symbols=['<turn>'], control_symbols=['<end>'],
        normalization_rule_name='identity', minloglevel=2, **options)
    (out / 'tokenizer.vocab').unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(out / 'tokenizer.model'))
    texts = [t for t in TEXTS + SENTENCES if '<s>' not in t and '</s>' not in t and '<unk>' not in t]
    cases = [{'text': t, 'ids': model.encode(t), 'decoded': model.decode(model.encode(t))} for t in texts]
    (out / 'expected.json').write_text(json.dumps(cases, ensure_ascii=False, indent=0) + '\n')
