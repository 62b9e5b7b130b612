"""What counts as found, late and cause first, and that cases.json fits the programs."""

import json
import re
from pathlib import Path

import pytest
from run_corpus import describe, judge_case

HERE = Path(__file__).resolve().parent
CASES = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))["cases"]
CASE = {
    "id": "x", "trigger": {"step": 3, "kind": "step"}, "relation": ["TOC001", "TOC003"],
    "entity": "head", "cause": "differs",
}  # fmt: skip


def finding(step, code="TOC001", rendered="head.weight differs", entity="head.weight"):
    return {"step": step, "code": code, "rendered": rendered, "entity": entity}


@pytest.mark.parametrize(
    "findings, said",
    [
        ([], "silent"),
        ([finding(3)], "cause first @3"),
        ([finding(4)], "cause first @4"),
        ([finding(5)], "late @5"),
        ([finding(None)], "late @None"),
        ([finding(3, code="TOC004")], "1 other"),
        ([finding(3, rendered="head.weight is NaN")], "1 other"),
        ([finding(3, rendered="stem differs", entity="stem")], "1 other"),
        ([finding(2, code="TOC004"), finding(3)], "found @3"),
        ([finding(3), finding(3, code="TOC004")], "cause first @3"),
    ],
)
def test_verdicts(findings, said):
    assert describe(judge_case(CASE, findings)) == said


def test_what_shows_at_the_end_has_no_step():
    case = {**CASE, "trigger": {"step": 3, "kind": "end"}}
    assert judge_case(case, [finding(None)])["found"]


def test_a_judge_that_does_not_exist():
    assert judge_case(CASE, None) is None and describe(None) == "-"


def test_every_program_is_a_case_and_small():
    programs = {path.stem: path for path in (HERE / "cases").glob("*.py")}
    assert sorted(programs) == sorted(case["program"] for case in CASES)
    assert len({case["id"] for case in CASES}) == len(CASES)
    for case in CASES:
        text = programs[case["program"]].read_text(encoding="utf-8")
        assert len(text.splitlines()) <= 60, case["id"]
        assert ("init_process_group" in text) == (case.get("ranks", 1) > 1), case["id"]
        assert ("BUG" in text) == (not case.get("control", False)), case["id"]
        # A program asserts that the mistake happened, or breaks by it.
        assert "--prove" in text or case.get("breaks"), case["id"]


def test_expectations_can_be_read():
    for case in CASES:
        if not case.get("control"):
            assert case["relation"] and case["trigger"]["step"] >= 1, case["id"]
            re.compile(case["entity"]), re.compile(case["cause"])


def test_references_share_no_code_with_the_cases():
    shared = re.compile(r"^(?:from|import) (\w+)", re.M)
    own = {path.stem for path in HERE.rglob("*.py")}
    for path in [*(HERE / "references").glob("*.py"), *(HERE / "cases").glob("*.py")]:
        imported = set(shared.findall(path.read_text(encoding="utf-8")))
        assert not imported & own, path.name
