"""Trains the demo model on CPU; resumes from DATA/RUN/checkpoint.pt, stops cleanly on SIGTERM.

Constant learning rate (warm-up first) with a moving average of the weights, so that an export is
good at any time; `--decay-steps N` then lowers the rate to zero over N more steps and stops. The
checkpoint before a decay is kept as stable.pt, from which a later run can go on.

Matrices of the layers are trained with Muon (momentum, orthogonalised), all else with AdamW.
"""

import argparse
import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import torch
import torch.multiprocessing as mp
import torch.nn.functional as F
from tokenizers import Tokenizer

from batches import Batches, read_passages
from model import HybridModel, load_config
from tasks import RECALLED

HERE = Path(__file__).parent
SEED = 20
WARMUP_STEPS = 60
MUON_RATE, ADAM_RATE = 0.02, 0.003
AVERAGE_DECAY = 0.99
PART_TOKENS = 512
LOG_EVERY = 25
WINDOWED_SHARE, WINDOWED_FROM = 0.5, 2_250_000  # of the rows; from this many tokens on
KINDS = ("plain", "recall", "dialogue", "copy")
# (up to this many tokens, [(rows, length)], share of each kind of row)
SCHEDULE = [
    (900_000, [(32, 64)], {"plain": 0.2, "recall": 0.45, "dialogue": 0.1, "copy": 0.25}),
    (1_050_000, [(16, 128)], {"plain": 0.2, "recall": 0.45, "dialogue": 0.2, "copy": 0.15}),
    (1_500_000, [(12, 256)], {"plain": 0.25, "recall": 0.37, "dialogue": 0.33, "copy": 0.05}),
    (1_800_000, [(8, 512)], {"plain": 0.28, "recall": 0.37, "dialogue": 0.33, "copy": 0.02}),
    (
        2_250_000,
        [(16, 256), (8, 512)],
        {"plain": 0.2, "recall": 0.47, "dialogue": 0.32, "copy": 0.01},
    ),
    (
        None,
        [(8, 512), (16, 256), (8, 512), (4, 1024)],
        {"plain": 0.42, "recall": 0.24, "dialogue": 0.33, "copy": 0.01},
    ),
]


class Muon(torch.optim.Optimizer):
    """Momentum SGD whose update of each matrix is made nearly orthogonal by Newton-Schulz steps."""

    def __init__(self, params, lr, momentum=0.95, weight_decay=0.05):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                buffer = self.state[p].setdefault("momentum", torch.zeros_like(p))
                buffer.lerp_(p.grad, 1 - group["momentum"])
                update = orthogonal(p.grad.lerp(buffer, group["momentum"]))
                scale = max(1, p.shape[0] / p.shape[1]) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"]).add_(
                    update, alpha=-group["lr"] * scale
                )


def orthogonal(matrix, steps=5):
    """Quintic Newton-Schulz iteration towards the nearest orthogonal matrix."""
    x = matrix.bfloat16()
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return (x.T if tall else x).float()


