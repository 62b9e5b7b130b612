"""The demo's own judgement: what counts as found, and as healthy."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples/demo"))
from healthy import healthy_programs  # noqa: E402
from run import CASES, REFERENCES, Case, judge, shorten  # noqa: E402
from tocsin_command import Program  # noqa: E402

HEALTHY = Case("healthy", Program("cnn.py", ""))
BROKEN = Case("broken", Program("cnn.py", "--fault stale-head"), about="held by no optimizer")


def report(*findings, holds=3):
    return {
        "holds": holds,
        "findings": [{"step": step, "rendered": text} for step, text in findings],
    }


@pytest.mark.parametrize(
    ("case", "given", "good"),
    [
        (HEALTHY, report(), True),
        (HEALTHY, report(holds=0), False),  # nothing judged is not healthy
        (HEALTHY, report((9, "anything")), False),
        (BROKEN, report((1, "head.weight: held by no optimizer")), True),
        (BROKEN, report((2, "head.weight: held by no optimizer")), True),
        (BROKEN, report((3, "head.weight: held by no optimizer")), False),  # too late
        (BROKEN, report((1, "a finding about something else")), False),
        (BROKEN, report((1, "else"), (5, "head.weight: held by no optimizer")), False),
        (BROKEN, report((None, "head.weight: held by no optimizer")), False),
        (BROKEN, report(), False),
    ],
)
def test_judge(case, given, good):
    assert judge(case, given)[0] is good


def test_shorten():
    assert shorten("a, b, c, d, e and 7 more: no gradient", 99) == "a and 11 more: no gradient"
    assert shorten("a, b and c: no gradient", 99) == "a and 2 more: no gradient"
    assert shorten("a and b: no gradient", 99) == "a and b: no gradient"
    assert shorten("a: one,\n two and three", 99) == "a: one, two and three"
    assert shorten("x" * 50, 20) == "x" * 17 + "..."


def test_the_demo_is_what_it_claims():
    assert len(REFERENCES) <= 3
    assert not any("--fault" in program.arguments for program in REFERENCES)
    faults = {case.program.arguments.split("--fault ")[1] for case in CASES if case.about}
    assert faults >= {"forgotten-zero-grad", "stale-head", "frozen", "detached", "clip-one-rank"}
    assert all(case.about for case in CASES if "--fault" in case.program.arguments)
    programs = healthy_programs(50)
    assert len(programs) >= 20
    assert len({str(program) for program in programs}) == len(programs)
    assert all("--steps 50" in program.arguments for program in programs)
    assert not any("--fault" in program.arguments for program in programs)


def test_the_programs_do_not_know_of_tocsin():
    folder = Path(__file__).resolve().parents[2] / "examples/demo"
    for name in ("cnn.py", "gpt.py"):
        code = (folder / name).read_text(encoding="utf-8").split('"""', 2)[2]
        assert "tocsin" not in code.lower()
