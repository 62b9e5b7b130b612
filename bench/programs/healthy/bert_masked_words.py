"""A BERT: masked words with ignore_index, padded sentences, linear warm-up and decay, dropout."""

import random
import sys

import torch
from torch import nn
from torch.optim.lr_scheduler import LinearLR, SequentialLR
from torch.utils.data import DataLoader, Dataset

PAD, MASK, WORDS, LENGTH = 0, 1, 20, 12


class Sentences(Dataset):
    """Ascending runs of words, of different length, padded."""

    def __init__(self, count, seed):
        draw = random.Random(seed)
        self.rows = []
        for _ in range(count):
            start, length = draw.randrange(2, WORDS), draw.randrange(6, LENGTH + 1)
            words = [2 + (start + i) % (WORDS - 2) for i in range(length)]
            self.rows.append(torch.tensor(words + [PAD] * (LENGTH - length)))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


def mask_words(rows):
    chosen = (torch.rand(rows.shape) < 0.25) & (rows != PAD)
    chosen[:, 0] = True
    labels = rows.masked_fill(~chosen, -100)
    return rows.masked_fill(chosen, MASK), labels


class Bert(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.words = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.places = nn.Embedding(LENGTH, width)
        layer = nn.TransformerEncoderLayer(
            width, nhead=4, dim_feedforward=64, dropout=0.1, activation="gelu", batch_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, num_layers=2, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.Linear(width, width), nn.Tanh(), nn.LayerNorm(width))
        self.decoder = nn.Linear(width, WORDS)

    def forward(self, rows):
        hidden = self.words(rows) + self.places.weight
        hidden = self.encoder(hidden, src_key_padding_mask=rows == PAD)
        return self.decoder(self.head(hidden))


class Trainer:
    def __init__(self, seed):
        self.model = Bert()
        self.loader = DataLoader(Sentences(128, seed), batch_size=32, shuffle=True, drop_last=True)
        self.held_out = DataLoader(Sentences(32, seed + 1000), batch_size=32)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-3, weight_decay=0.01)
        self.scheduler = SequentialLR(
            self.optimizer,
            [LinearLR(self.optimizer, 0.25, 1.0, 4), LinearLR(self.optimizer, 1.0, 0.1, 14)],
            milestones=[4],
        )
        self.criterion = nn.CrossEntropyLoss(ignore_index=-100)

    def loss(self, rows):
        inputs, labels = mask_words(rows)
        return self.criterion(self.model(inputs).transpose(1, 2), labels)

    def epoch(self):
        self.model.train()
        for rows in self.loader:
            loss = self.loss(rows)
            self.model.zero_grad()
            loss.backward()
            self.optimizer.step()
            self.scheduler.step()

    @torch.no_grad()
    def evaluate(self):
        self.model.eval()
        return sum(self.loss(rows).item() for rows in self.held_out) / len(self.held_out)


if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    torch.manual_seed(200 + seed)
    trainer = Trainer(seed)
    before = trainer.evaluate()
    for number in range(4):
        trainer.epoch()
        after = trainer.evaluate()
        print(f"epoch {number}: {after:.3f}")
    assert after < before
