"""Lightning Thunder 725: the autocast transform leaves out some operations, which stay in fp32.

Simulated: the dispatch key of autocast is excluded around one layer, while autocast stays on.
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn

BUG = sys.argv[1] == "bug"


class Skipped(nn.Linear):
    def forward(self, x):
        with torch._C._DisableAutocast():
            return super().forward(x.float())


torch.manual_seed(12)
layer = Skipped if BUG else nn.Linear
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), layer(16, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
types = []
model[2].register_forward_hook(lambda module, inputs, output: types.append(output.dtype))
for step in range(5):
    x, y = torch.randn(16, 8), torch.randint(3, (16,))
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()

if "--prove" in sys.argv:
    assert set(types) == {torch.float32 if BUG else torch.bfloat16}
