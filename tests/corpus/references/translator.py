"""An encoder and a decoder with padded labels that are ignored, and a checkpointed encoder."""

import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0

PAD, EOS, IGNORED = 0, 1, -100


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(20, 12), nn.Embedding(20, 12)
        self.encoder = nn.Sequential(
            nn.Linear(12, 24), nn.ReLU(), nn.Dropout(0.2), nn.Linear(24, 12)
        )
        self.decoder = nn.GRU(12, 12, batch_first=True)
        self.vocabulary = nn.Linear(12, 20)

    def forward(self, source, target):
        encoded = checkpoint(self.encoder, self.source(source), use_reentrant=False)
        state = encoded.mean(1).unsqueeze(0)
        return self.vocabulary(self.decoder(self.target(target), state)[0])


def batch(size):
    lengths = torch.randint(3, 8, (size,)).tolist()
    rows = torch.full((size, 9), PAD)
    for row, length in zip(rows, lengths):
        row[:length] = torch.randint(2, 20, (length,))
        row[length] = EOS
    return rows, rows.masked_fill(rows == PAD, IGNORED)


def main():
    torch.manual_seed(39 + SEED)
    model = Translator()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    for step in range(1, 11):
        source, (target, labels) = torch.randint(2, 20, (8, 6)), batch(8)
        logits = model(source, target[:, :-1])
        loss = F.cross_entropy(logits.transpose(1, 2), labels[:, 1:], ignore_index=IGNORED)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 5 == 0:
            model.eval()
            with torch.no_grad():
                model(source, target[:, :-1])
            model.train()


if __name__ == "__main__":
    main()
