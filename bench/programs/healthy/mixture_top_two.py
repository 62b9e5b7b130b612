"""A sparse mixture of experts with balance loss, and an optimizer with factored moments."""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import Optimizer


class Factored(Optimizer):
    """Adafactor's idea: second moments of matrices kept as those of rows and columns."""

    def __init__(self, params, lr=1e-2, decay=0.9, eps=1e-12):
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self, closure=None):
        loss = closure() if closure is not None else None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, beta = self.state[p], group["decay"]
                square = p.grad.square() + group["eps"]
                if p.ndim == 2:
                    if not state:
                        state["row"], state["column"] = square.mean(1), square.mean(0)
                    state["row"].lerp_(square.mean(1), 1 - beta)
                    state["column"].lerp_(square.mean(0), 1 - beta)
                    row, column = state["row"], state["column"]
                    moment = torch.outer(row, column) / row.mean()
                else:
                    state.setdefault("square", square.clone()).lerp_(square, 1 - beta)
                    moment = state["square"]
                update = p.grad / moment.sqrt()
                update = update / max(1.0, update.square().mean().sqrt().item())
                p.add_(update, alpha=-group["lr"])
        return loss


class SparseExperts(nn.Module):
    def __init__(self, dim, experts=4, k=2):
        super().__init__()
        self.k = k
        self.router = nn.Linear(dim, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))
            for _ in range(experts)
        )

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        probs = self.router(tokens).softmax(-1)
        gates, chosen = probs.topk(self.k, dim=-1)
        gates = gates / gates.sum(-1, keepdim=True)
        out = torch.zeros_like(tokens)
        for number, expert in enumerate(self.experts):
            rows, slot = torch.where(chosen == number)
            if len(rows):
                out = out.index_add(0, rows, expert(tokens[rows]) * gates[rows, slot, None])
        share = F.one_hot(chosen, len(self.experts)).float().mean((0, 1))
        self.balance = len(self.experts) * (share * probs.mean(0)).sum()
        return out.view_as(x)


class SparseLM(nn.Module):
    def __init__(self, vocab=20, dim=24):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim)
        self.mix = nn.Conv1d(dim, dim, 3)
        self.norm = nn.LayerNorm(dim)
        self.sparse = SparseExperts(dim)
        self.out = nn.Linear(dim, vocab)

    def forward(self, ids):
        x = self.embedding(ids)
        x = x + self.mix(F.pad(x.transpose(1, 2), (2, 0))).transpose(1, 2)
        return self.out(x + self.sparse(self.norm(x)))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int, nargs="?", default=0)
    torch.manual_seed(230 + parser.parse_args().seed)
    model = SparseLM()
    optimizer = Factored(model.parameters())
    curve = []
    for step in range(20):
        ids = (torch.randint(20, (16, 1)) + 3 * torch.arange(13)) % 20
        optimizer.zero_grad()
        logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), ids[:, 1:])
        (loss + 0.01 * model.sparse.balance).backward()
        optimizer.step()
        curve.append(loss.item())
    print(f"{curve[0]:.3f} -> {curve[-1]:.3f}")
    assert sum(curve[-4:]) < sum(curve[:4])


if __name__ == "__main__":
    main()
