"""Deblurring by a small fully convolutional net, L-BFGS with a closure, all images in one batch."""

import sys

import torch
import torch.nn.functional as F

torch.manual_seed(160 + (int(sys.argv[1]) if len(sys.argv) > 1 else 0))

sharp = (torch.rand(12, 1, 12, 12) > 0.6).double()
kernel = torch.tensor([[1.0, 2, 1], [2, 4, 2], [1, 2, 1]], dtype=torch.double)[None, None] / 16
blurred = F.conv2d(sharp, kernel, padding=1)
train_x, train_y, test_x, test_y = blurred[:8], sharp[:8], blurred[8:], sharp[8:]

net = torch.nn.Sequential(
    torch.nn.Conv2d(1, 6, 5, padding=2), torch.nn.Tanh(), torch.nn.Conv2d(6, 1, 3, padding=1)
).double()
optimizer = torch.optim.LBFGS(
    net.parameters(), lr=0.5, max_iter=4, history_size=6, line_search_fn="strong_wolfe"
)


def closure():
    optimizer.zero_grad()
    loss = F.mse_loss(net(train_x), train_y)
    loss.backward()
    return loss


history = []
for step in range(12):
    loss = optimizer.step(closure)
    with torch.no_grad():
        error = F.mse_loss(net(test_x), test_y)
    history.append(loss.item())
    print(f"{step}: train {loss.item():.4f}, test {error.item():.4f}")
assert history[-1] < history[0]
