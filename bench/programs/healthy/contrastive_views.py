"""SimCLR: two augmented views, NT-Xent with a temperature, warm restarts, then a linear probe."""

import sys

import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, Dataset


class TwoViews(Dataset):
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.augment(self.images[index]), self.augment(self.images[index])

    @staticmethod
    def augment(image):
        top, left = torch.randint(0, 3, (2,)).tolist()
        view = image[:, top : top + 10, left : left + 10]
        if torch.rand(1).item() < 0.5:
            view = torch.flip(view, dims=[-1])
        return view * (0.8 + 0.4 * torch.rand(1)) + 0.05 * torch.randn_like(view)


def nt_xent(a, b, temperature):
    z = normalize(torch.cat([a, b]), dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    n = len(a)
    positives = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
    return cross_entropy(similarity, positives)


def build_encoder():
    return nn.Sequential(
        nn.Conv2d(2, 12, 3, bias=False), nn.BatchNorm2d(12), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(12, 24, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    )  # fmt: skip


def pretrain(encoder, images):
    projector = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 12, bias=False))
    params = [*encoder.parameters(), *projector.parameters()]
    optimizer = torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4)
    restarts = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, T_0=2)
    loader = DataLoader(TwoViews(images), batch_size=32, shuffle=True, drop_last=True)
    curve = []
    for epoch in range(4):
        for i, (a, b) in enumerate(loader):
            loss = nt_xent(projector(encoder(a)), projector(encoder(b)), 0.5)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            restarts.step(epoch + i / len(loader))
            curve.append(loss.item())
    return curve


def linear_probe(encoder, images, labels):
    encoder.eval()
    with torch.no_grad():
        features = encoder(images)
    probe = nn.Linear(24, 4)
    optimizer = torch.optim.Adagrad(probe.parameters(), lr=0.1)
    for _ in range(8):
        optimizer.zero_grad()
        cross_entropy(probe(features), labels).backward()
        optimizer.step()
    return (probe(features).argmax(1) == labels).float().mean().item()


def main():
    torch.manual_seed(150 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    labels = torch.randint(4, (160,))
    images = torch.randn(4, 2, 12, 12)[labels] + torch.randn(160, 2, 1, 1)
    images += 0.2 * torch.randn(160, 2, 12, 12)
    encoder = build_encoder()
    curve = pretrain(encoder, images)
    print(f"probe {linear_probe(encoder, images, labels):.2f}, loss {curve[0]:.3f} {curve[-1]:.3f}")
    assert sum(curve[-5:]) < sum(curve[:5])


if __name__ == "__main__":
    main()
