"""Faults come in where, when and as they were asked for, and the log says what they changed."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from recording import Script

from tocsin import fault_patterns, injection

PROGRAM = """
    import sys
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(1)
    model = nn.Sequential()
    model.add_module("first", nn.Linear(4, 8))
    model.add_module("second", nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(model.parameters())
    called = torch.compile(model, backend="eager") if "compile" in sys.argv else model
    for x, y in DataLoader(TensorDataset(torch.randn(20, 4), torch.randn(20, 2)), 4):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(called(x), y)
        loss.backward()
        optimizer.step()
        print(loss.item())
    assert bool(nn.modules.module._global_forward_pre_hooks) == ("missing" in sys.argv)
"""


def run(*faults, arguments=(), **environment):
    result = Script(PROGRAM).recorded(*arguments, TOCSIN_INJECT=";".join(faults), **environment)
    assert result.returncode == 0, result.stderr
    prefix = "tocsin: injected "
    lines = [line for line in result.stderr.splitlines() if line.startswith(prefix)]
    return result, [json.loads(line[len(prefix) :]) for line in lines]


def put(pattern, tensor, **more):
    options = {"element": None, "bit": None, "value": None, **more}
    fault = SimpleNamespace(pattern=pattern, **options)
    return fault_patterns.apply(tensor, fault, random.Random(3))


@pytest.mark.parametrize(
    ("pattern", "dtype"),
    [
        (pattern, dtype)
        for pattern in sorted(injection.PATTERNS)
        for dtype in (torch.float32, torch.bfloat16, torch.float64, torch.int64)
        if dtype.is_floating_point or pattern not in ("nan", "reorder", "rescale")
    ],
)
def test_the_log_says_what_changed(pattern, dtype):
    tensor = torch.arange(1, 241, dtype=torch.float32).reshape(24, 10).to(dtype)
    tensor += 1 / 3 if dtype.is_floating_point else 100000
    before = tensor.clone()
    state = torch.get_rng_state()
    truth = put(pattern, tensor)
    assert torch.equal(state, torch.get_rng_state())
    changed = (fault_patterns.words(before) != fault_patterns.words(tensor)).sum()
    assert truth["changed"] == changed > 0 or (pattern, dtype) == ("rounded", torch.bfloat16)
    for element in truth["elements"]:
        place = tuple(element["index"])
        flipped = int(fault_patterns.words(before)[place] ^ fault_patterns.words(tensor)[place])
        width = 8 * tensor.element_size()
        assert flipped % (1 << width) == sum(1 << bit for bit in element["bits"])


@pytest.mark.parametrize("pattern,changed", [("bit", 1), ("warp", 8), ("tile", 32), ("rows", 20)])
def test_how_many(pattern, changed):
    tensor = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    assert put(pattern, tensor)["changed"] == changed


def test_layouts():
    """Not contiguous, of no axes, complex."""
    assert put("bit", torch.zeros(3, 5).t(), element=(4, 1), bit=31)["elements"] == [
        {"index": [4, 1], "bits": [31]}
    ]
    assert put("bit", torch.tensor(2.0))["elements"][0]["index"] == []
    assert put("sign", torch.ones(3, dtype=torch.complex64))["elements"][0]["bits"] == [31]


def test_places():
    faults = [
        "place=gradient name=first.weight step=2 bit=4 element=7,3",
        "place=gradient late=1 name=second.bias step=2 bit=5 element=1",
        "place=weight name=first.bias step=3 element=2 pattern=stuck value=0.5",
        "place=weight late=1 name=second.weight step=3 pattern=sign",
        "place=optimizer name=first.weight#exp_avg step=4 pattern=scale",
        "place=activation name=first step=1 pattern=nan element=0,0",
        "place=input name=second step=1 pattern=rows",
        "place=batch step=5 pattern=rescale",
        "place=generator step=5",
    ]
    result, truths = run(*faults)
    assert [(t["step"], t["place"], t["fqn"], t["role"]) for t in truths] == [
        (1, "activation", "first", "output"),
        (1, "input", "second", "input"),
        (2, "gradient", "first.weight", "grad"),
        (2, "gradient", "second.bias", "grad"),
        (3, "weight", "first.bias", "data"),
        (3, "weight", "second.weight", "data"),
        (4, "optimizer", "first.weight#exp_avg", "data"),
        (5, "batch", "", "samples"),
        (5, "generator", "", "value"),
    ]
    assert truths[2]["elements"] == [{"index": [7, 3], "bits": [4]}]
    assert truths[3]["elements"] == [{"index": [1], "bits": [5]}]
    assert result.stdout.splitlines()[0] == "nan"
    assert result.stderr.count("FAULT INJECTION") == len(faults)


def test_persistent_and_compiled():
    """The same element in each step; the compiled region is called as ever."""
    _, truths = run("place=activation step=3 persistent=1 bit=20", arguments=("compile",))
    assert [truth["step"] for truth in truths] == [3, 4, 5]
    assert len({str(truth["elements"]) for truth in truths}) == 1


def test_ranks_and_names():
    result, truths = run("place=gradient name=first.weight step=2 rank=1", RANK="1")
    assert len(truths) == 1 and truths[0]["rank"] == 1
    result, truths = run("place=gradient name=first.weight step=2 rank=1", RANK="0")
    assert truths == [] and "no fault was injected" not in result.stderr
    result, _ = run("place=gradient name=third.weight step=2", arguments=("missing",))
    assert "no fault was injected" in result.stderr and "nothing has that name" in result.stderr


UNREADABLE = """place=gradient|place=moon step=1|step=1 place|place=batch step=x|place=batch step=0
place=optimizer name=first.weight step=1|place=batch late=1 step=1|place=batch colour=red step=1
place=batch step=1 calls=some|place=collective name=all step=1
place=checkpoint late=1 pattern=nan step=1"""


@pytest.mark.parametrize("fault", UNREADABLE.replace("\n", "|").split("|"))
def test_what_cannot_be_read(fault):
    with pytest.raises(ValueError):
        for arguments in injection.parse(fault):
            injection.Fault(**arguments)


def test_a_log_that_cannot_be_written_is_said_at_once(tmp_path):
    with pytest.raises(ValueError, match="log: .*No such file"):
        injection.inject("batch", step=1, log=str(tmp_path / "nowhere" / "log"))


def test_a_run_without_its_fault_is_none():
    result, truths = run("place=moon step=1")
    assert truths == [] and "not recording: ValueError" in result.stderr


def test_from_a_script():
    """Not recorded; ended before its second time."""
    result = Script("""
    import tocsin
    from torch import nn

    fault = tocsin.inject("activation", "", step=1, persistent=True, element=(0, 0), bit=30)
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for step in range(3):
        model(torch.ones(2, 2)).sum().backward()
        optimizer.step()
        if step == 1:
            fault.close()
    print(len(fault.done), fault.done[1]["step"], fault.done[0]["elements"])
    """).plain()
    assert result.stdout == "2 2 [{'index': [0, 0], 'bits': [30]}]\n", result.stderr
