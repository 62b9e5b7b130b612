"""Pictures and their names are drawn together (contrastive), and a small model continues names.
Its own functions are recorded, too (--module)."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
CHARACTERS = 18


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.picture = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(8))
        self.name = nn.EmbeddingBag(CHARACTERS, 8)
        self.next = nn.Linear(8, CHARACTERS)


def embed(towers, images):
    """A vector for each picture, one picture at a time."""
    rows = []
    for image in images:
        rows.append(towers.picture(image.view(1, 1, 6, 6)))
    return torch.cat(rows)


def complete(towers, name, max_new_tokens, sure=0.09):
    """Continue a name while its next character is likely enough."""
    added = name.new_empty(0)
    while len(added) < max_new_tokens:
        seen = towers.name(torch.cat([name, added]).unsqueeze(0))
        likely, character = towers.next(seen)[0].softmax(-1).max(-1)
        if len(added) > 0 and likely < sure:
            break
        added = torch.cat([added, character.view(1)])
    return added


def main():
    torch.manual_seed(91 + SEED)
    towers = Towers()
    towers.picture(torch.zeros(1, 1, 6, 6))  # lazy layers learn their size
    optimizer = torch.optim.SGD(towers.parameters(), lr=0.05, momentum=0.9)
    for step in range(1, 13):
        count = 6 if step % 4 else 3
        images = list(torch.rand(count, 6, 6))
        names = torch.randint(CHARACTERS, (count, 5))
        scores = embed(towers, images) @ towers.name(names).T
        target = torch.arange(count)
        loss = F.cross_entropy(scores, target) + F.cross_entropy(scores.T, target)
        loss = loss + F.cross_entropy(towers.next(towers.name(names[:, :-1])), names[:, -1])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 6 == 0:
            towers.eval()
            with torch.no_grad():
                complete(towers, names[0], max_new_tokens=1)
                complete(towers, names[0], max_new_tokens=step)
            towers.train()


if __name__ == "__main__":
    import picture_search

    picture_search.main()
