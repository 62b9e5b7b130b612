"""A recorded run is the same run: losses, random numbers, output and exit status bit for bit."""

import re

from recording import Script

CNN = """
    from torch import nn
    import torch.nn.functional as F
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3),
                        nn.Flatten(), nn.Linear(4 * 36, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(6):
        images, labels = torch.randn(8, 1, 8, 8), torch.randint(0, 10, (8,))
        optimizer.zero_grad()
        loss = F.cross_entropy(net(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 0.5)
        optimizer.step()
        scheduler.step()
        print(loss.item().hex())
    net.eval()
    with torch.no_grad():
        print(net(torch.randn(2, 1, 8, 8)).sum().item().hex())
    print(torch.get_rng_state().sum().item(), torch.is_grad_enabled(), torch.get_num_threads())
    raise SystemExit(7)
"""

GPT = """
    from torch import nn
    import torch.nn.functional as F

    class Block(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1),
                                     nn.Linear(4 * width, width))

        def forward(self, x):
            batch, length, width = x.shape
            q, k, v = (part.view(batch, length, 2, width // 2).transpose(1, 2)
                       for part in self.qkv(self.norm1(x)).split(width, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
            return x + self.mlp(self.norm2(x))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, 16)
            self.blocks = nn.ModuleList(Block(16) for _ in range(2))
            self.head = nn.Linear(16, 50, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
            return self.head(x)

    import torch.utils.checkpoint
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for step in range(5):
        tokens = torch.randint(0, 50, (4, 9))
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=step % 2 == 0):
            loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=step % 2 == 0)
        print(loss.item().hex())
    print(sum(p.double().sum() for p in model.parameters()).item().hex())
    print(torch.get_rng_state().sum().item())
"""


def check(text):
    script = Script(text)
    plain, recorded = script.plain(), script.recorded(TOCSIN_QUIET="1")
    assert plain.stdout and plain.stdout == recorded.stdout
    assert plain.stderr == recorded.stderr
    assert plain.returncode == recorded.returncode
    return recorded


def test_convolutions_with_dropout():
    assert check(CNN).returncode == 7


def test_gpt_with_dropout_checkpointing_and_autocast():
    process = check(GPT).process
    assert set(process.meta("autocast")) == {"", "torch.bfloat16"}
    assert process.variables().count("embed.weight") == 1


def test_two_recordings_read_the_same_digests():
    script = Script(CNN)
    first, second = script.recorded().process, script.recorded().process
    digests = [[(e["variable"], e.get("polynomial")) for e in p.states()] for p in (first, second)]
    assert digests[0] and digests[0] == digests[1]


SHORT = """
    from torch import nn
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(2):
        net(torch.ones(4, 3)).sum().backward()
        optimizer.step()
"""


def test_the_cost_is_said_in_one_line():
    """What the first step cost, with all that is read once, is no part of it."""
    lines = Script(SHORT).recorded().stderr.splitlines()
    assert len(lines) == 1, lines
    said = re.match(r"tocsin: 2 steps recorded, ([0-9.]+) % of the time in the recorder ", lines[0])
    assert said and float(said[1]) <= 100, lines
