"""Training rows: token ids and loss weights, the same for the same (seed, step)."""

import json
import random

import numpy as np

import tasks

SOURCES = {"bible": 0.45, "jargon": 0.35, "devil": 0.2}
CHARACTERS_PER_TOKEN = 3


def read_passages(data):
    return json.loads((data / "passages.json").read_text(encoding="utf-8"))


class Batches:
    """Makes rows of four kinds: text, recall, dialogue, copy."""

    def __init__(self, passages, tokenizer):
        self.tokenizer, self.writer = tokenizer, tasks.Writer(passages, random.Random(0))
        self.text = {source: self.encode_source(passages, source) for source in SOURCES}

    def encode_source(self, passages, source):
        texts = [p["text"] + tasks.END for p in passages if p["source"] == source]
        return np.concatenate(
            [np.array(e.ids, np.int64) for e in self.tokenizer.encode_batch(texts)]
        )

    def batch(self, seed, rows, length, mix):
        """ids [rows, length + 1], weights [rows, length] of the predicted tokens, kinds [rows]."""
        rng = random.Random(seed)
        self.writer.rng = rng
        kinds = rng.choices(list(mix), weights=list(mix.values()), k=rows)
        made = [getattr(self, kind)(rng, length + 1) for kind in kinds]
        return np.stack([ids for ids, _ in made]), np.stack([w[1:] for _, w in made]), kinds

    def text_slice(self, rng, length):
        tokens = self.text[rng.choices(list(SOURCES), weights=list(SOURCES.values()))[0]]
        start = rng.randrange(len(tokens) - length)
        return tokens[start : start + length]

    def plain(self, rng, length):
        return self.text_slice(rng, length), np.ones(length, np.float32)

    def copy(self, rng, length):
        """Random or corpus tokens said several times; only the repetitions count."""
        ids, weights = [], []
        while len(ids) < length:
            size = int(2 ** rng.uniform(2, np.log2(length / 2)))
            part = (
                list(self.text_slice(rng, size))
                if rng.random() < 0.5
                else [rng.randrange(3, self.tokenizer.get_vocab_size()) for _ in range(size)]
            )
            for i in range(rng.choice([2, 2, 3])):
                ids += part
                weights += [1.0 if i else 0.0] * size
        return np.array(ids[:length], np.int64), np.array(weights[:length], np.float32)

    def recall(self, rng, length):
        return self.documents(rng, length, self.writer.recall)

    def dialogue(self, rng, length):
        return self.documents(rng, length, self.writer.dialogue)

    def documents(self, rng, length, make):
        """Documents one after the other; the last one is cut off."""
        ids, weights = [], []
        while len(ids) < length:
            room = (length - len(ids)) * CHARACTERS_PER_TOKEN
            doc = make(room if rng.random() < 0.6 else rng.randint(200, 200 + room))
            doc_ids, doc_weights = self.encode(doc)
            ids += doc_ids
            weights.append(doc_weights)
        return np.array(ids[:length], np.int64), np.concatenate(weights)[:length]

    def encode(self, doc):
        """Token ids, and for each the weight of the part in which it ends."""
        encoding = self.tokenizer.encode(doc.plain_text())
        by_character = np.concatenate(
            [np.full(len(text), weight, np.float32) for text, weight in doc.parts]
        )
        ends = np.array([end for _, end in encoding.offsets])
        return encoding.ids, by_character[ends - 1]
