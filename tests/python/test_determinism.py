"""`tocsin env`: each setting that decides bits, and what is wrong with it, or in which two
recordings differ; tocsin.deterministic."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import tocsin
import torch
from tocsin import determinism, fingerprint

HERE = Path(__file__).resolve().parent
TOCSIN = os.environ["TOCSIN"]


def audit(*arguments, **variables):
    """(exit status, {name: state})"""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "MKL_", "PYTHONHASH"))}
    environment = {**kept, "TOCSIN_PYTHON": sys.executable, **variables}
    command = [TOCSIN, "env", "--format", "json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    report = json.loads(done.stdout)
    assert report["schema"] == 1 and report["fixed"] == (done.returncode == 0)
    return done.returncode, {s["name"]: s["state"] for s in report["settings"]}


def test_what_is_missing_or_wrong():
    status, states = audit("--gpu", OMP_NUM_THREADS="2", MKL_CBWR="AUTO", NCCL_TIMEOUT="60",
                           NCCL_BLOCKING_WAIT="1", CUBLAS_WORKSPACE_CONFIG=":8:8")  # fmt: skip
    assert status == 1
    assert states["OMP_NUM_THREADS"] == "ok" and states["PYTHONHASHSEED"] == "missing"
    assert states["MKL_CBWR"] == states["CUBLAS_WORKSPACE_CONFIG"] == "bad value"
    assert states["NCCL_TIMEOUT"] == "ghost" and states["NCCL_BLOCKING_WAIT"] == "deprecated"
    assert states["torch.use_deterministic_algorithms"] == "missing"


def test_what_must_be_equal_or_is_optional():
    _, states = audit("--gpu", NCCL_MIN_NCHANNELS="2", NCCL_MAX_NCHANNELS="4", MKL_NUM_THREADS="1")
    assert states["NCCL_MIN_NCHANNELS"] == "bad value" and states["MKL_NUM_THREADS"] == "ok"
    assert states["torch.utils.deterministic.fill_uninitialized_memory"] == "ok"
    assert states["torch.backends.cudnn.conv.fp32_precision"] in ("ok", "bad value")
    assert "MAMBA_DETERMINISTIC" not in states  # that package is not there
    assert "MKL_NUM_THREADS" not in audit()[1]


def test_only_what_there_is_needs():
    _, states = audit()
    assert "CUBLAS_WORKSPACE_CONFIG" not in states or torch.cuda.is_available()


def test_too_late():
    code = "import os; os.environ['OMP_NUM_THREADS'] = '2'; from tocsin import determinism as d;" \
           "print({n: s for n, s, *_ in d.audit()}['OMP_NUM_THREADS'])"  # fmt: skip
    kept = {k: v for k, v in os.environ.items() if k != "OMP_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=kept)
    assert done.stdout.strip() == "too late"


def test_deterministic():
    try:
        tocsin.deterministic(7)
        first = torch.rand(3)
        tocsin.deterministic(7)
        assert torch.equal(first, torch.rand(3))
        assert torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cudnn.benchmark
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("env")
    (folder / ".git").mkdir()
    (folder / ".git/HEAD").write_text("0123abc\n")
    program = (HERE / "align_program.py").read_text()
    for name, threads, more in (("a", "1", {}), ("b", "2", {"NCCL_TIMEOUT": "9"})):
        (folder / "train.py").write_text(f"# {name}\n{program}")
        command = [TOCSIN, "record", "-q", "-o", folder / name, "--"]
        command += [sys.executable, folder / "train.py", "none", 1]
        path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
        environment = {**os.environ, "OMP_NUM_THREADS": threads, "SECRET": "s3cr3t", **more}
        environment["PYTHONPATH"] = path
        subprocess.run(list(map(str, command)), check=True, env=environment)
    return folder


def test_two_recordings(runs):
    """What decides bits comes first, what is harmless last; what is equal is not shown."""
    command = [TOCSIN, "env", "--format", "json", str(runs / "a"), str(runs / "b")]
    done = subprocess.run(command, capture_output=True, text=True)
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["schema"] == 1 and report["same"] is False
    assert [(s["name"], s["rating"], s["a"], s["b"]) for s in report["settings"]][:2] == [
        ("OMP_NUM_THREADS", "decides", "1", "2"),
        ("torch.get_num_threads", "decides", "1", "2"),
    ]
    assert [(s["name"], s["rating"]) for s in report["settings"]][2:] == [
        ("script", "may decide"),
        ("NCCL_TIMEOUT", "harmless"),
    ]
    done = subprocess.run([*command[:-1], command[-2]], capture_output=True, text=True)
    assert (done.returncode, json.loads(done.stdout)["settings"]) == (0, [])


def test_what_is_kept(runs):
    done = subprocess.run([TOCSIN, "dump", "--format", "jsonl", str(runs / "a")],
                          capture_output=True, text=True)  # fmt: skip
    events = [json.loads(line) for line in done.stdout.splitlines() if '"rating"' in line]
    kept = {event["variable"]: event["values"][0]["value"] for event in events}
    assert kept["torch"] == torch.__version__ and kept["commit"] == "0123abc"
    assert kept["package torch"] == torch.__version__
    assert {"torch.build", "torch.cpu_capability", "processor.flags", "kernel"} <= kept.keys()
    assert "s3cr3t" not in done.stdout


def test_commit(tmp_path):
    """Read from files: of a branch, packed, of a worktree, of none."""
    git, script = tmp_path / "r/.git", str(tmp_path / "r/in/train.py")
    (git / "refs/heads").mkdir(parents=True)
    (tmp_path / "r/in").mkdir()
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert fingerprint.commit(script) == ""
    (git / "packed-refs").write_text("# pack-refs\naaa refs/heads/main2\nbbb refs/heads/main\n")
    assert fingerprint.commit(script) == "bbb"
    (git / "refs/heads/main").write_text("ccc\n")
    assert fingerprint.commit(script) == "ccc"
    own = git / "worktrees/w"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    (own / "commondir").write_text("../..\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w/.git").write_text(f"gitdir: {own}\n")
    assert fingerprint.commit(str(tmp_path / "w/train.py")) == "ccc"
    assert fingerprint.commit("/train.py") == ""


def test_ratings():
    """Every setting has one of three, once."""
    found = determinism.settings(torch)
    assert {rating for *_, rating in found} <= {"decides", "may decide", "harmless"}
    assert len({name for name, *_ in found}) == len(found)
    assert all(text and isinstance(text, str) for _, text, _ in found)
