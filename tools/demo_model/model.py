"""A dense granitemoehybrid model (Mamba-2 and attention layers, shared MLP) in plain PyTorch.

Parameter names are those of published checkpoints, so `state_dict()` is the exported file. The
Mamba-2 recurrence runs in its chunked matmul form; a forward pass can start from a `State` and
return the next one, which is how `evaluate.py` decodes.
"""

import json
import math
from dataclasses import dataclass, field

import torch
import torch.nn.functional as F
from torch import nn

CHUNK = 64


def load_config(path):
    """Reads a config.json into attribute form."""
    with open(path, encoding="utf-8") as file:
        return Config(json.load(file))


class Config:
    """The keys of config.json as attributes."""

    def __init__(self, values):
        self.__dict__.update(values)
        self.head_dim = self.hidden_size // self.num_attention_heads
        self.inner_size = self.mamba_n_heads * self.mamba_d_head
        self.conv_size = self.inner_size + 2 * self.mamba_d_state
        self.mamba_d_conv = values.get("mamba_d_conv", 4)
        if values.get("mamba_n_groups", 1) != 1 or values["position_embedding_type"] != "nope":
            raise ValueError("only mamba_n_groups 1 and position_embedding_type nope are supported")


@dataclass
class State:
    """Layers: (conv inputs [B, K-1, C], recurrent [B, H, P, N]) or (keys, values
    [B, T, Hkv, D])."""

    layers: list = field(default_factory=list)


class RmsNorm(nn.Module):
    """w * x / sqrt(mean(x^2) + eps), computed in fp32."""

    def __init__(self, size, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x):
        x = x.float()
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class DepthwiseConv(nn.Module):
    """Causal depthwise convolution as a sum of shifts; the last tap meets the newest input."""

    def __init__(self, channels, taps):
        super().__init__()
        self.weight = nn.Parameter((torch.rand(channels, 1, taps) * 2 - 1) / math.sqrt(taps))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(self, padded, length):
        taps = self.weight.shape[-1]
        out = self.bias
        for j in range(taps):
            out = out + padded[:, j : j + length] * self.weight[:, 0, j]
        return out


def scan_chunks(x, dt, log_decay, B, C, initial):
    """Mamba-2 recurrence S = exp(log_decay) S + dt x (outer) B; y = S C, over whole chunks.

    x [b, T, H, P], dt and log_decay [b, T, H] (log_decay <= 0), B and C [b, T, N], initial
    [b, H, P, N] or None; T a multiple of the chunk. Returns y [b, T, H, P] and the last state.
    Exponentials are only taken of differences of cumulative sums that are <= 0.
    """
    b, T, H, P = x.shape
    N, n, Q = B.shape[-1], T // CHUNK, CHUNK
    xd = (x * dt[..., None]).view(b, n, Q, H, P)
    B, C = B.view(b, n, Q, N), C.view(b, n, Q, N)
    cum = log_decay.float().view(b, n, Q, H).cumsum(2)
    cum_t = cum.permute(0, 1, 3, 2)
    lower = torch.ones(Q, Q, dtype=torch.bool, device=x.device).tril()
    gap = (cum_t[..., :, None] - cum_t[..., None, :]).masked_fill(~lower, -torch.inf)
    scores = C @ B.transpose(-1, -2)
    mix = (scores[:, :, None] * gap.exp()).to(x.dtype)
    y = (mix @ xd.transpose(2, 3)).transpose(2, 3)

    to_end = (cum[:, :, -1:] - cum).exp().to(x.dtype)
    added = (xd * to_end[..., None]).reshape(b, n, Q, H * P).transpose(-1, -2) @ B
    added = added.view(b, n, H, P * N).transpose(1, 2).float()
    states = carry_states(added, cum[:, :, -1], initial)
    before = states[:, :, :-1].transpose(1, 2).reshape(b, n, H * P, N).to(x.dtype)
    carried = (C @ before.transpose(-1, -2)).view(b, n, Q, H, P)
    y = y + carried * cum.exp().to(x.dtype)[..., None]
    return y.reshape(b, T, H, P), states[:, :, -1].view(b, H, P, N)


def scan_token(x, dt, log_decay, B, C, state):
    """The recurrence itself, for one token; shapes as in scan_chunks with T 1."""
    added = (x * dt[..., None])[:, 0, :, :, None] * B[:, 0, None, None, :]
    state = log_decay[:, 0].exp()[..., None, None] * state + added
    return (state * C[:, 0, None, None, :]).sum(-1)[:, None], state


