"""Programs under torch.compile; prints every graph that Dynamo captured, the counters and results.

Run by test_dynamo.py in processes in which nothing, or everything, is hooked. All print the same.

    python dynamo_programs.py plain|off|on [PROGRAM]...
"""

import functools
import json
import re
import sys

import torch
import torch.nn.functional as F
from torch import nn

PROGRAMS = {}
graphs = []


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def backend(graph_module, inputs):
    graphs.append(graph_module.code)
    return graph_module.forward


compiled = functools.partial(torch.compile, backend=backend)
whole = functools.partial(compiled, fullgraph=True)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def attend(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.attention_norm(x))
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


class GPT(nn.Module):
    def __init__(self, vocabulary=50, width=16, depth=2, heads=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(64, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(depth)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids, targets=None):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def scale(x, by=2.0, *, shift=1.0):
    return F.normalize(x * by + shift, dim=-1)


def scale_many(*xs, **options):
    return sum(scale(x, **options) for x in xs)


def make_adder(amount):
    def add(x):
        return x + amount

    return add


add_three = make_adder(3.0)


def decorated(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2

    return wrapper


twice = decorated(scale)


@functools.wraps(scale)
def named_like_scale(x):
    return x - 100


class Own(nn.Module):
    def raise_power(self, x, *, power=2):
        return x**power

    @staticmethod
    def fixed(x):
        return x + 1

    @classmethod
    def named(cls, x):
        return x * len(cls.__name__)

    def forward(self, x):
        return self.named(self.fixed(self.raise_power(x, power=3)))


class Child(Own):
    def raise_power(self, x, **options):
        return super().raise_power(x, **options) + 1


USER = (scale, scale_many, add_three, twice, named_like_scale, GPT.forward, Block.forward,
        Block.attend, Own.raise_power, Own.fixed, Own.__dict__["named"].__func__, Own.forward,
        Child.raise_power)  # fmt: skip


def bits(tensor):
    return [value.hex() for value in tensor.detach().double().flatten().tolist()]


def train(model, step, length=8, steps=3):
    losses = []
    for i in range(steps):
        ids = torch.randint(0, 50, (2, length if i < steps - 1 else length + 3))
        loss = model(ids, ids.roll(-1, 1))
        loss.backward()
        losses += bits(loss)
        step()
    return losses


@program
def gpt_fullgraph():
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)

    def step():
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return train(whole(model), step)


@program
def gpt_module_compile():
    model = GPT()
    model.compile(backend=backend, fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    return train(model, lambda: (optimizer.step(), optimizer.zero_grad()))


@program
def gpt_evaluation():
    model = GPT().eval()
    with torch.no_grad():
        return bits(whole(model)(torch.arange(8).view(1, 8)).sum())


@program
def compiled_clip_and_step():
    model = GPT(depth=1)
    optimizer = torch.optim.AdamW(model.parameters(), torch.tensor(1e-2))

    @compiled
    def update():
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return train(model, lambda: (update(), optimizer.zero_grad()))


@program
def compiled_optimizer_step():
    model = GPT(depth=1)
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(1e-2))
    step = compiled(optimizer.step)
    return train(model, lambda: (step(), optimizer.zero_grad()))


@program
def compiled_step_of_user_class():
    class OwnSGD(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = GPT(depth=1)
    optimizer = OwnSGD(model.parameters(), 0.1)
    step = compiled(optimizer.step)
    return train(model, lambda: (step(), optimizer.zero_grad()), steps=2)


@program
def functionals():
    @whole
    def function(x):
        y = F.softmax(F.relu(x), -1) + F.gumbel_softmax(x, hard=True) * 0
        y = F.max_pool2d(y[None, None], 2) + F.interpolate(y[None, None], scale_factor=0.5)
        z = torch.atleast_2d(F.normalize(y[0, 0])) + torch.einsum("ij->ji", y[0, 0]).T
        return torch.block_diag(z, z) + F.pad(z, (0, z.shape[1], 0, z.shape[0]))

    return bits(function(torch.ones(4, 4)))


@program
def losses():
    @whole
    def function(x, y):
        return (
            F.mse_loss(x, y)
            + F.smooth_l1_loss(x, y)
            + F.huber_loss(x, y)
            + F.kl_div(F.log_softmax(x, -1), F.softmax(y, -1), reduction="batchmean")
            + F.binary_cross_entropy_with_logits(x, torch.sigmoid(y))
            + F.triplet_margin_loss(x, y, x + y)
        )

    return bits(function(torch.arange(6.0).view(2, 3), torch.ones(2, 3)))


@program
def user_functions():
    @whole
    def function(x):
        return scale_many(x, x + 1, shift=0.5) + scale(x, shift=2.0) + add_three(x) + twice(x, 3.0)

    return bits(function(torch.arange(6.0).view(2, 3)))


@program
def user_function_on_top():
    return bits(whole(scale)(torch.ones(2, 2))) + bits(whole(scale_many)(torch.ones(2), by=3.0))


@program
def user_wraps_does_not_leak():
    return bits(whole(lambda x: named_like_scale(x))(torch.ones(2)))


@program
def user_modules():
    return bits(whole(Own())(torch.ones(2))) + bits(whole(Child())(torch.ones(2)))


@program
def functions_as_values():
    table = {"relu": F.relu, "scale": scale}

    @whole
    def function(x, activation):
        if activation is F.relu or activation == scale:
            x = x + 1
        return table["scale"](activation(x))

    return [bits(function(torch.ones(3), f)) for f in (F.relu, scale, add_three)]


@program
def defaults_changed_between():
    def function(x, by=2.0):
        return scale(x) * by

    run = whole(function)
    results = bits(run(torch.ones(3)))
    before = scale.__defaults__
    scale.__defaults__ = (5.0,)
    try:
        return results + bits(run(torch.arange(3.0)))
    finally:
        scale.__defaults__ = before


@program
def graph_breaks():
    @compiled
    def function(x):
        x = scale(x)
        torch._dynamo.graph_break()
        x = F.softmax(x, -1)
        print(end="")
        return add_three(x)

    return bits(function(torch.ones(3)))


@program
def disabled_inside():
    @torch.compiler.disable
    def outside(x):
        return F.relu(scale(x))

    return bits(compiled(lambda x: outside(x * 2) + 1)(torch.ones(3)))


@program
def initialisation():
    @compiled
    def function(x):
        nn.init.ones_(x)
        nn.init.constant_(x[0], 3.0)
        return x * 2

    return bits(function(torch.zeros(2, 2)))


@program
def dynamic_shapes():
    run = whole(lambda x: F.layer_norm(scale(x), (x.shape[-1],)))
    return [bits(run(torch.ones(n, 4)).sum()) for n in (2, 3, 4, 5)]


@program
def higher_order():
    @whole
    def function(x):
        return torch.func.grad(lambda t: F.softmax(scale(t), -1).pow(2).sum())(x)

    return bits(function(torch.arange(4.0)))


@program
def activation_checkpoint():
    from torch.utils.checkpoint import checkpoint

    @whole
    def function(x):
        return checkpoint(lambda t: F.gelu(scale(t)), x, use_reentrant=False).sum()

    x = torch.arange(4.0, requires_grad=True)
    function(x).backward()
    return bits(x.grad)


@program
def export():
    program = torch.export.export(GPT(depth=1).eval(), (torch.zeros(1, 4, dtype=torch.long),))
    return len(list(program.graph.nodes))


@program
def aot_eager():
    model = GPT(depth=1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    run = torch.compile(model, backend="aot_eager", fullgraph=True)
    return train(run, lambda: (optimizer.step(), optimizer.zero_grad()), steps=2)


@program
def inductor():
    run = torch.compile(lambda x: F.softmax(scale(x), -1).sum(), fullgraph=True)
    x = torch.arange(8.0, requires_grad=True)
    run(x).backward()
    return bits(x.grad)


def _prepare(mode):
    if mode == "plain":
        return
    from tocsin import _core, targets

    targets.install()
    for i, function in enumerate(USER):
        _core.hook(function, f"user.{i}", "user", _core.ARGUMENTS)
    if mode == "on":
        _core.count(True)


def main(mode, names):
    _prepare(mode)
    import torch._dynamo

    if mode != "plain":
        from tocsin import dynamo

        dynamo.prepare()
    results = {}
    for name in names or PROGRAMS:
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        graphs.clear()
        torch.manual_seed(0)
        value = PROGRAMS[name]()
        counted = {k: dict(v) for k, v in torch._dynamo.utils.counters.items() if k != "inductor"}
        results[name] = {"value": value, "graphs": list(graphs), "counters": counted}
    print(re.sub(r"0x[0-9a-f]{8,}>", "0x>", json.dumps(results, sort_keys=True)))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1], sys.argv[2:])
