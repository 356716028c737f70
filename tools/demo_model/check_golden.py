"""Compares model.py with a reference checkpoint: `check_golden.py DIR` prints the logit gaps.

DIR holds config.json, model.safetensors and golden.safetensors (input_ids, logits). The sparse
experts of a granitemoehybrid checkpoint are added here, since the demo model has none.
"""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import nn

from model import HybridModel, Layer, load_config


class Experts(nn.Module):
    """Top-k of the router logits, then softmax over those k; SwiGLU experts."""

    def __init__(self, tensors, top_k):
        super().__init__()
        self.router = tensors["router.layer.weight"]
        self.inputs = tensors["input_linear.weight"]
        self.outputs = tensors["output_linear.weight"]
        self.top_k = top_k

    def forward(self, x):
        logits, chosen = (x @ self.router.T).topk(self.top_k, dim=-1)
        weights = torch.zeros(*x.shape[:-1], len(self.router)).scatter(
            -1, chosen, logits.softmax(-1)
        )
        out = torch.zeros_like(x)
        for e in range(len(self.router)):
            gate, up = (x @ self.inputs[e].T).chunk(2, dim=-1)
            out = out + weights[..., e : e + 1] * (
                (nn.functional.silu(gate) * up) @ self.outputs[e].T
            )
        return out


class SparseLayer(Layer):
    """A layer whose feed-forward half sums experts and shared MLP."""

    def feed_forward(self, x):
        return self.shared_mlp(x) + self.experts(x)


def add_experts(model, tensors):
    """Moves block_sparse_moe tensors out of the dict into the layers."""
    for i, layer in enumerate(model.model.layers):
        prefix = f"model.layers.{i}.block_sparse_moe."
        own = {
            name[len(prefix) :]: tensors.pop(name)
            for name in list(tensors)
            if name.startswith(prefix)
        }
        if own:
            layer.__class__ = SparseLayer
            layer.experts = Experts(own, model.config.num_experts_per_tok)


@torch.no_grad()
def main():
    folder = Path(sys.argv[1])
    model = HybridModel(load_config(folder / "config.json")).eval()
    tensors = {name: t.float() for name, t in load_file(folder / "model.safetensors").items()}
    add_experts(model, tensors)
    model.load_state_dict(tensors)
    golden = load_file(folder / "golden.safetensors")
    ids, expected = golden["input_ids"], golden["logits"]
    gap = (model(ids) - expected).abs().max()
    print(f"one pass:      largest gap {gap:.2e} (logit deviation {expected.std():.2f})")
    state, rows = None, []
    for ids_part in [ids[:, :20]] + [ids[:, t : t + 1] for t in range(20, ids.shape[1])]:
        logits, state = model.step(ids_part, state)
        rows.append(logits)
    gap = (torch.cat(rows, 1) - expected).abs().max()
    print(f"20 + 1 by one: largest gap {gap:.2e}")


if __name__ == "__main__":
    main()