class Run:
    """Model, optimizers and counters; everything that a checkpoint holds."""

    def __init__(self):
        torch.manual_seed(SEED)
        self.model = HybridModel(load_config(HERE / "config.json"), torch.bfloat16).share_memory()
        matrices = [p for n, p in self.model.named_parameters() if p.ndim == 2 and "embed" not in n]
        others = [p for n, p in self.model.named_parameters() if p.ndim != 2 or "embed" in n]
        self.optimizers = [
            Muon(matrices, MUON_RATE),
            torch.optim.AdamW(others, ADAM_RATE, betas=(0.9, 0.98), weight_decay=0.0),
        ]
        self.average = {n: p.detach().clone() for n, p in self.model.state_dict().items()}
        self.counters = {"step": 0, "tokens": 0, "decay_from": None, "decay_steps": None}

    def save(self, path):
        partial = path.with_suffix(".part")
        torch.save(
            {
                "model": self.model.state_dict(),
                "average": self.average,
                "counters": self.counters,
                "optimizers": [o.state_dict() for o in self.optimizers],
            },
            partial,
        )
        os.replace(partial, path)

    def load(self, path):
        saved = torch.load(path, map_location="cpu", weights_only=True)
        self.model.load_state_dict(saved["model"])
        self.average, self.counters = saved["average"], saved["counters"]
        for optimizer, state in zip(self.optimizers, saved["optimizers"]):
            optimizer.load_state_dict(state)

    def rate(self):
        """Factor on both learning rates; 0 ends the run."""
        step, start, steps = (self.counters[k] for k in ("step", "decay_from", "decay_steps"))
        decay = 1.0 if start is None else max(0.0, 1 - (step - start) / steps)
        return decay * min(1.0, (step + 1) / WARMUP_STEPS)

    def update(self, gradient, tokens):
        """One optimizer step from the flat gradient of a batch."""
        torch.nn.utils.vector_to_parameters(gradient, [p.grad for p in self.model.parameters()])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, rate in zip(self.optimizers, (MUON_RATE, ADAM_RATE)):
            optimizer.param_groups[0]["lr"] = rate * self.rate()
            optimizer.step()
        for name, p in self.model.state_dict().items():
            self.average[name].lerp_(p, 1 - AVERAGE_DECAY)
        self.counters["step"] += 1
        self.counters["tokens"] += tokens