def carry_states(added, chunk_decay, initial):
    """States at all chunk edges [b, H, n+1, P*N] from each chunk's own part [b, H, n, P*N]."""
    b, H, n, width = added.shape
    first = added.new_zeros(b, H, 1, width) if initial is None else initial.view(b, H, 1, width)
    edges = F.pad(chunk_decay.transpose(1, 2).cumsum(-1), (1, 0))
    lower = torch.ones(n + 1, n + 1, dtype=torch.bool, device=added.device).tril()
    weights = (edges[..., :, None] - edges[..., None, :]).masked_fill(~lower, -torch.inf).exp()
    return weights @ torch.cat([first, added], 2)


class Mamba2(nn.Module):
    """Mamba-2 mixer with one group; the gate is applied before its norm."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        inner, heads = config.inner_size, config.mamba_n_heads
        self.in_proj = nn.Linear(config.hidden_size, inner + config.conv_size + heads, bias=False)
        self.conv1d = DepthwiseConv(config.conv_size, config.mamba_d_conv)
        dt = torch.exp(torch.linspace(math.log(0.001), math.log(0.1), heads))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.A_log = nn.Parameter(torch.log(torch.linspace(1, 16, heads)))
        self.D = nn.Parameter(torch.ones(heads))
        self.norm = RmsNorm(inner, config.rms_norm_eps)
        self.out_proj = nn.Linear(inner, config.hidden_size, bias=False)

    def forward(self, u, state=None):
        config = self.config
        b, T, _ = u.shape
        inner, heads, n = config.inner_size, config.mamba_n_heads, config.mamba_d_state
        z, xbc, dt = self.in_proj(u).split([inner, config.conv_size, heads], dim=-1)
        conv_state, rec_state = state if state else (None, None)
        if conv_state is None:
            padded = F.pad(xbc, (0, 0, config.mamba_d_conv - 1, 0))
        else:
            padded = torch.cat([conv_state.to(xbc.dtype), xbc], 1)
        next_conv = padded[:, padded.shape[1] - (config.mamba_d_conv - 1) :]
        x, B, C = F.silu(self.conv1d(padded, T)).to(u.dtype).split([inner, n, n], dim=-1)
        x = x.reshape(b, T, heads, config.mamba_d_head)
        dt = F.softplus(dt.float() + self.dt_bias)
        log_decay = -torch.exp(self.A_log) * dt
        y, next_rec = self.scan(x, dt.to(u.dtype), log_decay, B, C, rec_state)
        y = (y + x * self.D.to(u.dtype)[:, None]).reshape(b, T, inner)
        y = self.norm(y.float() * F.silu(z.float())).to(u.dtype)
        return self.out_proj(y), (next_conv, next_rec)

    def scan(self, x, dt, log_decay, B, C, initial):
        """One token by scan_token; more, padded to whole chunks: dt 0 neither decays nor writes."""
        T = x.shape[1]
        if T == 1 and initial is not None:
            return scan_token(x, dt, log_decay, B, C, initial)
        pad = -T % CHUNK
        if pad:
            x = F.pad(x, (0, 0, 0, 0, 0, pad))
            dt, log_decay, B, C = (F.pad(t, (0, 0, 0, pad)) for t in (dt, log_decay, B, C))
        y, last = scan_chunks(x, dt, log_decay, B, C, initial)
        return y[:, :T], last


class Attention(nn.Module):
    """Grouped-query causal attention without position embedding."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        h, kv = config.hidden_size, config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(h, h, bias=False)
        self.k_proj = nn.Linear(h, kv, bias=False)
        self.v_proj = nn.Linear(h, kv, bias=False)
        self.o_proj = nn.Linear(h, h, bias=False)

    def forward(self, u, state=None, windows=None):
        config = self.config
        b, T, h = u.shape
        heads, kv_heads, D = config.num_attention_heads, config.num_key_value_heads, config.head_dim
        q = self.q_proj(u).view(b, T, heads, D).transpose(1, 2)
        k = self.k_proj(u).view(b, T, kv_heads, D)
        v = self.v_proj(u).view(b, T, kv_heads, D)
        if state:
            k, v = torch.cat([state[0], k], 1), torch.cat([state[1], v], 1)
        keys, values = (t.transpose(1, 2).repeat_interleave(heads // kv_heads, 1) for t in (k, v))
        scores = (q * config.attention_multiplier) @ keys.transpose(-1, -2)
        S = keys.shape[2]
        seen = torch.ones(T, S, dtype=torch.bool, device=u.device).tril(S - T)
        if windows is not None:
            back = torch.arange(S - T, S)[:, None] - torch.arange(S)
            seen = (seen & (back < windows[:, None, None]))[:, None]
        weights = scores.float().masked_fill(~seen, -torch.inf).softmax(-1).to(u.dtype)
        out = (weights @ values).transpose(1, 2).reshape(b, T, h)
        return self.o_proj(out), (k, v)


class SharedMlp(nn.Module):
    """SwiGLU; gate and up projection stacked in one matrix."""

    def __init__(self, config):
        super().__init__()
        size = config.shared_intermediate_size
        self.input_linear = nn.Linear(config.hidden_size, 2 * size, bias=False)
        self.output_linear = nn.Linear(size, config.hidden_size, bias=False)

    def forward(self, x):
        gate, up = self.input_linear(x).chunk(2, dim=-1)
        return self.output_linear(F.silu(gate) * up)


class Layer(nn.Module):
    """Mixer half, then MLP half; both scaled by residual_multiplier."""

    def __init__(self, config, kind):
        super().__init__()
        self.config = config
        self.input_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RmsNorm(config.hidden_size, config.rms_norm_eps)
        self.mamba = Mamba2(config) if kind == "mamba" else None
        self.self_attn = Attention(config) if kind == "attention" else None
        self.shared_mlp = SharedMlp(config)

    def forward(self, x, state, dtype, windows=None):
        u = self.input_layernorm(x).to(dtype)
        if self.mamba is not None:
            y, next_state = self.mamba(u, state)
        else:
            y, next_state = self.self_attn(u, state, windows)
        x = x + self.config.residual_multiplier * y.float()
        y = self.feed_forward(self.post_attention_layernorm(x).to(dtype))
        return x + self.config.residual_multiplier * y.float(), next_state

    def feed_forward(self, x):
        return self.shared_mlp(x)


class Backbone(nn.Module):
    """Holds what published names put under `model.`."""

    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(Layer(config, kind) for kind in config.layer_types)
        self.norm = RmsNorm(config.hidden_size, config.rms_norm_eps)


class HybridModel(nn.Module):
    """ids [b, T] -> logits [b, T, V]. Matrix products run in `dtype`, the rest in fp32."""

    def __init__(self, config, dtype=torch.float32):
        super().__init__()
        self.config, self.dtype = config, dtype
        self.model = Backbone(config)
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.normal_(self.model.embed_tokens.weight, std=1 / self.config.embedding_multiplier)
        for name, module in self.named_modules():
            if isinstance(module, nn.Linear):
                closing = name.endswith(("out_proj", "o_proj", "output_linear"))
                nn.init.normal_(
                    module.weight, std=(0.5 if closing else 1) / math.sqrt(module.in_features)
                )

        self.start_matching()

    def start_matching(self):
        """Lets like meet like from the start: query rows resemble the key rows they meet, C rows
        the B rows. Recall is learnt from fewer tokens this way (Trockman et al., "Mimetic
        Initialization Helps State Space Models Learn to Recall", 2024)."""
        for layer in self.model.layers:
            if layer.self_attn is not None:
                keys = layer.self_attn.k_proj.weight.data.view(
                    self.config.num_key_value_heads, 1, -1
                )
                queries = layer.self_attn.q_proj.weight.data.view(len(keys), -1, keys.shape[-1])
                queries.mul_(0.6).add_(keys, alpha=0.8)
            else:
                n, rows = self.config.mamba_d_state, layer.mamba.in_proj.weight.data
                first = 2 * self.config.inner_size
                rows[first + n : first + 2 * n].mul_(0.6).add_(rows[first : first + n], alpha=0.8)

    def forward(self, ids, windows=None):
        """`windows` [b]: how many of the newest tokens attention sees in each row (None: all)."""
        return self.step(ids, None, windows)[0]

    def step(self, ids, state, windows=None):
        """As forward, from a State (None at the start); also returns the next State."""
        x = self.model.embed_tokens(ids).float() * self.config.embedding_multiplier
        next_state = State()
        for i, layer in enumerate(self.model.layers):
            x, after = layer(x, state.layers[i] if state else None, self.dtype, windows)
            next_state.layers.append(after)
        x = (self.model.norm(x) / self.config.logits_scaling).to(self.dtype)
        return F.linear(x, self.model.embed_tokens.weight.to(self.dtype)).float(), next_state
