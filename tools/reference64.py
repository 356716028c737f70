#!/usr/bin/env python3
"""Float64 evaluation of tiny hybrid language models, to judge recorded fp32 outputs.

Usage: reference64.py DIR [--out FILE | --check FILE]

DIR holds config.json, model.safetensors (fp32 weights) and golden.safetensors (input_ids, the logits of one
forward pass and stateN.lI.{k,v,conv,rec} after N tokens, recorded in fp32). The model is evaluated here wholly in
float64 with the plainest form of each block: recurrences token by token, softmax attention over all positions,
routing in float64. Printed: how far the record lies from these values, and how large the values are. --out writes
them under the names and shapes of golden.safetensors, dtype F64, input_ids left out (exact.safetensors of
test/golden); --check fails unless FILE holds these values.

Model types: qwen3_next, qwen3_5(_text), qwen3_5_moe(_text), minimax (text-only saves, names "model.layers.N...").
Origin: written from the published math of these blocks; no code was taken from an implementation. Needs numpy only.
"""
import argparse
import json
import re
import struct
import sys

try:
    import numpy as np
except ImportError:
    print("numpy is not here (Debian: python3-numpy)", file=sys.stderr)
    sys.exit(77)

F = np.float64
KINDS = ("logits", "k", "v", "conv", "rec")
# Below, x is [T, width], a weight [out, in]; T is the number of tokens.


def read_safetensors(path):
    """Returns {name: array} of a safetensors file; floats become float64."""
    with open(path, "rb") as file:
        data = file.read()
    (size,) = struct.unpack("<Q", data[:8])
    header, body, tensors = json.loads(data[8:8 + size]), memoryview(data)[8 + size:], {}
    header.pop("__metadata__", None)
    for name, info in header.items():
        begin, end = info["data_offsets"]
        kind = {"F32": "<f4", "F64": "<f8", "I64": "<i8", "I32": "<i4"}[info["dtype"]]
        array = np.frombuffer(body[begin:end], dtype=kind).reshape(info["shape"])
        tensors[name] = array.astype(F) if kind[1] == "f" else array
    return tensors


def write_safetensors(path, tensors):
    """Writes {name: array} as float64 tensors, header padded to eight bytes."""
    header, offset = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": "F64", "shape": list(array.shape), "data_offsets": [offset, offset + 8 * array.size]}
        offset += 8 * array.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array, dtype="<f8").tobytes())


