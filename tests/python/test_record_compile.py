"""Compiled models: the same numbers. Inside a compiled region nothing is seen but parameters."""

from recording import Script, recorded

COMPILED = """
    from torch import nn
    import torch._dynamo
    import torch.nn.functional as F

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        def forward(self, x):
            return self.second(F.gelu(self.first(x)))

    model = torch.compile(Model(), backend="eager", fullgraph=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(4):
        loss = F.mse_loss(model(torch.randn(3, 4)), torch.zeros(3, 2))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item().hex())
    stats = torch._dynamo.utils.counters["stats"]
    print(stats["unique_graphs"], stats["calls_captured"])
"""


def test_a_compiled_model():
    script = Script(COMPILED)
    plain, result = script.plain(), script.recorded(TOCSIN_QUIET="1")
    assert result.returncode == 0, result.stderr
    assert plain.stdout == result.stdout
    process = result.process
    assert process.variables() == ["first.bias", "first.weight", "second.bias", "second.weight"]
    assert process.meta("step") == [0, 1, 2, 3, 4]
    assert process.meta("stage") == ["init", "training"]
    steps = process.at_role("optimizer.step", "exit", variable="first.weight")
    assert len({group[0]["polynomial"] for group in steps}) == 4


def test_compiled_autograd_calls_no_module():
    """Its graph is a module that is called in the backward pass, and no model of the user's."""
    process = recorded(
        """
        from torch import nn
        from torch._dynamo import compiled_autograd
        model = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            loss = model(torch.ones(1, 2)).sum()
            with compiled_autograd._enable(torch.compile(backend="eager")):
                loss.backward()
            optimizer.step()
        """,
        TOCSIN_BOUNDARIES="full",
    ).process
    boundaries = [event for event in process.events if event.get("variable_kind") == "boundary"]
    for what in ("input", "output", "grad_output"):
        found = sorted(event["variable"] for event in boundaries if event["attribute"] == what)
        assert found == sorted(["", "0", "1"] * 2), what
