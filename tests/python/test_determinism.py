"""`tocsin env`: each setting that decides bits, and what is wrong with it; tocsin.deterministic."""

import json
import os
import subprocess
import sys

import tocsin
import torch

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
