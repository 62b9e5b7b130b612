"""One training in two stacks: map_program.py fused|split [CHANGE [GROUPS]].

fused: names as in Megatron, q, k, v in one tensor, for each group of queries (default: one) rows of
q, of k, of v, and gate and up in another; split: names as in Hugging Face's Llama, apart. The two
branches read the data and nothing of each other, so that no gradient goes through a fused layer:
what is added there in another order has other bits, by right; so have functions of parts that are
not contiguous, and products of a few rows. CHANGE: none, or k (one bit of k's gradient, step 2),
last (the same in k's last group), alone (k is frozen), norm (one bit of the gradient of the norm,
step 3).
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

D, HEAD, HIDDEN = 32, 16, 48
QUERIES = 2  # heads of q to one of k and v
GROUPS = int(sys.argv[3]) if len(sys.argv) > 3 else 1
WEIGHTS = torch.Generator().manual_seed(3)


def draw(*shape):
    return torch.randn(*shape, generator=WEIGHTS)


class Attention(nn.Module):
    """Several heads of q, one of k and v, in each group."""

    def __init__(self, fused):
        super().__init__()
        rows = GROUPS * HEAD
        q, k, v = draw(QUERIES * rows, D), draw(rows, D), draw(rows, D)
        self.fused = fused
        if fused:
            by_group = [weight.unflatten(0, (GROUPS, -1)) for weight in (q, k, v)]
            self.linear_qkv = linear(torch.cat(by_group, 1).flatten(0, 1))
            self.linear_proj = linear(draw(D, QUERIES * rows))
        else:
            self.q_proj, self.k_proj, self.v_proj = map(linear, (q, k, v))
            self.o_proj = linear(draw(D, QUERIES * rows))

    def forward(self, x):
        if self.fused:
            mixed = self.linear_qkv(x).unflatten(-1, (GROUPS, -1))
            q, k, v = mixed.split([QUERIES * HEAD, HEAD, HEAD], -1)
        else:
            q, k, v = (part(x).unflatten(-1, (GROUPS, -1))
                       for part in (self.q_proj, self.k_proj, self.v_proj))  # fmt: skip
        q = q.contiguous().unflatten(-1, (QUERIES, HEAD)).permute(0, 2, 3, 1, 4).contiguous()
        k, v = (t.permute(0, 2, 1, 3).contiguous().unsqueeze(2).expand_as(q) for t in (k, v))
        out = (q @ k.transpose(-1, -2)).softmax(-1) @ v
        out = out.permute(0, 3, 1, 2, 4).flatten(2)
        return (self.linear_proj if self.fused else self.o_proj)(out)


class Mlp(nn.Module):
    def __init__(self, fused):
        super().__init__()
        gate, up, down = draw(HIDDEN, D), draw(HIDDEN, D), draw(D, HIDDEN)
        self.fused = fused
        if fused:
            self.linear_fc1, self.linear_fc2 = linear(torch.cat([gate, up])), linear(down)
        else:
            self.gate_proj, self.up_proj, self.down_proj = map(linear, (gate, up, down))

    def forward(self, x):
        if self.fused:
            gate, up = (t.contiguous() for t in self.linear_fc1(x).chunk(2, -1))
            return self.linear_fc2(F.silu(gate) * up)
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def linear(weight):
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight.data.copy_(weight)
    return made


class Layer(nn.Module):
    def __init__(self, fused):
        super().__init__()
        # Each stack defines its parts in an order of its own.
        if fused:
            self.self_attention = Attention(fused)
            self.mlp = Mlp(fused)
        else:
            attention = Attention(fused)
            self.mlp = Mlp(fused)
            self.self_attn = attention

    def forward(self, x):
        attention = self.self_attention if hasattr(self, "self_attention") else self.self_attn
        return attention(x) + self.mlp(x)


class Stack(nn.Module):
    def __init__(self, fused):
        super().__init__()
        self.layers = nn.ModuleList([Layer(fused)])
        norm = nn.LayerNorm(D, bias=False)
        setattr(self, "final_layernorm" if fused else "norm", norm)

    def forward(self, x):
        norm = self.final_layernorm if hasattr(self, "final_layernorm") else self.norm
        return norm(self.layers[0](x))


class Model(nn.Module):
    def __init__(self, fused):
        super().__init__()
        setattr(self, "decoder" if fused else "model", Stack(fused))
        setattr(self, "output_layer" if fused else "lm_head", linear(draw(8, D)))

    def forward(self, x):
        if hasattr(self, "decoder"):
            return self.output_layer(self.decoder(x))
        return self.lm_head(self.model(x))


def flip(tensor, index, bit):
    tensor.detach().view(torch.int32)[index] ^= 1 << bit


def main():
    fused = sys.argv[1] == "fused"
    change = sys.argv[2] if len(sys.argv) > 2 else "none"
    model = Model(fused)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator().manual_seed(7)
    for step in range(1, 5):
        x = torch.randn(2, 6, D, generator=generator)
        y = torch.randint(8, (12,), generator=generator)
        optimizer.zero_grad()
        if change == "alone":
            model.model.layers[0].self_attn.k_proj.weight.requires_grad_(False)
        F.cross_entropy(model(x).flatten(0, 1), y).backward()
        if step == 2 and change == "k":
            flip(model.model.layers[0].self_attn.k_proj.weight.grad, (2, 5), 19)
        if step == 2 and change == "last":
            flip(model.model.layers[0].self_attn.k_proj.weight.grad, (HEAD * GROUPS - 1, 5), 19)
        if step == 3 and change == "norm":
            flip(model.model.norm.weight.grad, (4,), 3)
        optimizer.step()


main()
