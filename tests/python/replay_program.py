"""One training step from a checkpoint: replay_program.py CHECKPOINT OUT [wrong]. Writes the
checkpoint, if there is none, and the audit of the settings to OUT."""

import json
import os
import sys

import torch
from torch import nn

from tocsin import determinism

checkpoint, out = sys.argv[1:3]
torch.manual_seed(3)
model = nn.Linear(8, 4)
if not os.path.exists(checkpoint):
    torch.save(model.state_dict(), checkpoint)
    sys.exit()
assert os.environ["TOCSIN_REPLAY"] == checkpoint
model.load_state_dict(torch.load(checkpoint))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.arange(8.0)).square().mean()
loss.backward()
if "wrong" in sys.argv:
    model.bias.grad[2] *= 10000
optimizer.step()
print("a line on stdout")
assert all(name in os.environ for name, *_ in determinism._VARIABLES)
with open(out, "w") as file:
    json.dump([entry for entry in determinism.audit(gpu=True) if entry[0].isupper()], file)
