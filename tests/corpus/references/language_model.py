"""A decoder-only language model: bf16 autocast, accumulation, tied head, warm-up, evaluation."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

SEED = int(sys.argv[1]) if len(sys.argv) > 1 else 0


class Layer(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.dropout = dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.feed_in, self.feed_out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.attention_in(self.norm1(x)).view(batch, length, 3, 2, width // 2)
        query, key, value = parts.permute(2, 0, 3, 1, 4)
        heads = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        x = x + self.attention_out(heads.transpose(1, 2).flatten(2))
        hidden = F.gelu(self.feed_in(self.norm2(x)))
        return x + F.dropout(self.feed_out(hidden), self.dropout, self.training)


class Decoder(nn.Module):
    def __init__(self, vocabulary, width, depth, length):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.zeros(length, width))
        self.layers = nn.ModuleList(Layer(width, 0.1) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        self.apply(self.initialise)
        self.output.weight = self.tokens.weight

    @staticmethod
    def initialise(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            module.weight.data.normal_(mean=0.0, std=0.02)
            if getattr(module, "bias", None) is not None:
                module.bias.data.zero_()

    def forward(self, ids):
        x = self.tokens(ids) + self.positions[: ids.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.output(self.norm(x))


def main():
    torch.manual_seed(32 + SEED)
    text = torch.randint(30, (3000,)).cumsum(0) % 31
    model = Decoder(31, 16, 2, 20)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    warmup = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 4))
    for step in range(1, 13):
        for _ in range(2):
            starts = torch.randint(2500, (6,)).tolist()
            rows = torch.stack([text[s : s + 21] for s in starts])
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = model(rows[:, :-1])
                loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            (loss / 2).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        warmup.step()
        optimizer.zero_grad(set_to_none=True)
        if step % 4 == 0:
            model.eval()
            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
                rows = text[2500:2521].unsqueeze(0)
                held_out = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[0, 1:])
            model.train()
            print(f"step {step}: {held_out.item():.3f}")


if __name__ == "__main__":
    main()
