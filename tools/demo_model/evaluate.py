"""Measures an exported model in fp32: bits per byte, recall by distance, reliance on the state.

`evaluate.py MODEL --data DATA` prints a Markdown section for the model's README.md.
Held-out passages (every 25th of the corpus) are used for text and as filler; numbers are random.
"""

import argparse
import math
import random
from multiprocessing import get_context
from pathlib import Path

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer

import words
from batches import SOURCES, read_passages
from export import load_exported
from model import State

DISTANCES = (32, 64, 128, 256, 384, 512)
TRIALS = 50
WINDOW = 512
EVALUATOR = None  # one per process, see start_process


class Evaluator:
    """A model, its tokenizer and the held-out text."""

    def __init__(self, folder, data):
        self.model = load_exported(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.passages = read_passages(data)["heldout"]
        lines = " ".join(p["text"].replace("\n", " ") for p in self.passages)
        self.filler = self.encode(lines)

    def encode(self, text):
        return self.tokenizer.encode(text).ids

    @torch.no_grad()
    def bits_per_byte(self, source):
        """Windows of 512 tokens without overlap, each from an empty state; the first token of a
        window is not predicted, and its bytes are not counted."""
        bits, size = 0.0, 0
        for passage in (p for p in self.passages if p["source"] == source):
            ids = self.encode(passage["text"])
            for start in range(0, len(ids) - 1, WINDOW):
                part = ids[start : start + WINDOW]
                if len(part) > 1:
                    logits = self.model(torch.tensor([part[:-1]]))
                    bits += F.cross_entropy(
                        logits[0], torch.tensor(part[1:]), reduction="sum"
                    ).item() / math.log(2)
                    # A byte-level token's name has one character for each of its bytes.
                    size += sum(len(self.tokenizer.id_to_token(i)) for i in part[1:])
        return bits, size

    @torch.no_grad()
    def greedy(self, ids, count, state=None, stop=()):
        """The next `count` greedy tokens after ids; ends early at a stop token."""
        logits, state = self.model.step(torch.tensor([ids]), state)
        out = []
        while True:
            out.append(int(logits[0, -1].argmax()))
            if len(out) == count or out[-1] in stop:
                return out
            logits, state = self.model.step(torch.tensor([[out[-1]]]), state)

    @torch.no_grad()
    def recalls(self, prompt, answer, end):
        """Whether greedy decoding gives the whole answer and then a token that starts with `end`
        (the full stop may be joined with a line break in one token)."""
        logits = self.model(torch.tensor([prompt + answer]))[0, -len(answer) - 1 :]
        predicted = logits.argmax(-1).tolist()
        return predicted[:-1] == answer and self.tokenizer.decode(
            predicted[-1:], skip_special_tokens=False
        ).startswith(end)

    def recall_accuracy(self, distance, facts, rng):
        """`facts` codes are told; after `distance` tokens of filler one of them is asked for."""
        total = 0
        for _ in range(TRIALS):
            chosen = rng.sample(words.KEYS, facts)
            codes = ["".join(rng.choice("0123456789") for _ in range(4)) for _ in chosen]
            told = "".join(f"The code of {k} is {c}.\n" for k, c in zip(chosen, codes))
            start = rng.randrange(len(self.filler) - distance)
            prompt = self.encode(told) + self.filler[start : start + distance]
            pick = rng.randrange(facts)
            prompt += self.encode(f"\nThe code of {chosen[pick]} is")
            total += self.recalls(prompt, self.encode(f" {codes[pick]}"), ".")
        return total / TRIALS

    def chat_recall_accuracy(self, distance, rng):
        """The same as chat: told in the first turn, filler quoted in the second, then asked."""
        total = 0
        for _ in range(TRIALS):
            key, code = rng.choice(words.KEYS), "".join(rng.choice("0123456789") for _ in range(4))
            start = rng.randrange(len(self.filler) - distance)
            prompt = (
                self.encode(
                    chat_turns(
                        [
                            f"The code of {key} is {code}.",
                            "I will remember that.",
                            "Tell me a verse.",
                        ]
                    )
                )
                + self.filler[start : start + distance]
                + self.encode("<|im_end|>\n" + chat_turns([f"What is the code of {key}?"]))
            )
            total += self.recalls(
                prompt, self.encode(f"The code of {key} is {code}."), "<|im_end|>"
            )
        return total / TRIALS

    @torch.no_grad()
    def state_reliance(self, prompts, count=32):
        """How many prompts continue otherwise when, before their last token, only the conv and
        recurrent states are replaced by those of the next prompt; keys and values stay."""
        states = [self.model.step(torch.tensor([p[:-1]]), None)[1] for p in prompts]
        kinds = self.model.config.layer_types
        changed = []
        for i, prompt in enumerate(prompts):
            other = states[(i + 1) % len(states)]
            mixed = State(
                [
                    (other if kind == "mamba" else states[i]).layers[layer]
                    for layer, kind in enumerate(kinds)
                ]
            )
            stop = (0, 2)
            own = self.greedy(prompt[-1:], count, states[i], stop)
            changed.append(own != self.greedy(prompt[-1:], count, mixed, stop))
        return changed


def chat_turns(messages):
    """User and assistant messages in turn, ending with the header of the next assistant message."""
    roles = ["user", "assistant"]
    text = "".join(f"<|im_start|>{roles[i % 2]}\n{m}<|im_end|>\n" for i, m in enumerate(messages))
    return text + "<|im_start|>assistant\n"


def reliance_prompts(evaluator, rng):
    """32 prompts: 16 openings of held-out passages, 16 dialogues that end in a question."""
    texts = [
        " ".join(p["text"].split()[: rng.randint(12, 60)])
        for p in rng.sample(evaluator.passages, 16)
    ]
    for _ in range(8):
        key, code = rng.choice(words.KEYS), str(rng.randint(1000, 9999))
        texts.append(
            chat_turns(
                [
                    f"The code of {key} is {code}.",
                    "I will remember that.",
                    f"What is the code of {key}?",
                ]
            )
        )
        name, city = rng.choice(words.NAMES), rng.choice(words.CITIES)
        texts.append(
            chat_turns(
                [
                    f"My name is {name} and I live in {city}.",
                    "I will remember that.",
                    rng.choice(["What is my name?", "Where do I live?"]),
                ]
            )
        )
    rng.shuffle(texts)
    return [evaluator.encode(text) for text in texts]


def measure_one(task):
    """Runs one of the tasks of `measure`; every task has its own fixed seed."""
    kind, *which = task
    if kind == "bits":
        return EVALUATOR.bits_per_byte(*which)
    if kind == "recall":
        return EVALUATOR.recall_accuracy(*which, random.Random(which[0]))
    if kind == "chat":
        return EVALUATOR.chat_recall_accuracy(*which, random.Random(which[0]))
    changed = EVALUATOR.state_reliance(reliance_prompts(EVALUATOR, random.Random(7)))
    return [sum(changed), len(changed)]


def start_process(folder, data):
    global EVALUATOR
    torch.set_num_threads(1)
    EVALUATOR = Evaluator(folder, data)


def measure(folder, data):
    """All numbers, by task; the tasks are shared out to two processes."""
    tasks = [("state",)]
    for distance in reversed(DISTANCES):
        tasks += [("recall", distance, 1), ("recall", distance, 4), ("chat", distance)]
    tasks += [("bits", source) for source in SOURCES]
    with get_context("spawn").Pool(2, start_process, (folder, data)) as pool:
        return dict(zip(tasks, pool.map(measure_one, tasks, chunksize=1)))


def markdown(results):
    """The section for the README."""
    bits = {source: results["bits", source] for source in SOURCES}
    bits["all"] = [sum(b[i] for b in bits.values()) for i in (0, 1)]
    lines = [
        "Bits per byte on held-out text: "
        + ", ".join(f"{name} {total / size:.3f}" for name, (total, size) in bits.items())
        + ".",
        "",
        f"Recall of a four-digit code, all digits right, {TRIALS} trials each:",
        "",
        "| tokens between | 1 code told | 4 codes told | in a dialogue |",
        "|---|---|---|---|",
    ]
    for d in DISTANCES:
        shares = results["recall", d, 1], results["recall", d, 4], results["chat", d]
        lines.append(f"| {d} | " + " | ".join(f"{share:.0%}" for share in shares) + " |")
    changed, total = results["state",]
    lines += [
        "",
        f"{changed} of {total} prompts continue otherwise when only the conv and recurrent state is"
        " another prompt's.",
    ]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("--data", type=Path, required=True)
    args = parser.parse_args()
    print(markdown(measure(args.model, args.data)))


if __name__ == "__main__":
    main()
