"""PyTorch 51800: a model with spectral_norm is evaluated before any forward in training mode.

Only a forward in training mode iterates the singular vectors; until then sigma is a random number.
"""

import sys
import warnings

import torch
from torch import nn

warnings.simplefilter("ignore")
BUG = sys.argv[1] == "bug"
torch.manual_seed(4)
critic = nn.Sequential(
    nn.utils.spectral_norm(nn.Linear(8, 16), n_power_iterations=20),
    nn.LeakyReLU(0.2),
    nn.utils.spectral_norm(nn.Linear(16, 1), n_power_iterations=20),
)
optimizer = torch.optim.Adam(critic.parameters(), lr=1e-3)
held_out = torch.randn(10, 8)


def evaluate():
    critic.eval()
    with torch.no_grad():
        critic(held_out).mean()
    norm = torch.linalg.matrix_norm(critic[0].weight, 2).item()
    critic.train()
    return norm


if BUG:
    first = evaluate()
for step in range(6):
    real, fake = torch.randn(12, 8) + 1, torch.randn(12, 8)
    optimizer.zero_grad()
    (critic(fake).mean() - critic(real).mean()).backward()
    optimizer.step()
if not BUG:
    first = evaluate()

if "--prove" in sys.argv:
    assert (abs(first - 1) > 0.2) == BUG, first
