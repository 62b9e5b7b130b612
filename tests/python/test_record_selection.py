"""Selective recording: what the selection names, and nothing else."""

from recording import Script

TRAIN = """
    from torch import nn
    import torch.nn.functional as F
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(3):
        for micro in range(2):
            F.mse_loss(model(torch.randn(4, 3)), torch.zeros(4, 3)).backward()
        optimizer.step()
        optimizer.zero_grad()
    print(model[0].weight.sum().item().hex())
"""


MODES = """
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.eval()
    model.train()
    model(torch.randn(4, 2)).sum().backward()
    optimizer.step()
"""


def select(*lines, body=TRAIN):
    script = Script(body)
    selection = script.root / "selection"
    selection.write_text("\n".join(("tocsin-selection 1", *lines, "")))
    result = script.recorded(TOCSIN_MODE="run", TOCSIN_SELECTION=str(selection), TOCSIN_QUIET="1")
    assert result.returncode == 0 and result.stderr == "", result.stderr
    assert result.stdout == script.plain().stdout
    return result.process


def test_calls_with_and_without_arguments():
    process = select("# comment", "role loss", "function torch.nn.functional.dropout args")
    functions = {e["function"] for e in process.events if e["kind"] == "enter"}
    assert functions == {
        "torch.nn.functional.mse_loss",
        "torch.nn.functional.dropout",
        "torch.optim.Optimizer.step",
        "tocsin.step_end",
    }
    assert all(not c["values"] for c in process.calls("torch.nn.functional.mse_loss"))
    dropout = process.calls("torch.nn.functional.dropout")
    assert len(dropout) == 6 and "p" in {v["name"] for v in dropout[0]["values"]}
    assert not process.states()
    assert process.meta("step") == [0, 1, 2, 3] and process.meta("stage") == ["init", "training"]


def test_states():
    process = select(
        "state backward enter grad digest parameter",
        "state optimizer.step exit data digest parameter",
        "state optimizer.step enter grad presence parameter",
    )
    entries = process.at_role("backward", "enter", variable="0.weight")
    digested = [["digested" in s["flags"] for s in group] for group in entries]
    assert digested[2:] == [[False], [False], [False], [False]]  # None, then presence only
    assert ["present" in group[0]["flags"] for group in entries[2:]] == [False, True, False, True]
    before = process.at_role("optimizer.step", "enter", variable="0.weight", attribute="data")
    assert [len(group) for group in before] == [1, 0, 0]
    after = process.at_role("optimizer.step", "exit", variable="0.weight")
    assert len({group[0]["polynomial"] for group in after}) == 3
    grads = process.at_role("optimizer.step", "enter", attribute="grad", variable="0.weight")
    assert all(group[0]["flags"].count("present") and "sum" not in group[0] for group in grads)
    assert not process.states(variable_kind="buffer")
    assert not process.calls("torch.nn.Module.__call__")


def test_buffers_only():
    process = select("state optimizer.step exit data digest buffer")
    assert process.variables() == ["1.num_batches_tracked", "1.running_mean", "1.running_var"]


def test_a_call_inside_another_of_its_role_is_none():
    process = select("function torch.nn.Module.train args", body=MODES)
    calls = process.calls("torch.nn.Module.train")
    assert [c["values"][-1]["value"] for c in calls] == [True]
    assert not process.calls("torch.nn.Module.eval")


def test_a_bad_selection_is_one_line_and_the_job_goes_on():
    script = Script(TRAIN)
    selection = script.root / "selection"
    selection.write_text("tocsin-selection 1\nrole nonsense\n")
    result = script.recorded(TOCSIN_MODE="run", TOCSIN_SELECTION=str(selection))
    assert result.returncode == 0 and result.stdout == script.plain().stdout
    (line,) = result.stderr.splitlines()
    assert line.startswith("tocsin: error: not recording: ") and "line 2: unknown role" in line
    assert not result.files
