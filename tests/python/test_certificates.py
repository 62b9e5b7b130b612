"""Certificates of proofs: the checker accepts those of equal plans, written from them, and rejects
every one of more than a thousand single-fact mutations of them; those of other plans; and those
that claim a wrong plan to be proved, with the digest made to fit."""

import copy
import json
import os
import random
import re
import subprocess
import sys
from pathlib import Path

import certificate_mutations
import pytest

ROOT = Path(os.environ.get("TOCSIN_SOURCE", Path(__file__).resolve().parents[2]))
TOCSIN = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
REAL = Path(os.environ.get("TOCSIN_NNSCALER_PLANS", ROOT.parent / "shared/data/nnscaler-plans"))
sys.path[:0] = [str(ROOT / "bench/plans"), str(ROOT / "tests/ref")]

from parallel_plan import Config, build_pair  # noqa: E402
from plan_mutations import mutations  # noqa: E402
from plan_objects import write_plan  # noqa: E402

MESH = dict(layers=2, dp=2, pp=2, tp=2, nm=2)
PAIRS = {
    "mlp": dict(model="mlp", dp=3, tp=4, nm=3),
    "llama": dict(model="llama", **MESH),
    "sequence": dict(model="llama", sp=True, **MESH),
    "zero-1": dict(model="llama", zero=1, **MESH),
    "zero-3": dict(model="llama", zero=3, **MESH),
    "vocabulary": dict(model="llama", vocab_embedding=True, **MESH),
    "moe": dict(model="moe", **MESH),
    "context": dict(model="llama", layers=2, dp=2, cp=2, tp=2, nm=2),
}
LLAMA = "llama3_default_dp{}_pp{}_tp{}_nm{}_gbs512_ly2_h32_hi4096_sq128.pkl.zst"
MUTATIONS = 150  # of each certificate
SEED = 20261129


def verify(*arguments):
    return subprocess.run([TOCSIN, "verify", *map(str, arguments)], capture_output=True, text=True)


def certify(folder, logical, parallel, *options):
    path = folder / "certificate"
    done = verify(logical, parallel, "--certificate", path, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module", params=[*PAIRS, "nnscaler"])
def proved(request, tmp_path_factory):
    """(certificate, logical plan, parallel plan, options of reading)"""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "nnscaler":
        pair = [REAL / LLAMA.format(1, 1, 1, 1), REAL / LLAMA.format(2, 2, 2, 2)]
        if not pair[1].exists():
            pytest.skip(f"there are no nnScaler plans in {REAL}")
        return certify(folder, *pair, "--order=metadata"), *pair, ["--order=metadata"]
    pair = [folder / "logical.plan", folder / "parallel.plan"]
    for plan, path in zip(build_pair(Config(**PAIRS[request.param])), pair):
        write_plan(plan, path)
    return certify(folder, *pair), *pair, []


def test_accepted(proved):
    path, logical, parallel, options = proved
    done = verify("--check", path, logical, parallel, "--format=json", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "ACCEPTED" and result["reason"] == ""
    assert result["facts"] > 0 and result["outputs"] > 0


def test_accepted_when_enumerated(proved, tmp_path):
    _, logical, parallel, options = proved
    path = certify(tmp_path, logical, parallel, "--enumerate", *options)
    assert "replicas each\nmicrobatches each\n" in path.read_text()
    done = verify("--check", path, logical, parallel, *options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_mutations_are_rejected(proved, tmp_path):
    """8 pairs and one of real plans: 1,350 mutations. No other status than 1 and 2."""
    path, logical, parallel, options = proved
    text, source = path.read_text(), random.Random(f"{SEED}-{Path(parallel).name}")
    mutated = tmp_path / "mutated"
    seen = {1: 0, 2: 0}
    for _ in range(MUTATIONS):
        name, changed, changes = certificate_mutations.mutate(source, text)
        mutated.write_text(changed)
        done = verify("--check", mutated, logical, parallel, *options)
        lines = text.split("\n")
        assert done.returncode in seen, [name, [(lines[k], new) for k, new in changes.items()]]
        seen[done.returncode] += 1
    assert seen[1] > MUTATIONS / 4  # well-formed, but wrong


def test_other_plans_are_rejected(proved, tmp_path):
    path, logical, parallel, options = proved
    if options:
        pytest.skip("one pair of real plans only")
    other = [tmp_path / "logical.plan", tmp_path / "parallel.plan"]
    for plan, to in zip(build_pair(Config(model="mlp", layers=3, dp=2, tp=2)), other):
        write_plan(plan, to)
    for pair in ((other[0], parallel), (logical, other[1]), other):
        assert verify("--check", path, *pair).returncode in (1, 2)


@pytest.fixture(scope="module")
def forge(tmp_path_factory):
    """The healthy plan's certificate, with the edited plan's digest put in."""
    healthy = {}

    def check(change, number):
        key = json.dumps(change.config, sort_keys=True)
        if key not in healthy:
            folder = tmp_path_factory.mktemp("healthy")
            pair = build_pair(Config(**change.config))
            paths = [folder / "logical.plan", folder / "parallel.plan"]
            for plan, path in zip(pair, paths):
                write_plan(plan, path)
            healthy[key] = (pair[1], *paths, certify(folder, *paths).read_text())
        plan, logical, parallel, text = healthy[key]
        edited, path = parallel.parent / f"{number}.plan", parallel.parent / f"{number}.forged"
        changed = copy.deepcopy(plan)
        change.edit(changed)
        write_plan(changed, edited)
        path.write_text(text)
        done = verify("--check", path, logical, edited)
        assert done.returncode in (1, 2), str(change)
        digest = re.search(r"not of ([0-9a-f]{32})", done.stdout)
        if digest is None:
            return done.returncode  # it does not even have the edited plan's form
        forged = re.sub(r"\nparallel [0-9a-f]{32}\n", f"\nparallel {digest[1]}\n", text)
        path.write_text(forged)
        return verify("--check", path, logical, edited).returncode

    return check


def test_forged_certificates_of_wrong_plans_are_rejected(forge):
    """Every sixth of the mistakes, with a certificate that says that nothing is wrong."""
    chosen = [m for k, m in enumerate(mutations()) if k % 6 == 1]
    assert len(chosen) > 60
    for number, mutation in enumerate(chosen):
        assert forge(mutation, number) in (1, 2), str(mutation)


def test_malformed(proved, tmp_path):
    path, logical, parallel, options = proved
    text, bad = path.read_text(), tmp_path / "bad"
    for broken in ("", "tocsin-certificate 1\n", text[: len(text) // 2], text + "end\n", "\0" * 99):
        bad.write_text(broken)
        done = verify("--check", bad, logical, parallel, *options)
        assert done.returncode == 2 and done.stdout == "", done.stdout
        assert len(done.stderr.strip().split("\n")) <= 2 and "certificate" in done.stderr
    bad.write_text(text.replace("tocsin-certificate 1", "tocsin-certificate 2", 1))
    done = verify("--check", bad, logical, parallel, *options)
    assert done.returncode == 2 and "version" in done.stderr


def test_none_is_written_when_not_proved(tmp_path):
    mutation = next(iter(mutations()))
    logical, parallel = build_pair(Config(**mutation.config))
    mutation.edit(parallel)
    paths = [tmp_path / "logical.plan", tmp_path / "parallel.plan"]
    write_plan(logical, paths[0])
    write_plan(parallel, paths[1])
    assert verify(*paths, "--certificate", tmp_path / "certificate").returncode == 1
    assert not (tmp_path / "certificate").exists()
