"""DeiT: a convolutional teacher trained first, then asked; class and distillation tokens."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

CLASSES = 4


class Teacher(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4),
            nn.Flatten(), nn.Linear(8 * 9, CLASSES),
        )  # fmt: skip


class Student(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.patches = nn.Linear(16, width)
        self.tokens = nn.Parameter(torch.randn(1, 2, width) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 11, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 48, dropout=0.0, batch_first=True, norm_first=True)
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head, self.head_dist = nn.Linear(width, CLASSES), nn.Linear(width, CLASSES)

    def forward(self, images):
        x = self.patches(F.unfold(images, 4, stride=4).transpose(1, 2))
        x = torch.cat([self.tokens.expand(len(x), -1, -1), x], dim=1) + self.positions
        for layer in self.layers:
            x = layer(x)
        x = self.norm(x[:, :2])
        first, second = self.head(x[:, 0]), self.head_dist(x[:, 1])
        return (first, second) if self.training else (first + second) / 2


def distillation_loss(outputs, images, labels, teacher, tau=2.0, alpha=0.5):
    logits, distilled = outputs
    with torch.no_grad():
        target = teacher(images)
    soft = F.kl_div(
        F.log_softmax(distilled / tau, dim=1), F.log_softmax(target / tau, dim=1),
        reduction="batchmean", log_target=True,
    )  # fmt: skip
    hard = F.cross_entropy(logits, labels)
    return (1 - alpha) * hard + alpha * tau * tau * soft


def main():
    torch.manual_seed(420 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))
    shapes = torch.randn(CLASSES, 1, 12, 12)

    def batch(size=32):
        labels = torch.randint(CLASSES, (size,))
        return shapes[labels] + 0.5 * torch.randn(size, 1, 12, 12), labels

    teacher = Teacher()
    optimizer = torch.optim.SGD(teacher.parameters(), lr=0.05, momentum=0.9)
    for _ in range(8):
        images, labels = batch()
        optimizer.zero_grad()
        F.cross_entropy(teacher(images), labels).backward()
        optimizer.step()
    teacher.eval()

    student = Student()
    optimizer = torch.optim.AdamW(student.parameters(), lr=3e-3, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[10, 14], gamma=0.3)
    losses = []
    for _ in range(16):
        images, labels = batch()
        optimizer.zero_grad()
        loss = distillation_loss(student(images), images, labels, teacher)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
    student.eval()
    with torch.no_grad():
        images, labels = batch(64)
        right = (student(images).argmax(1) == labels).float().mean().item()
    print(f"accuracy {right:.2f}")
    assert sum(losses[-4:]) < sum(losses[:4])


if __name__ == "__main__":
    main()
