"""A regression on images that goes back to its last good state when the loss jumps.

Convolutions with batch normalisation; the checkpoint has model and optimizer in one file.
"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def network():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.SiLU(),
        nn.Conv2d(6, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.SiLU(),
        nn.Flatten(),
        nn.Linear(8 * 4 * 4, 2),
    )


class Trainer:
    def __init__(self, path):
        self.path = path
        self.net = network()
        self.sgd = torch.optim.SGD(self.net.parameters(), lr=0.05, momentum=0.9, nesterov=True)

    def keep(self):
        torch.save({"net": self.net.state_dict(), "sgd": self.sgd.state_dict()}, self.path)

    def go_back(self):
        kept = torch.load(self.path, weights_only=True)
        self.net.load_state_dict(kept["net"])
        self.sgd.load_state_dict(kept["sgd"])

    def update(self, images, centres):
        self.net.train()
        error = nn.functional.smooth_l1_loss(self.net(images), centres)
        self.sgd.zero_grad()
        error.backward()
        self.sgd.step()
        return error.item()

    @torch.no_grad()
    def measure(self, images, centres):
        self.net.eval()
        return nn.functional.smooth_l1_loss(self.net(images), centres).item()


def spots(count):
    """Images of one bright spot, and where it is."""
    centres = torch.rand(count, 2) * 2 - 1
    axis = torch.linspace(-1, 1, 8)
    rows = (axis[None, :] - centres[:, :1]).square()
    columns = (axis[None, :] - centres[:, 1:]).square()
    images = torch.exp(-4 * (rows[:, :, None] + columns[:, None, :]))
    return images.unsqueeze(1) + 0.05 * torch.randn(count, 1, 8, 8), centres


def main():
    torch.manual_seed(620 + SEED)
    held_out = spots(16)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Path(folder) / "good.pt")
        trainer.keep()
        for round_ in range(4):
            for _ in range(4):
                trainer.update(*spots(12))
            print(f"round {round_}: {trainer.measure(*held_out):.4f}")
            if round_ % 2 == 0:
                trainer.keep()
            else:
                trainer.go_back()


if __name__ == "__main__":
    main()