def sigmoid(x):
    """The logistic function, without overflow."""
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def silu(x):
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def softplus(x):
    """log(1 + exp(x)), without overflow."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


def rms(x, eps):
    """x over the root of its mean square, along the last axis."""
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def length_norm(x):
    """x over the root of its sum of squares, along the last axis."""
    return x / np.sqrt(np.sum(x * x, axis=-1, keepdims=True) + 1e-6)


def softmax(x):
    """Softmax along the last axis."""
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def rope(x, theta, rotated):
    """Rotates the first `rotated` values of each head of x [T, heads, D], first half against second half."""
    half = rotated // 2
    frequency = F(theta) ** (-np.arange(half, dtype=F) / half)
    angle = (np.arange(len(x), dtype=F)[:, None] * frequency)[:, None, :]
    a, b = x[..., :half], x[..., half:rotated]
    turned = [a * np.cos(angle) - b * np.sin(angle), b * np.cos(angle) + a * np.sin(angle), x[..., rotated:]]
    return np.concatenate(turned, axis=-1)


def attend(q, k, v):
    """Causal softmax attention, q [T, Hq, D] over k, v [T, Hkv, D]; head h reads key head h // (Hq / Hkv)."""
    group, heads = q.shape[1] // k.shape[1], []
    hidden = np.triu(np.ones((len(q), len(q)), dtype=bool), 1)
    for h in range(q.shape[1]):
        scores = q[:, h] @ k[:, h // group].T / np.sqrt(F(q.shape[2]))
        heads.append(softmax(np.where(hidden, -np.inf, scores)) @ v[:, h // group])
    return np.stack(heads, axis=1)


def swiglu(x, gate, up, down):
    """The gated feed-forward block."""
    return (silu(x @ gate.T) * (x @ up.T)) @ down.T


class Model:
    """One checkpoint: config `c`, weights `w`, and what a run leaves behind."""

    def __init__(self, config, weights, boundaries):
        """Keeps the config and the weights; states are saved after each count in `boundaries`."""
        self.c, self.w, self.boundaries = config, weights, boundaries
        self.states, self.margin = {}, np.inf  # margin: least gap between a chosen and a rejected expert
        self.minimax = config["model_type"] == "minimax"
        self.eps = config.get("rms_norm_eps", 1e-5 if self.minimax else 1e-6)
        self.head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        self.norm_shift = 0 if self.minimax else 1  # the Qwen norms multiply by 1 + weight

    def norm(self, x, name):
        """The RMS norm with the weight called `name`."""
        return rms(x, self.eps) * (self.norm_shift + self.w[name + ".weight"])

    def linear(self, x, name):
        """x times the transposed weight called `name`."""
        return x @ self.w[name + ".weight"].T

    def save(self, count, layer, kind, value):
        """Records one state, with the leading batch axis of the record."""
        self.states[f"state{count}.l{layer}.{kind}"] = np.array(value)[None]

    def recurrence(self, layer, q, k, v, decay, beta=None):
        """The state S [H, dk, dv] over q, k [T, H, dk], v [T, H, dv], decay and beta [T, H]; returns [T, H, dv]."""
        state, out = np.zeros(k.shape[1:] + v.shape[2:], dtype=F), np.empty_like(v)
        for t in range(len(q)):  # decay, read with k (delta rule only), write, read with q
            state, update = decay[t][:, None, None] * state, v[t]
            if beta is not None:
                update = beta[t][:, None] * (v[t] - np.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t][:, :, None] * update[:, None, :]
            out[t] = np.einsum("hkv,hk->hv", state, q[t])
            if t + 1 in self.boundaries:
                self.save(t + 1, layer, "rec", state)
        return out

    def convolve(self, x, weight, layer):
        """Depthwise causal conv plus silu of x [T, C] with weight [C, 1, K]; the last tap meets the newest input."""
        taps = weight.shape[2]
        padded = np.concatenate([np.zeros((taps, x.shape[1]), dtype=F), x])
        for n in self.boundaries:
            self.save(n, layer, "conv", padded[n:n + taps].T)
        return silu(sum(padded[1 + j:1 + j + len(x)] * weight[:, 0, j] for j in range(taps)))

    def attention(self, x, layer, name):
        """Grouped-query attention; the Qwen types norm q and k per head and gate the output."""
        c, count, dim = self.c, len(x), self.head_dim
        q = self.linear(x, name + "q_proj").reshape(count, c["num_attention_heads"], -1)
        k = self.linear(x, name + "k_proj").reshape(count, -1, dim)
        v = self.linear(x, name + "v_proj").reshape(count, -1, dim)
        gate = 1
        if not self.minimax:  # per head: query rows, then gate rows
            q, gate = q[..., :dim], sigmoid(q[..., dim:])
            q, k = self.norm(q, name + "q_norm"), self.norm(k, name + "k_norm")
        r = c.get("rope_parameters") or {}
        theta = c.get("rope_theta", r.get("rope_theta", 1e6 if self.minimax else 1e4))
        part = c.get("partial_rotary_factor", r.get("partial_rotary_factor", 1 if self.minimax else 0.25))
        q, k = rope(q, theta, int(dim * part)), rope(k, theta, int(dim * part))
        for n in self.boundaries:
            self.save(n, layer, "k", k[:n].swapaxes(0, 1))
            self.save(n, layer, "v", v[:n].swapaxes(0, 1))
        return self.linear((attend(q, k, v) * gate).reshape(count, -1), name + "o_proj")

    def delta_inputs(self, x, name, hk, hv, dk, dv):
        """Returns qkv [T, channels], z [T, Hv, dv], b and a [T, Hv] of a gated delta layer."""
        count = len(x)
        if self.c["model_type"] != "qwen3_next":
            parts = [self.linear(x, name + "in_proj_" + part) for part in ("qkv", "z", "b", "a")]
            return parts[0], parts[1].reshape(count, hv, dv), parts[2], parts[3]
        r = hv // hk  # rows lie per key head: q k v z, and b a
        rows = self.linear(x, name + "in_proj_qkvz").reshape(count, hk, -1)
        q, k, v, z = np.split(rows, np.cumsum([dk, dk, r * dv]), axis=2)
        b, a = np.split(self.linear(x, name + "in_proj_ba").reshape(count, hk, -1), 2, axis=2)
        qkv = np.concatenate([part.reshape(count, -1) for part in (q, k, v)], axis=1)
        return qkv, z.reshape(count, hv, dv), b.reshape(count, hv), a.reshape(count, hv)

    def gated_delta(self, x, layer, name):
        """The gated delta layer: conv, recurrence, norm per value head gated by silu(z)."""
        c, count = self.c, len(x)
        hk, hv = c["linear_num_key_heads"], c["linear_num_value_heads"]
        dk, dv = c["linear_key_head_dim"], c["linear_value_head_dim"]
        qkv, z, b, a = self.delta_inputs(x, name, hk, hv, dk, dv)
        q, k, v = np.split(self.convolve(qkv, self.w[name + "conv1d.weight"], layer), [hk * dk, 2 * hk * dk], axis=1)
        q, k = (np.repeat(length_norm(p.reshape(count, hk, dk)), hv // hk, axis=1) for p in (q, k))
        q, v, beta = q / np.sqrt(F(dk)), v.reshape(count, hv, dv), sigmoid(b)
        decay = np.exp(-np.exp(self.w[name + "A_log"]) * softplus(a + self.w[name + "dt_bias"]))
        out = self.recurrence(layer, q, k, v, decay, beta)
        out = rms(out, self.eps) * self.w[name + "norm.weight"] * silu(z)
        return self.linear(out.reshape(count, -1), name + "out_proj")

    def lightning(self, x, layer, name):
        """Linear attention with one constant decay per head and layer."""
        count, heads, dim = len(x), self.c["num_attention_heads"], self.head_dim
        rows = silu(self.linear(x, name + "qkv_proj")).reshape(count, heads, 3 * dim)
        q, k, v = np.split(rows, 3, axis=2)
        depth = 1 - layer / (self.c["num_hidden_layers"] - 1 + 1e-5) + 1e-5
        decay = np.exp(-(F(2) ** (-8 * np.arange(1, heads + 1, dtype=F) / heads)) * depth)
        out = self.recurrence(layer, q, k, v, np.tile(decay, (count, 1))).reshape(count, -1)
        out = rms(out, 1e-6) * self.w[name + "norm.weight"] * sigmoid(self.linear(x, name + "output_gate"))
        return self.linear(out, name + "out_proj")

    def expert(self, e, name):
        """Returns the gate, up and down weights of one expert, as stored by the model type."""
        if name + "experts.gate_up_proj" in self.w:
            gate, up = np.split(self.w[name + "experts.gate_up_proj"][e], 2)
            return gate, up, self.w[name + "experts.down_proj"][e]
        parts = ("w1", "w3", "w2") if self.minimax else ("gate_proj", "up_proj", "down_proj")
        return tuple(self.w[f"{name}experts.{e}.{part}.weight"] for part in parts)

    def experts(self, x, name):
        """Softmax over all experts, the best few renormalised, plus the gated shared expert where there is one."""
        chances = softmax(self.linear(x, name + "gate"))
        top, order = self.c["num_experts_per_tok"], np.argsort(-chances, axis=1, kind="stable")
        ranked = np.take_along_axis(chances, order, axis=1)
        if top < ranked.shape[1]:
            self.margin = min(self.margin, np.min(ranked[:, top - 1] - ranked[:, top]))
        weights = np.zeros_like(chances)
        np.put_along_axis(weights, order[:, :top], ranked[:, :top] / ranked[:, :top].sum(1, keepdims=True), axis=1)
        out = sum(weights[:, e:e + 1] * swiglu(x, *self.expert(e, name)) for e in range(weights.shape[1]))
        if name + "shared_expert_gate.weight" in self.w:
            out = out + sigmoid(self.linear(x, name + "shared_expert_gate")) * self.dense(x, name + "shared_expert.")
        return out

    def dense(self, x, name):
        """A dense feed-forward block."""
        return swiglu(x, *(self.w[f"{name}{part}_proj.weight"] for part in ("gate", "up", "down")))

    def layer(self, h, i):
        """One block; minimax carries the normed input on as the residual, with factors per block kind."""
        c, base = self.c, f"model.layers.{i}."
        full = base + "self_attn.q_proj.weight" in self.w  # softmax attention, else a recurrent layer
        n = self.norm(h, base + "input_layernorm")
        if self.minimax:
            kind = "full_attn" if full else "linear_attn"
            y = (self.attention if full else self.lightning)(n, i, base + "self_attn.")
            h = c.get(kind + "_alpha_factor", 1) * n + c.get(kind + "_beta_factor", 1) * y
            n = self.norm(h, base + "post_attention_layernorm")
            y = self.experts(n, base + "block_sparse_moe.")
            return c.get("mlp_alpha_factor", 1) * n + c.get("mlp_beta_factor", 1) * y
        h = h + (self.attention(n, i, base + "self_attn.") if full else self.gated_delta(n, i, base + "linear_attn."))
        n, moe = self.norm(h, base + "post_attention_layernorm"), base + "mlp.gate.weight" in self.w
        return h + (self.experts if moe else self.dense)(n, base + "mlp.")

    def run(self, tokens):
        """Returns the logits [1, T, V] of `tokens` and fills self.states."""
        h = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.c["num_hidden_layers"]):
            h = self.layer(h, i)
        head = "model.embed_tokens" if self.c.get("tie_word_embeddings", False) else "lm_head"
        return self.linear(self.norm(h, "model.norm"), head)[None]


def main():
    """Evaluates one directory, prints the comparison, writes --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("dir")
    parser.add_argument("--out")
    parser.add_argument("--check")
    arguments = parser.parse_args()
    with open(arguments.dir + "/config.json", encoding="utf-8") as file:
        config = json.load(file)
    if not re.fullmatch(r"qwen3_next|qwen3_5(_moe)?(_text)?|minimax", config["model_type"]):
        parser.error("model type not covered: " + config["model_type"])
    golden = read_safetensors(arguments.dir + "/golden.safetensors")
    boundaries = {int(m.group(1)) for m in map(re.compile(r"state(\d+)\.").match, golden) if m}
    model = Model(config, read_safetensors(arguments.dir + "/model.safetensors"), boundaries)
    values = {"logits": model.run(golden["input_ids"][0]), **model.states}
    names = [name for name in golden if name != "input_ids"]
    if set(names) != set(values) or any(golden[n].shape != values[n].shape for n in names):
        parser.error("the record's names or shapes are not those of this model")
    for kind in KINDS:
        far, large, where = 0.0, 0.0, None
        for name in (n for n in names if n.rsplit(".", 1)[-1] == kind):
            first = 1 if kind == "conv" else 0  # the oldest conv column is never needed: not compared
            difference = np.max(np.abs(golden[name] - values[name])[..., first:])
            where = name if where is None or not difference <= far else where
            far, large = max(far, difference), max(large, np.max(np.abs(values[name][..., first:])))
        if where:
            print(f"{kind:6s}  |recorded - float64| {far:.3e}  |float64| {large:.4e}  worst in {where}")
    if model.margin < np.inf:
        print(f"router  least gap between the last chosen and the first rejected expert {model.margin:.3e}")
    if arguments.out:
        write_safetensors(arguments.out, {name: values[name] for name in names})
    if arguments.check:
        written = read_safetensors(arguments.check)
        if set(written) != set(names) or any(np.max(np.abs(written[n] - values[n])) > 1e-9 for n in names):
            parser.error(arguments.check + " does not hold these values")


if __name__ == "__main__":
    main()
