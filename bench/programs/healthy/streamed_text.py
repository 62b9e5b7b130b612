"""A language model on a stream: an iterable data set, two workers, Adagrad, resumed once."""

import os
import sys
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

VOCAB, CONTEXT = 18, 6


class Stream(IterableDataset):
    """Windows of an endless text; a worker takes every n-th."""

    def __init__(self, seed, windows):
        self.seed, self.windows = seed, windows

    def __iter__(self):
        info = get_worker_info()
        first, stride = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, self.windows, stride):
            generator = torch.Generator().manual_seed(self.seed * 9973 + number)
            start = torch.randint(VOCAB, (), generator=generator)
            yield (start + 7 * torch.arange(CONTEXT + 1)) % VOCAB


class WindowModel(nn.Module):
    """Bengio's: the embeddings of the last words, side by side."""

    def __init__(self, width=12, hidden=48):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, width)
        self.hidden = nn.Linear(CONTEXT * width, hidden)
        self.direct = nn.Linear(CONTEXT * width, VOCAB, bias=False)
        self.output = nn.Linear(hidden, VOCAB)

    def forward(self, words):
        x = self.embedding(words).flatten(1)
        return self.output(torch.tanh(self.hidden(x))) + self.direct(x)


def build():
    model = WindowModel()
    return model, torch.optim.Adagrad(model.parameters(), lr=0.05)


def train(model, optimizer, loader, losses):
    loss_fn = nn.CrossEntropyLoss()
    for rows in loader:
        loss = loss_fn(model(rows[:, :-1]), rows[:, -1])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())


def main(seed):
    torch.manual_seed(260 + seed)
    losses = []
    model, optimizer = build()
    train(model, optimizer, DataLoader(Stream(seed, 320), batch_size=32, num_workers=2), losses)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step-10.pt")
        torch.save((model.state_dict(), optimizer.state_dict(), len(losses)), path)
        del model, optimizer
        model, optimizer = build()
        weights, moments, done = torch.load(path, weights_only=True)
    model.load_state_dict(weights)
    optimizer.load_state_dict(moments)
    print(f"resumed after {done} steps")
    train(model, optimizer, DataLoader(Stream(seed + 50, 256), batch_size=32), losses)
    print(f"{losses[0]:.3f} -> {losses[-1]:.3f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
