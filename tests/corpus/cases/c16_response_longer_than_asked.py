"""transformers 23723: the limit of new tokens is computed from the prompt before it is cut.

The answer gets longer than was asked for.
"""

import sys

import torch
from torch import nn

WINDOW = 8
BUG = sys.argv[1] == "bug"


def generate(model, prompt, max_new_tokens):
    """Greedy decoding; the new tokens."""
    limit = len(prompt) + max_new_tokens
    tokens = prompt[-WINDOW:]
    if not BUG:
        limit = len(tokens) + max_new_tokens
    start = len(tokens)
    while len(tokens) < limit:
        logits = model(tokens[-WINDOW:])[-1]
        tokens = torch.cat([tokens, logits.argmax().view(1)])
    return tokens[start:]


def main():
    torch.manual_seed(16)
    model = nn.Sequential(nn.Embedding(12, 16), nn.Linear(16, 12))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    lengths = []
    for step in range(1, 7):
        tokens = torch.randint(12, (8, 9))
        optimizer.zero_grad()
        logits = model(tokens[:, :-1]).flatten(0, 1)
        nn.functional.cross_entropy(logits, tokens[:, 1:].flatten()).backward()
        optimizer.step()
        if step % 2 == 0:
            model.eval()
            with torch.no_grad():
                prompt = torch.randint(12, (6 * step,))
                lengths.append(len(generate(model, prompt, max_new_tokens=5)))
            model.train()
    if "--prove" in sys.argv:
        assert (max(lengths) > 5) == BUG


if __name__ == "__main__":
    import c16_response_longer_than_asked as library  # so that --module can name it

    library.main()
