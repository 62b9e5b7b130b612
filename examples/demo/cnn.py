"""Train a small convolutional network on scikit-learn's digits.

An ordinary training script: it does not know that Tocsin exists. --fault makes one of the mistakes
that people have really made; each raises no error and prints losses that look like training.
"""

import argparse
import itertools

import torch
import torch.distributed as dist
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

OPTIMIZERS = {
    "sgd": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
    "adam": lambda parameters, lr: torch.optim.Adam(parameters, lr=lr),
    "adamw": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01),
    "rmsprop": lambda parameters, lr: torch.optim.RMSprop(parameters, lr=lr),
    "adagrad": lambda parameters, lr: torch.optim.Adagrad(parameters, lr=lr),
}
FAULTS = ("forgotten-zero-grad", "stale-head", "stale-model", "frozen", "detached")


class Network(nn.Module):
    def __init__(self, width, depth, dropout, classes=10):
        super().__init__()
        channels = [1] + [width] * depth
        blocks = []
        for before, after in zip(channels, channels[1:]):
            blocks += [nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.features = nn.Sequential(*blocks)
        self.dropout = nn.Dropout(dropout)
        self.hidden = nn.Linear(width * 16, 4 * width)
        self.head = nn.Linear(4 * width, classes)
        self.detach_features = False

    def forward(self, images):
        features = F.max_pool2d(self.features(images), 2).flatten(1)
        if self.detach_features:
            # "Save memory: the features are only an input here." They are also being trained.
            features = features.detach()
        return self.head(self.dropout(F.relu(self.hidden(features))))


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-2)
    parser.add_argument("--width", type=int, default=8)
    parser.add_argument("--depth", type=int, default=2)
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--optimizer", choices=sorted(OPTIMIZERS), default="sgd")
    parser.add_argument("--clip", type=float, default=0.0, help="0: do not clip")
    parser.add_argument("--warmup", type=int, default=0, help="steps of linear warm-up")
    parser.add_argument("--accumulate", type=int, default=1, help="backward passes per step")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--ddp", action="store_true", help="under torchrun, with gloo")
    parser.add_argument("--freeze-features", action="store_true", help="train the top only")
    parser.add_argument("--fault", choices=FAULTS)
    return parser.parse_args()


def load_data(batch, seed, ddp):
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    training = TensorDataset(images[:1500], labels[:1500])
    sampler = DistributedSampler(training, seed=seed) if ddp else None
    loader = DataLoader(
        training, batch, shuffle=sampler is None, sampler=sampler, drop_last=True
    )
    return loader, images[1500:], labels[1500:]


def endless(loader):
    for epoch in itertools.count():
        if isinstance(loader.sampler, DistributedSampler):
            loader.sampler.set_epoch(epoch)  # or every epoch has the order of the first
        yield from loader


def build(args):
    """The model and its optimizer, with the mistakes that are made while building."""
    model = Network(args.width, args.depth, args.dropout)
    if args.freeze_features:
        model.features.requires_grad_(False)
    trained = [p for p in model.parameters() if p.requires_grad]

    if args.fault == "frozen":
        # Meant: freeze the layers, go on training the last one. Done: everything but the
        # batch-norms is frozen, the last layer too, and only that one is given to the optimizer.
        for module in model.modules():
            if not isinstance(module, nn.BatchNorm2d):
                for parameter in module.parameters(recurse=False):
                    parameter.requires_grad_(False)
        trained = list(model.head.parameters())

    optimizer = OPTIMIZERS[args.optimizer](trained, args.lr)

    if args.fault == "stale-head":
        # A new head for the new classes, after the optimizer took the old one's parameters.
        model.head = nn.Linear(model.head.in_features, model.head.out_features)
    if args.fault == "stale-model":
        # "Start again from fresh weights": the optimizer still holds the first model's.
        model = Network(args.width, args.depth, args.dropout)
    model.detach_features = args.fault == "detached"
    return model, optimizer


def evaluate(model, images, labels):
    model.eval()
    with torch.no_grad():
        accuracy = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return accuracy


def train(args):
    rank = dist.get_rank() if args.ddp else 0
    torch.manual_seed(args.seed)
    loader, test_images, test_labels = load_data(args.batch, args.seed, args.ddp)
    model, optimizer = build(args)
    network = DistributedDataParallel(model) if args.ddp else model
    scheduler = None
    if args.warmup:
        scheduler = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: min(1.0, (step + 1) / args.warmup)
        )

    batches = endless(loader)
    for step in range(args.steps):
        if args.fault != "forgotten-zero-grad":
            optimizer.zero_grad()
        for _ in range(args.accumulate):
            images, labels = next(batches)
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=args.bf16):
                loss = F.cross_entropy(network(images), labels)
            (loss / args.accumulate).backward()
        if args.clip:
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
        optimizer.step()
        if scheduler:
            scheduler.step()
        if rank == 0 and (step % 10 == 0 or step + 1 == args.steps):
            print(f"step {step + 1} loss {loss.item():.4f}", flush=True)
    accuracy = evaluate(model, test_images, test_labels)
    if rank == 0:
        print(f"accuracy {accuracy:.3f}")


def main():
    args = parse_arguments()
    if args.ddp:
        dist.init_process_group("gloo")
    train(args)
    if args.ddp:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
