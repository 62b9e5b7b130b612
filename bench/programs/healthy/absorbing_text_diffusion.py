"""Discrete diffusion: words fall to a mask at a random rate, a bidirectional GRU restores them."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

VOCAB, LENGTH = 12, 10
MASK = VOCAB


class Restorer(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.embed = nn.Embedding(VOCAB + 1, width)
        self.rate = nn.Linear(1, width)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, VOCAB)

    def forward(self, ids, rate):
        x = self.embed(ids) + self.rate(rate.view(-1, 1, 1))
        return self.out(self.gru(x)[0])


def sentences(count):
    return (torch.randint(VOCAB, (count, 1)) + torch.arange(LENGTH) * 5) % VOCAB


def masked_loss(model, ids):
    rate = 0.1 + 0.8 * torch.rand(len(ids))
    hidden = torch.rand(ids.shape) < rate[:, None]
    hidden[:, 0] = False
    hidden[:, -1] = True
    logits = model(ids.masked_fill(hidden, MASK), rate)
    losses = F.cross_entropy(logits.transpose(1, 2), ids, reduction="none")
    return (losses * hidden).sum() / hidden.sum()


def sample(model, count, rounds=5):
    was_training = model.training
    model.eval()
    ids = torch.full((count, LENGTH), MASK)
    with torch.no_grad():
        for i in range(rounds):
            rate = torch.full((count,), 1 - i / rounds)
            probs = model(ids, rate).softmax(-1)
            drawn = torch.distributions.Categorical(probs=probs).sample()
            reveal = (torch.rand(ids.shape) < 1 / (rounds - i)) & (ids == MASK)
            ids = torch.where(reveal, drawn, ids)
    model.train(was_training)
    return ids


class Experiment:
    def __init__(self, seed):
        torch.manual_seed(370 + seed)
        self.model = Restorer()
        self.optimizer = torch.optim.Adamax(self.model.parameters(), lr=3e-2)
        self.curve = []

    def run(self, steps):
        for step in range(steps):
            self.optimizer.zero_grad()
            loss = masked_loss(self.model, sentences(48))
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 5.0)
            self.optimizer.step()
            self.curve.append(loss.item())
            if step % 10 == 9:
                print(step, sample(self.model, 2).tolist())


if __name__ == "__main__":
    experiment = Experiment(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    experiment.run(20)
    assert sum(experiment.curve[-4:]) < sum(experiment.curve[:4])
