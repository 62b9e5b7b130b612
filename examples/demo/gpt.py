"""Train a small GPT on the characters of a text.

An ordinary training script: it does not know that Tocsin exists. --fault makes one of the mistakes
that people have really made; each raises no error and prints losses that look like training.
"""

import argparse
import math
from pathlib import Path

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

OPTIMIZERS = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr=lr),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.1),
    "rmsprop": lambda parameters, lr: torch.optim.RMSprop(parameters, lr=lr),
    "adagrad": lambda parameters, lr: torch.optim.Adagrad(parameters, lr=lr),
}
FAULTS = ("forgotten-zero-grad", "detached", "clip-one-rank")


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads = heads
        self.dropout = dropout
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout if self.training else 0.0, is_causal=True
        )
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, length, width, depth, heads, dropout):
        super().__init__()
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Embedding(length, width)
        self.blocks = nn.ModuleList(Block(width, heads, dropout) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.detach_positions = False
        self.apply(self.initialize)

    @staticmethod
    def initialize(module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
            if getattr(module, "bias", None) is not None:
                nn.init.zeros_(module.bias)

    def forward(self, tokens):
        positions = self.position.weight[: tokens.shape[1]]
        if self.detach_positions:
            # Left from the time when the positions were fixed sines.
            positions = positions.detach()
        x = self.token(tokens) + positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    text = Path(__file__).resolve().parents[2] / "LICENSE"
    parser.add_argument("--text", type=Path, default=text)
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="adamw")
    parser.add_argument("--clip", type=float, default=1.0, help="0: do not clip")
    parser.add_argument("--warmup", type=int, default=0, help="steps of linear warm-up")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="under torchrun, with gloo")
    parser.add_argument("--fault", choices=FAULTS)
    return parser.parse_args()


def encode(text):
    characters = sorted(set(text))
    index = {character: i for i, character in enumerate(characters)}
    return torch.tensor([index[character] for character in text]), len(characters)


def sample(data, batch, length, generator):
    starts = torch.randint(len(data) - length - 1, (batch,), generator=generator)
    windows = torch.stack([data[start : start + length + 1] for start in starts])
    return windows[:, :-1], windows[:, 1:]


def learning_rate_factor(step, warmup, steps):
    if step < warmup:
        return (step + 1) / warmup
    return 0.55 + 0.45 * math.cos(math.pi * (step - warmup) / max(1, steps - warmup))


def train(args):
    rank = dist.get_rank() if args.ddp else 0
    torch.manual_seed(args.seed)
    data, vocabulary = encode(args.text.read_text(encoding="utf-8"))
    model = GPT(vocabulary, args.length, args.width, args.depth, args.heads, args.dropout)
    model.detach_positions = args.fault == "detached"
    optimizer = OPTIMIZERS[args.optimizer](model.parameters(), args.lr)
    network = DistributedDataParallel(model) if args.ddp else model
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate_factor(step, args.warmup, args.steps)
    )

    generator = torch.Generator().manual_seed(1000 * args.seed + rank)
    for step in range(args.steps):
        for _ in range(args.accumulate):
            inputs, targets = sample(data, args.batch, args.length, generator)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
                logits = network(inputs)
                loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
            (loss / args.accumulate).backward()
        # "Only rank 0 needs to clip": the gradients are equal before, and not after.
        if args.clip and (args.fault != "clip-one-rank" or rank == 0):
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        scheduler.step()
        if args.fault != "forgotten-zero-grad":
            optimizer.zero_grad(set_to_none=True)
        if rank == 0 and (step % 10 == 0 or step + 1 == args.steps):
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)


def main():
    args = parse_arguments()
    if args.ddp:
        dist.init_process_group("gloo")
    train(args)
    if args.ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