class Team:
    """Single-threaded processes that share the weights and take the parts of each batch one by one.

    On a busy machine this wastes less than threads, which wait for the slowest at every operation.
    """

    def __init__(self, model, size):
        context = mp.get_context("spawn")
        self.size = size
        self.position = torch.zeros(3, dtype=torch.int64).share_memory_()  # step, tokens, stop
        self.next_part = context.Value("l", 0)
        self.barrier = context.Barrier(size, timeout=900)  # raises if another process died
        count = sum(p.numel() for p in model.parameters())
        self.gradients = torch.zeros(size, count).share_memory_()
        self.sums = torch.zeros(size, len(KINDS), 4, dtype=torch.float64).share_memory_()

    def step(self, rank, model, batches):
        """Takes parts of the batch at `position` until none is left; leaves gradient and sums."""
        rows, length, mix = schedule(*self.position[:2].tolist())
        seed = SEED * 1_000_000_007 + int(self.position[0])
        ids, weights, kinds = batches.batch(seed, rows, length, mix)
        ids, weights = torch.from_numpy(ids), torch.from_numpy(weights)
        share = WINDOWED_SHARE if self.position[1] >= WINDOWED_FROM else 0.0
        windows = draw_windows(seed, rows, length, share)
        per_part = max(1, PART_TOKENS // length)
        model.zero_grad(set_to_none=False)
        while (start := self.take() * per_part) < rows:
            part = slice(start, start + per_part)
            self.backward(
                rank, model, (ids[part], weights[part], kinds[part], windows[part]), weights.sum()
            )
        self.gradients[rank] = torch.cat([p.grad.flatten() for p in model.parameters()])
        return rows * length

    def take(self):
        with self.next_part.get_lock():
            self.next_part.value += 1
            return self.next_part.value - 1

    def backward(self, rank, model, rows, total):
        ids, weights, kinds, windows = rows
        with torch.autocast("cpu", torch.bfloat16):
            logits = model(ids[:, :-1], windows)
        losses = F.cross_entropy(
            logits.flatten(0, 1).float(), ids[:, 1:].flatten(), reduction="none"
        )
        losses = losses.view_as(weights)
        (losses * weights).sum().div(total).backward()
        right = logits.detach().argmax(-1) == ids[:, 1:]
        for row, kind in enumerate(kinds):
            chosen = (
                weights[row] == RECALLED if kind in ("recall", "dialogue") else weights[row] > 0
            )
            sums = torch.stack(
                [losses[row, chosen].detach().sum(), right[row, chosen].sum(), chosen.sum()]
            )
            self.sums[rank, KINDS.index(kind), :3] += sums


def work(rank, team, model, args):
    """A helper process: one part of each batch after the other until told to stop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the first process decides when to stop
    torch.set_num_threads(1)
    batches = load_batches(args)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    while True:
        team.barrier.wait()
        if team.position[2]:
            return
        team.step(rank, model, batches)
        team.barrier.wait()


def load_batches(args):
    tokenizer = Tokenizer.from_file(str(args.tokenizer / "tokenizer.json"))
    return Batches(read_passages(args.data)["train"], tokenizer)


def schedule(step, tokens):
    """Shape and mixture of the next batch."""
    _, shapes, mix = next(entry for entry in SCHEDULE if entry[0] is None or tokens < entry[0])
    return *shapes[step % len(shapes)], mix


def draw_windows(seed, rows, length, share):
    """How far back attention sees in each row. Where that is only a few tokens, what was told must
    come through the recurrent state: without such rows attention alone carries most answers."""
    rng = random.Random(seed + 1)
    return torch.tensor(
        [
            int(2 ** rng.uniform(1, 6)) if rng.random() < share else length
            for _ in range(rows)
        ]
    )


class Log:
    """Per kind of row: mean loss and share predicted right (recalled tokens only, if any)."""

    def __init__(self, path):
        self.path, self.time, self.tokens = path, time.time(), None

    def write(self, counters, rate, sums):
        now, tokens = time.time(), counters["tokens"]
        entry = {
            "time": time.strftime("%H:%M:%S"),
            "step": counters["step"],
            "tokens": tokens,
            "rate": round(rate, 3),
        }
        entry["tokens_per_s"] = round((tokens - (self.tokens or tokens)) / (now - self.time))
        for kind, (loss, right, count, _) in zip(KINDS, sums.sum(0).tolist()):
            entry[kind] = [round(loss / max(count, 1), 3), round(right / max(count, 1), 3)]
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        sums.zero_()
        self.time, self.tokens = now, tokens


def train(run, team, folder, args):
    """Steps until the decay ends, --max-steps is reached or SIGTERM arrives."""
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    log, saved, batches = Log(folder / "log.jsonl"), time.time(), load_batches(args)
    for p in run.model.parameters():
        p.grad = torch.zeros_like(p)
    while run.rate() > 0 and not stopping and run.counters["step"] < args.max_steps:
        team.position[0], team.position[1] = run.counters["step"], run.counters["tokens"]
        team.next_part.value = 0
        team.barrier.wait()
        tokens = team.step(0, run.model, batches)
        team.barrier.wait()
        run.update(team.gradients.sum(0), tokens)
        if run.counters["step"] % LOG_EVERY == 0:
            log.write(run.counters, run.rate(), team.sums)
        if time.time() - saved > 60 * args.save_minutes:
            run.save(folder / "checkpoint.pt")
            saved = time.time()
    run.save(folder / "checkpoint.pt")
    team.position[2] = 1
    team.barrier.wait()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder with tokenizer.json")
    parser.add_argument("--run", default="run")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--save-minutes", type=float, default=5)
    parser.add_argument("--max-steps", type=int, default=10**9)
    parser.add_argument("--decay-steps", type=int)
    args = parser.parse_args()
    torch.set_num_threads(1)
    folder = args.data / args.run
    folder.mkdir(parents=True, exist_ok=True)
    run, checkpoint = Run(), folder / "checkpoint.pt"
    if checkpoint.exists():
        run.load(checkpoint)
    if args.decay_steps and run.counters["decay_from"] is None:
        shutil.copyfile(checkpoint, folder / "stable.pt")
        run.counters |= {"decay_from": run.counters["step"], "decay_steps": args.decay_steps}
    team = Team(run.model, args.processes)
    helpers = [
        mp.get_context("spawn").Process(
            target=work, args=(rank, team, run.model, args), daemon=True
        )
        for rank in range(1, args.processes)
    ]
    for helper in helpers:
        helper.start()
    train(run, team, folder, args)
    for helper in helpers:
        helper.join()


if __name__ == "__main__":
    main()
