"""transformers 34204: the processor takes a list of images for the images of one prompt.

A batch of many prompts becomes a batch of one; the model trains on it.
"""

import sys

import torch
from torch import nn

BUG = sys.argv[1] == "bug"


def process(images, size):
    """One row of pixels for each image."""
    rows = [image[:size, :size].flatten() / 255 for image in images]
    if BUG:
        return torch.stack(rows[:1])
    return torch.stack(rows)


def main():
    torch.manual_seed(18)
    model = nn.Sequential(nn.Linear(16, 12), nn.ReLU(), nn.Linear(12, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(6):
        images = [torch.rand(6, 5) * 255 for _ in range(8)]
        pixels = process(images, 4)
        optimizer.zero_grad()
        (model(pixels) - pixels.mean(1, keepdim=True)).square().mean().backward()
        optimizer.step()
    if "--prove" in sys.argv:
        assert (len(pixels) != len(images)) == BUG


if __name__ == "__main__":
    import c18_processor_flattens_a_batch as library  # so that --module can name it

    library.main()
