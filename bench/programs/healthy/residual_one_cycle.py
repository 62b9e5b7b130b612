"""A residual network: OneCycleLR by step, norms without decay, label smoothing, clipping."""

import sys

import torch
from torch import nn


def conv_bn(inputs, outputs, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
    )


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            conv_bn(inputs, outputs, stride), nn.ReLU(inplace=True), conv_bn(outputs, outputs)
        )
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        nn.init.zeros_(self.body[2][1].weight)

    def forward(self, x):
        return torch.relu(self.shortcut(x) + self.body(x))


def param_groups(model, weight_decay):
    norms = {id(p) for m in model.modules() if isinstance(m, nn.BatchNorm2d)
             for p in m.parameters()}  # fmt: skip
    decay, no_decay = [], []
    for name, parameter in model.named_parameters():
        spared = id(parameter) in norms or name.endswith(".bias")
        (no_decay if spared else decay).append(parameter)
    return [
        {"params": decay, "weight_decay": weight_decay},
        {"params": no_decay, "weight_decay": 0.0},
    ]


seed = int(sys.argv[1]) if len(sys.argv) > 1 else 0
torch.manual_seed(100 + seed)
model = nn.Sequential(
    conv_bn(3, 8), nn.ReLU(inplace=True), BasicBlock(8, 8, 1), BasicBlock(8, 16, 2),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5),
)  # fmt: skip
optimizer = torch.optim.SGD(param_groups(model, 5e-4), lr=0.1, momentum=0.9, nesterov=True)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

colours = torch.randn(5, 3, 1, 1)
labels = torch.randint(5, (128,))
images = colours[labels] + torch.randn(128, 3, 8, 8)
losses = []
step = 0
for epoch in range(5):
    model.train()
    for index in torch.randperm(128).split(32):
        batch = images[index]
        if torch.rand(()) < 0.5:
            batch = batch.flip(3)
        loss = criterion(model(batch), labels[index])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), max_norm=5.0)
        optimizer.step()
        scheduler.step()
        losses.append(loss.item())
        step += 1
print("last learning rate", scheduler.get_last_lr())
model.eval()
with torch.inference_mode():
    accuracy = (model(images).argmax(1) == labels).float().mean().item()
print(f"accuracy {accuracy:.2f}")
assert sum(losses[-4:]) < sum(losses[:4])
