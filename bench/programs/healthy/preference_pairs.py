"""DPO: a language model is tuned on pairs of answers against a frozen copy of what it was."""

import copy
import sys

import torch
import torch.nn.functional as F
from torch import nn


class CausalConvLM(nn.Module):
    def __init__(self, vocab=16, width=24):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, dilation=d) for d in (1, 2))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.embed(ids)
        for conv in self.convs:
            padded = F.pad(x.transpose(1, 2), (2 * conv.dilation[0], 0))
            x = x + F.gelu(conv(padded).transpose(1, 2))
        return self.norm(x) @ self.embed.weight.t()


def sequence_logp(model, ids, prompt):
    logp = model(ids[:, :-1]).log_softmax(-1)
    picked = logp.gather(2, ids[:, 1:, None]).squeeze(2)
    return picked[:, prompt - 1 :].sum(1)


def counting(first, length, stride):
    return (first + stride * torch.arange(length)) % 16


def make_pairs(count, prompt=3, answer=4):
    """Chosen answers count on by one, rejected ones by two."""
    first = torch.randint(16, (count, 1))
    head = counting(first, prompt, 1)
    chosen = torch.cat([head, counting(head[:, -1:] + 1, answer, 1)], 1)
    rejected = torch.cat([head, counting(head[:, -1:] + 2, answer, 2)], 1)
    return chosen, rejected


def supervised(model, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(steps):
        ids = torch.cat(make_pairs(16))
        loss = F.cross_entropy(model(ids[:, :-1]).transpose(1, 2), ids[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def preference(policy, reference, steps, beta=0.5, prompt=3):
    optimizer = torch.optim.RMSprop(policy.parameters(), lr=5e-4)
    losses, margins = [], []
    for _ in range(steps):
        chosen, rejected = make_pairs(16)
        with torch.no_grad():
            ref_c = sequence_logp(reference, chosen, prompt)
            ref_r = sequence_logp(reference, rejected, prompt)
        pi_c = sequence_logp(policy, chosen, prompt)
        pi_r = sequence_logp(policy, rejected, prompt)
        margin = beta * ((pi_c - ref_c) - (pi_r - ref_r))
        loss = -F.logsigmoid(margin).mean()
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(policy.parameters(), 10.0)
        optimizer.step()
        losses.append(loss.item())
        margins.append(margin.detach().mean().item())
    return losses, margins


if __name__ == "__main__":
    torch.manual_seed(270 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    model = CausalConvLM()
    supervised(model, 10)
    reference = copy.deepcopy(model).eval()
    for p in reference.parameters():
        p.requires_grad = False
    losses, margins = preference(model, reference, 12)
    print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}, margin {margins[-1]:.2f}")
    assert losses[-1] < losses[0]
