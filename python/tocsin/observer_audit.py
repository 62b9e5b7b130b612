"""Does being recorded change what torch computes here? `python -m tocsin.observer_audit TOCSIN`.

`tocsin record --audit` starts it before the job, in processes of its own: what an observer might
disturb (compiled frames, autograd's threads, generators) is counted by process. A small training
runs twice, once recorded by the command TOCSIN with the modes that the environment asks for.
Compared are the bits of losses, weights, buffers, optimizer state and generators, and how much
torch.compile compiled. Ends with 0: nothing changed; 1: something did, which stderr says; 2: it
could not be found out, with the reason.
"""

import json
import os
import subprocess
import sys
import tempfile

STEPS = 3
TIMEOUT_S = 300  # both trainings take some seconds


def _model(torch):
    """One of each that hooks have to do with: a region that is compiled, one that is recomputed,
    writes in place, buffers, random numbers."""
    nn = torch.nn

    class Audited(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True))
            self.recomputed = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
            self.compiled = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.GELU()),
                                          backend="eager")  # fmt: skip
            self.last = nn.Linear(8, 3)

        def forward(self, x):
            x = self.first(x)
            x = torch.utils.checkpoint.checkpoint(self.recomputed, x, use_reentrant=False)
            return self.last(nn.functional.dropout(self.compiled(x), 0.1, self.training))

    return Audited()


def _bits(value):
    """JSON of tensors in nested dicts and lists, bit by bit."""
    if hasattr(value, "detach"):
        return bytes(value.detach().reshape(-1).contiguous().view(_torch().uint8).tolist()).hex()
    if isinstance(value, dict):
        return {str(key): _bits(item) for key, item in value.items()}
    return [_bits(item) for item in value] if isinstance(value, (list, tuple)) else repr(value)


def _torch():
    import torch.utils.checkpoint

    return torch


def train():
    """The training that is observed, or not. Prints what came of it."""
    torch = _torch()
    torch.manual_seed(1)
    model = _model(torch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = model(torch.randn(5, 6)).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    from torch._dynamo.utils import counters

    print(json.dumps({
        "losses": _bits(losses),
        "weights and buffers": _bits(model.state_dict()),
        "the optimizer's state": _bits(optimizer.state_dict()["state"]),
        "the generator": _bits(torch.get_rng_state()),
        "compiled frames": dict(counters["frames"]),
        "graph breaks": sum(counters["graph_break"].values()),
    }))  # fmt: skip


def _run(*command):
    environment = {key: value for key, value in os.environ.items() if key != "TOCSIN_INJECT"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                          env=environment)  # fmt: skip
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ChildProcessError(f"the training of the audit ended with {done.returncode}: {last}")
    return json.loads(done.stdout)


def changed(tocsin):
    """What is not the same when the command `tocsin` records: a list of words."""
    training = [sys.executable, "-m", "tocsin.observer_audit", "--train"]
    plain = _run(*training)
    with tempfile.TemporaryDirectory(prefix="tocsin-audit-") as folder:
        recorded = _run(tocsin, "record", "-q", "-o", os.path.join(folder, "run"), "--", *training)
        if not any(name.endswith(".trace") for name in os.listdir(os.path.join(folder, "run"))):
            raise ChildProcessError("nothing of the audit's training was recorded")
    return [what for what in plain if plain[what] != recorded[what]]


def main(arguments):
    if arguments == ["--train"]:
        train()
        return 0
    (tocsin,) = arguments
    try:
        found = changed(tocsin)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"tocsin: error: observer audit: {error}", file=sys.stderr)
        return 2
    if found:
        print(f"tocsin: warning: being recorded changes {', '.join(found)}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
