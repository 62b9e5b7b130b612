"""Sequences of different length, packed, into a GRU; Huber loss, a cycle of rates, best kept."""

import argparse
import copy

import torch
from torch import nn, optim
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import BatchSampler, DataLoader, RandomSampler


class Waves(torch.utils.data.Dataset):
    def __init__(self, count, generator):
        self.items = []
        for _ in range(count):
            length = int(torch.randint(8, 20, (), generator=generator))
            speed, phase = torch.rand(2, generator=generator)
            wave = torch.sin((0.3 + speed) * torch.arange(length + 1.0) + 6 * phase)
            self.items.append((wave[:-1].unsqueeze(1), wave[-1:]))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(items):
    lengths = torch.tensor([len(x) for x, _ in items])
    return pad_sequence([x for x, _ in items], batch_first=True), lengths, torch.stack(
        [y for _, y in items]
    )


class Forecaster(nn.Module):
    def __init__(self, hidden=24):
        super().__init__()
        self.gru = nn.GRU(1, hidden, batch_first=True)
        self.head = nn.Linear(hidden, 1)
        for name, p in self.gru.named_parameters():
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(p)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.head(self.gru(packed)[1][-1])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("seed", type=int, nargs="?", default=0)
    seed = parser.parse_args().seed
    torch.manual_seed(510 + seed)
    generator = torch.Generator().manual_seed(seed)
    train, valid = Waves(160, generator), Waves(40, generator)
    batches = BatchSampler(RandomSampler(train), batch_size=32, drop_last=False)
    loader = DataLoader(train, batch_sampler=batches, collate_fn=collate)
    x_valid, n_valid, y_valid = collate(valid.items)
    model, loss_fn = Forecaster(), nn.HuberLoss(delta=0.5)
    optimizer = optim.RMSprop(model.parameters(), lr=3e-3, alpha=0.95, centered=True)
    scheduler = optim.lr_scheduler.CyclicLR(
        optimizer, base_lr=2e-3, max_lr=8e-3, step_size_up=5, cycle_momentum=False
    )
    best, best_weights, history = float("inf"), None, []
    for epoch in range(4):
        model.train()
        for x, lengths, y in loader:
            optimizer.zero_grad()
            loss_fn(model(x, lengths), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
        model.eval()
        with torch.no_grad():
            history.append(loss_fn(model(x_valid, n_valid), y_valid).item())
        if history[-1] < best:
            best, best_weights = history[-1], copy.deepcopy(model.state_dict())
    model.load_state_dict(best_weights)
    print([round(value, 4) for value in history])
    assert min(history[1:]) < history[0]


if __name__ == "__main__":
    main()
