"""The guard's judgements as Python sees them: rows as bytes in, dicts out, and what is refused."""

import json
import pathlib
import struct
import sys

import pytest

from tocsin import _core

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "ref"))
import guard_ledger  # noqa: E402


def gradient_row(nan=0, inf=0, large=0, place=(-1, -1, -1), norm=1.0, scale=0.0, flags=3):
    return struct.pack("=QQQqqqddQ", nan, inf, large, *place, norm, scale, flags)


def digests(*values):
    return b"".join(struct.pack("=3Q", value, value, value) for value in values)


def run(owner, executor, attempt, result, flags=0):
    return struct.pack("=IIIIQQQ", owner, executor, attempt, flags, result, 0, 0)


def comparison_row(differ=0, item=-1, word=-1):
    return struct.pack("=QQqq6Q", 3, differ, item, word, 1, 1, 1, 1 + differ, 1, 1)


def test_gradients():
    rows = gradient_row() * 3
    assert _core.guard_gradients(rows, step=3, passed=2) == ("pass", None)
    bad = gradient_row(nan=2, place=(1, 0, 17), norm=float("nan"))
    verdict, finding = _core.guard_gradients(bad * 3, step=3, passed=2, names=["fc.weight"])
    assert verdict == "finding"
    assert guard_ledger.check(finding)["tensor"] == "fc.weight"
    assert (finding["bucket"], finding["index"], finding["cause"]) == (1, [17], "software")
    scaled = gradient_row(inf=1, norm=float("inf"), scale=1024.0)
    assert _core.guard_gradients(scaled, step=3, passed=2) == ("scaler_skip", None)
    assert _core.guard_gradients(scaled, step=3, passed=2, skips=32)[0] == "finding"


def test_vote():
    healthy, faulty = digests(1, 2), digests(1, 3)
    assert _core.guard_vote([healthy] * 3, step=5, passed=4) is None
    finding = _core.guard_vote(
        [healthy, faulty, healthy], step=5, passed=3, names=["a", "b"], ranks=[1, 4, 6]
    )
    assert guard_ledger.check(finding)["ranks"] == [4]
    assert (finding["tensor"], finding["suspect_window"]) == ("b", [4, 5])
    again = _core.guard_vote([healthy, faulty, healthy], step=5, passed=5, named=[1])
    assert (again["cause"], again["suspect_window"]) == ("persistent", [5, 5])
    memory = _core.guard_vote([healthy, faulty], step=5, passed=4, check="memory")
    assert (memory["check"], memory["ranks"]) == ("memory", [])


def test_replay():
    """A rank that is always wrong, judged by rank programs that do what is asked for."""

    def result(owner, executor):
        return 999 if executor == 2 else owner

    runs = [run(o, e, 0, result(o, e)) for o in range(4) for e in (o, (o + 3) % 4)]
    rounds = 0
    while wanted := _core.guard_replay_requests(b"".join(runs), 4):
        rounds += 1
        runs += [run(o, e, a, result(o, e)) for o, e, a in wanted]
    finding = _core.guard_replay_judge(b"".join(runs), 4, step=20, passed=10)
    assert rounds == 2
    assert guard_ledger.check(finding)["ranks"] == [2]
    assert (finding["cause"], finding["suspect_window"]) == ("persistent", [11, 20])


def test_comparison():
    rows = comparison_row() * 2 + comparison_row(1, 0, 33)
    finding = _core.guard_comparison("memory", rows, step=4, passed=3, names=["w"])
    assert guard_ledger.check(finding)["ranks"] == [2]
    assert finding["index"] == [33]
    finding = _core.guard_comparison("recompute", rows, 4, 3, deterministic=False)
    assert (finding["cause"], finding["ranks"]) == ("nondeterministic", [])
    assert _core.guard_comparison("saved", comparison_row() * 2, 4, 3) is None


def test_finding():
    finding = _core.guard_finding(
        "peer", "unattributable", "rank 3 is silent", 7, 6, evidence='{"missing":[3]}', index=5
    )
    assert guard_ledger.check(finding)["evidence"] == {"missing": [3]}
    assert (finding["index"], finding["text"]) == ([5], "rank 3 is silent")
    for cause, ranks in (("unattributable", [3]), ("transient", [])):
        with pytest.raises(ValueError, match="names ranks if its cause"):
            _core.guard_finding("peer", cause, "", 7, 6, ranks=ranks)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _core.guard_gradients(b"", step=1, passed=0), "no rank"),
        (lambda: _core.guard_gradients(b"12345678", step=1, passed=0), "rows of 72 bytes"),
        (lambda: _core.guard_gradients(memoryview(bytes(73))[1:], step=1, passed=0), "aligned"),
        (lambda: _core.guard_vote([], step=1, passed=0), "no replicas"),
        (lambda: _core.guard_vote([digests(1), digests(1, 2)], step=1, passed=0), "unlike numbers"),
        (lambda: _core.guard_vote([digests(1)] * 2, step=1, passed=0, ranks=[1]), "as many ranks"),
        (lambda: _core.guard_vote([digests(1)], step=1, passed=0, names=[]), "fewer names"),
        (lambda: _core.guard_vote([digests(1)], 1, 0, check="fate"), "no check is called"),
        (lambda: _core.guard_finding("peer", "fate", "", 1, 0), "no cause is called"),
        (lambda: _core.guard_replay_requests(run(0, 1, 0, 5), 2), "no first run"),
        (lambda: _core.guard_comparison("saved", b"", 1, 0), "no rank"),
        (lambda: _core.guard_vote([digests(1)], 1, 0, ranks=[1 << 20]), "is no rank"),
        (lambda: _core.guard_vote([digests(1)], 1, 0, names=["\ud800"]), "surrogates"),
    ],
)
def test_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_ledger(tmp_path):
    path = tmp_path / "rank-0.jsonl"
    finding = _core.guard_finding("memory", "software", "x\u00fc\n", 2, 1)
    _core.guard_ledger_append(path, finding)
    with open(path, "ab") as file:
        file.write(b'{"schema":1,"che')
    findings, damaged, torn = guard_ledger.read(path)
    assert (findings, damaged, torn) == ([finding], [], True)
    _core.guard_ledger_append(str(path), {**finding, "time": 1.5})
    findings, damaged, torn = guard_ledger.read(path)
    assert (len(findings), damaged, torn) == (2, [3], False)
    assert json.loads(path.read_text().splitlines()[-1])["time"] == 1.5
    with pytest.raises(ValueError, match="JSON object"):
        _core.guard_ledger_append(path, [1])
    with pytest.raises(ValueError, match="JSON compliant"):
        _core.guard_ledger_append(path, {"a": float("nan")})
    with pytest.raises(FileNotFoundError):
        _core.guard_ledger_append(tmp_path / "none" / "a.jsonl", finding)
