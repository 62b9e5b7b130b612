"""`tocsin run --guard`: scripts that know nothing of a guard have one."""

import json
import os
import subprocess
import sys
from pathlib import Path

import guard_program
import pytest

PROGRAM = [sys.executable, str(Path(guard_program.__file__)), "3"]


def run(folder, names, *options, inject="", launcher=()):
    """(exit status, what each training printed, what was said, the ledger of rank 0)."""
    command = [*launcher, *PROGRAM, str(folder), *names]
    if options:
        command = [os.environ["TOCSIN"], "run", "-q", "-o", str(folder / "run"), *options,
                   "--guard-folder", str(folder / "ledger"), "--", *command]  # fmt: skip
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TOCSIN_INJECT": inject}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    seen = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    path = folder / "ledger" / "rank-0.jsonl"
    lines = path.read_text().splitlines()[1:] if path.exists() else []
    return done.returncode, seen, done.stderr, [json.loads(line) for line in lines]


def compared(folder, names):
    """What was said of scripts that compute the same bits with a guard."""
    (folder / "plain").mkdir()
    (folder / "guarded").mkdir()
    _, plain, _, _ = run(folder / "plain", names)
    status, guarded, said, ledger = run(folder / "guarded", names, "--guard")
    assert status == 0 and ledger == [], said
    assert [each["name"] for each in plain] == names and guarded == plain
    return [line for line in said.splitlines() if line.startswith("tocsin: guard")]


def test_a_guarded_script_computes_the_same_bits(tmp_path):
    names = ["unaware", *("unaware_" + name for name in
             "plain divided heads late_hook closure copies trials".split())]  # fmt: skip
    assert compared(tmp_path, names) == []


def test_what_has_no_guard_is_said_and_runs_on(tmp_path):
    said = compared(tmp_path, ["unaware_in_backward", "unaware_probe"])
    backward = "tocsin: guard: warning: optimizers that step inside a backward pass are not guarded"
    assert sorted(said) == [
        "tocsin: guard: warning: AdamW is not guarded: not all ranks came to step one like it",
        *3 * [backward],
    ]


def test_a_nan_in_what_a_closure_computes_is_seen_before_it_is_used(tmp_path):
    fault = "place=gradient name=outer.weight step=1 rank=2 pattern=nan"
    status, _, _, ledger = run(tmp_path, ["unaware_closure"], "--guard", inject=fault)
    (finding,) = ledger
    assert status == 87 and finding["step"] == 1 and finding["tensor"] == "outer.weight"
    assert finding["evidence"]["located"] == [2]


# A launcher whose status is 1 whenever a rank fails, as torchrun's is.
LAUNCHER = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode != 0)"


@pytest.mark.parametrize("launcher", [[], [sys.executable, "-c", LAUNCHER]], ids=["", "launched"])
def test_a_damaged_replica_ends_the_job_by_name(tmp_path, launcher):
    fault = "place=weight name=outer.weight step=3 rank=1 late=1"
    status, seen, said, ledger = run(tmp_path, ["unaware"], "--guard", inject=fault,
                                     launcher=launcher)  # fmt: skip
    assert status == 86 and seen == []
    assert "tocsin: guard: tensors of rank 1 differ" in said
    (finding,) = ledger
    assert finding["ranks"] == [1] and finding["tensor"] == "outer.weight"


def test_an_update_with_a_nan_is_skipped_on_all_ranks(tmp_path):
    fault = "place=gradient name=outer.weight step=3 rank=2 pattern=nan"
    status, seen, _, ledger = run(tmp_path, ["unaware_plain"], "--guard", "--guard-action",
                                  "skip_update", inject=fault)  # fmt: skip
    assert status == 0
    (finding,) = ledger
    assert finding["evidence"]["located"] == [2] and finding["index"] == [0, 0]
    ranks = seen[0]["ranks"]
    weights = [rank["bits"][guard_program.STEPS :] for rank in ranks]
    assert weights[0] == weights[1] == weights[2]
