"""`tocsin import traincheck` and `check -i` on real traces of buggy runs (the folder
TOCSIN_TRAINCHECK_TRACES, or shared/data/traincheck-traces beside the checkout; without it, skipped)
with the invariants that their authors curated."""

import json
import os
import re
import subprocess
import tarfile
from pathlib import Path

import pytest

SOURCE = Path(os.environ.get("TOCSIN_SOURCE", Path(__file__).resolve().parents[2]))
TOCSIN = os.environ.get("TOCSIN", str(SOURCE / "build/tocsin"))
REAL = Path(
    os.environ.get("TOCSIN_TRAINCHECK_TRACES", SOURCE.parent / "shared/data/traincheck-traces")
)
RECORDS = {
    "healthy-ddp-8": 19152,
    "pytorch-104336": 28334,
    "x-jxmnop-ddp-out-of-sync": 8358,
    "deepspeed-1801": 624,
    "transformers-17877": 7842,
    "pytorch-115607": 10971,
    "pytorch-51800": 865,
    "stackoverflow-60335387": 824,
}

pytestmark = pytest.mark.skipif(
    not REAL.is_dir(), reason=f"no traces: {REAL} (TOCSIN_TRAINCHECK_TRACES)"
)


def tocsin(*arguments):
    return subprocess.run([TOCSIN, *map(str, arguments)], capture_output=True, text=True)


@pytest.fixture(scope="session")
def traces(tmp_path_factory):
    """The folders of the traces, unpacked."""
    folder = tmp_path_factory.mktemp("traces")
    for name in RECORDS:
        tar = subprocess.run(
            ["zstd", "-dc", REAL / f"{name}.tar.zst"], capture_output=True, check=True
        ).stdout
        (folder / "x.tar").write_bytes(tar)
        with tarfile.open(folder / "x.tar") as archive:
            archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="session")
def runs(traces, tmp_path_factory):
    """Each trace as a run, and what the import said."""
    folder = tmp_path_factory.mktemp("runs")
    said = {}
    for name in RECORDS:
        done = tocsin("import", "traincheck", "-o", folder / name, traces / name)
        assert done.returncode == 0, done.stderr
        said[name] = done.stderr
    return folder, said


def check(runs, name, invariants):
    done = tocsin("check", "--format", "json", "-i", invariants, runs[0] / name)
    return done.returncode, json.loads(done.stdout)


def records(folder):
    """All records of a folder of traces, by file."""
    return {
        path.name: [json.loads(line) for line in path.read_text().splitlines()]
        for path in folder.glob("*")
        if re.match(r"trace_|proxy_log", path.name)
    }


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_imported(name, traces, runs):
    assert f"imported {RECORDS[name]:,} records" in runs[1][name]
    assert "left out" not in runs[1][name]


@pytest.mark.parametrize("name", RECORDS)
def test_an_export_has_equal_records(name, traces, runs, tmp_path):
    done = tocsin("export", "traincheck", "-o", tmp_path / "back", runs[0] / name)
    assert done.returncode == 0, done.stderr
    assert records(tmp_path / "back") == records(traces / name)


def test_a_call_without_its_end_is_left_open(runs):
    assert "1 calls without their end" in runs[1]["pytorch-115607"]


def test_repeated_initialisation_is_found(traces, runs):
    status, report = check(
        runs, "transformers-17877", traces / "transformers-17877/invariants.json"
    )
    assert status == 1
    (finding,) = report["findings"]
    assert finding["entity"] == "torch._C.TensorBase.normal_"
    # its own tool: 196 calls with 51 different arguments
    assert finding["occurrences"] == 196 - 51


# variables and TrainCheck's step of the first violation; its own tool says the same of deepspeed
CURATED = {
    "pytorch-104336": ("model.conv1.weight", 1),
    "x-jxmnop-ddp-out-of-sync": ("model.embeddings.position_embeddings.weight", 1),
    "deepspeed-1801": ("model.module.3.mlp.dense_4h_to_h.bias", 2),
}


@pytest.mark.parametrize("name", CURATED)
def test_the_curated_invariant_is_violated(name, traces, runs):
    entity, step = CURATED[name]
    status, report = check(runs, name, traces / name / "invariants.json")
    assert (status, report["violated"], report["holds"], report["unknown"]) == (1, 1, 0, 0)
    assert (report["findings"][0]["entity"], report["findings"][0]["step"]) == (entity, step + 1)


@pytest.mark.parametrize("name", [*CURATED, "transformers-17877"])
def test_the_curated_invariant_does_not_alarm_on_a_healthy_run(name, traces, runs):
    status, report = check(runs, "healthy-ddp-8", traces / name / "invariants.json")
    assert (status in (0, 3), report["violated"], report["findings"]) == (True, 0, [])
    assert report["holds"] == (name in ("pytorch-104336", "x-jxmnop-ddp-out-of-sync"))


@pytest.mark.parametrize("name", ["pytorch-51800", "stackoverflow-60335387", "pytorch-115607"])
def test_without_the_calls_nothing_is_said(name, traces, runs):
    """The file of the main thread is not in these traces."""
    status, report = check(runs, name, traces / name / "invariants.json")
    assert status == 3
    assert (report["verdict"], report["unknown"]) == (
        "unknown",
        {"pytorch-115607": 3, "pytorch-51800": 2}.get(name, 1),
    )


def test_the_shipped_library_has_nothing_to_say_of_a_healthy_import(runs):
    done = tocsin("check", runs[0] / "healthy-ddp-8")
    assert "0 violated" in done.stdout.splitlines()[0]


@pytest.fixture(scope="session")
def learned(runs, tmp_path_factory):
    path = tmp_path_factory.mktemp("learned") / "inv.jsonl"
    done = tocsin("infer", "-q", runs[0] / "healthy-ddp-8", "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def test_replicas_are_learned_to_be_equal(learned):
    assert (
        "The data of each parameter after optimizer.step is equal on every two ranks, when"
        " meta.stage is 'training' on both."
    ) in tocsin("show", learned).stdout


def test_the_healthy_run_has_no_finding(learned, runs):
    status, report = check(runs, "healthy-ddp-8", learned)
    assert (status, report["findings"]) == (0, [])


@pytest.mark.parametrize("name", ["pytorch-104336", "x-jxmnop-ddp-out-of-sync"])
def test_replicas_that_drift_apart_are_found(name, learned, runs):
    status, report = check(runs, name, learned)
    assert status == 1
    drift = [f for f in report["findings"] if "data of each parameter" in f["sentence"]]
    assert [f["step"] for f in drift] == [2]  # the first step of training
