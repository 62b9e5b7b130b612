"""Pictures of unequal size become one batch, and captions are written that end before they are too
long. Its own functions are recorded, too (--module)."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0
STOP, WORDS = 0, 15


class Writer(nn.Module):
    def __init__(self):
        super().__init__()
        self.look, self.word = nn.Linear(9, 20), nn.Embedding(WORDS, 20)
        self.read, self.say = nn.GRU(20, 20, batch_first=True), nn.Linear(20, WORDS)

    def forward(self, pictures, words):
        seen = self.look(pictures).unsqueeze(0)
        return self.say(self.read(self.word(words), seen)[0])


def to_batch(images):
    """3 x 3 averages, whatever the size."""
    small = [F.adaptive_avg_pool2d(image.unsqueeze(0), 3) for image in images]
    return torch.cat(small).flatten(1)


def write(model, picture, first, max_new_tokens):
    """The words after the first one, up to the end of the sentence."""
    words = [first]
    for _ in range(max_new_tokens):
        said = model(picture, torch.tensor([words]))[0, -1]
        words.append(int(torch.multinomial(said.softmax(-1), 1)))
        if words[-1] == STOP:
            break
    return torch.tensor(words[1:])


def main():
    torch.manual_seed(23 + SEED)
    model = Writer()
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    data = [(torch.rand(5 + i % 3, 6), torch.randint(WORDS, (7,))) for i in range(22)]
    for epoch in range(2):
        model.train()
        for start in range(0, len(data), 4):  # the last batch is smaller
            pictures, words = zip(*data[start : start + 4])
            words = torch.stack(words)
            said = model(to_batch(list(pictures)), words[:, :-1])
            loss = F.cross_entropy(said.flatten(0, 1), words[:, 1:].flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            for length in (3, 6):
                write(model, to_batch([data[epoch][0]]), 1, max_new_tokens=length)


if __name__ == "__main__":
    import caption_writer

    caption_writer.main()
