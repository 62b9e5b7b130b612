"""Segmentation: U-Net, cross entropy and Dice, GradScaler, RMSprop, an ignored border."""

import sys

import torch
from torch import nn
from torch.nn import functional as F

IGNORED = 255


class DoubleConv(nn.Sequential):
    def __init__(self, inputs, outputs):
        super().__init__(
            nn.Conv2d(inputs, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True),
            nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU(),
        )  # fmt: skip


class SegmentationNet(nn.Module):
    def __init__(self, classes=3):
        super().__init__()
        self.enc1, self.enc2 = DoubleConv(1, 8), DoubleConv(8, 16)
        self.upconv = nn.ConvTranspose2d(16, 8, kernel_size=2, stride=2)
        self.dec1 = DoubleConv(16, 8)
        self.head = nn.Conv2d(8, classes, kernel_size=1)

    def forward(self, x):
        e1 = self.enc1(x)
        e2 = self.enc2(F.max_pool2d(e1, 2))
        return self.head(self.dec1(torch.cat([e1, self.upconv(e2)], dim=1)))


def dice_loss(logits, target):
    valid = (target != IGNORED).unsqueeze(1)
    probs = logits.float().softmax(1) * valid
    onehot = F.one_hot(target.clamp(max=2), 3).permute(0, 3, 1, 2) * valid
    overlap = (probs * onehot).sum((0, 2, 3))
    return 1 - ((2 * overlap + 1) / (probs.sum((0, 2, 3)) + onehot.sum((0, 2, 3)) + 1)).mean()


def make_batch(count):
    """Rectangles of two brightnesses on a noisy ground."""
    image, mask = 0.3 * torch.randn(count, 1, 16, 16), torch.zeros(count, 16, 16).long()
    for i in range(count):
        for kind in (1, 2):
            top, left = torch.randint(1, 9, (2,)).tolist()
            mask[i, top : top + 6, left : left + 6] = kind
    image += torch.tensor([0.0, 1.5, -1.5])[mask].unsqueeze(1)
    mask[:, 0, :] = mask[:, -1, :] = IGNORED
    return image, mask


def train_one_epoch(net, optimizer, scaler, steps):
    net.train()
    total = 0.0
    for _ in range(steps):
        image, mask = make_batch(8)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
            logits = net(image)
            loss = F.cross_entropy(logits, mask, ignore_index=IGNORED) + dice_loss(logits, mask)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        total += loss.item()
    return total / steps


@torch.no_grad()
def mean_iou(net):
    net.eval()
    image, mask = make_batch(8)
    predicted, scores = net(image).argmax(1), []
    for kind in range(3):
        hit = ((predicted == kind) & (mask == kind)).sum()
        either = (((predicted == kind) | (mask == kind)) & (mask != IGNORED)).sum()
        scores.append((hit / either.clamp(min=1)).item())
    return sum(scores) / 3


def main():
    torch.manual_seed(130 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    net = SegmentationNet()
    optimizer = torch.optim.RMSprop(net.parameters(), lr=2e-3, weight_decay=1e-8, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    scores = []
    for epoch in range(4):
        scores.append(train_one_epoch(net, optimizer, scaler, 5))
        print(f"epoch {epoch}: loss {scores[-1]:.3f}, IoU {mean_iou(net):.2f}")
    assert scores[-1] < scores[0]


if __name__ == "__main__":
    main()
