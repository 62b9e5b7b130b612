"""`tocsin align --perfetto`: what protoc reads back is a trace with a track for each thread of each
run, slices that begin and end in each other, arrows with two ends, and the pivots."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
PROTO = HERE.parent / "ref/perfetto.proto"
TOCSIN = os.environ["TOCSIN"]


def record(folder, change, ranks=0):
    run = folder / f"{change}-{ranks}"
    launcher = [HERE.parent / "corpus/ranks.py", ranks] if ranks else []
    command = [TOCSIN, "record", "-q", "--mode", "trusted", "-o", run, "--", sys.executable]
    command += [*launcher, HERE / "align_program.py", change, 1]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True,
                          env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    assert done.returncode == 0, done.stderr
    return run


def align(a, b, trace):
    command = [TOCSIN, "align", "--format", "json", "--perfetto", trace, a, b]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def parse(lines):
    """protoc's text form: a message is a list of (field, value)."""
    message = []
    for line in lines:
        line = line.strip()
        if line == "}":
            return message
        name, _, value = line.partition(": ")
        if name.endswith(" {"):
            message.append((name[:-2], parse(lines)))
        else:
            message.append((name, json.loads(value) if value[0] in '"0123456789' else value))
    return message


def packets(trace):
    if shutil.which("protoc") is None:
        pytest.skip("no protoc (tools/deps.sh test)")
    command = ["protoc", f"--proto_path={PROTO.parent}", "--decode=Trace", PROTO.name]
    with open(trace, "rb") as file:
        done = subprocess.run(command, stdin=file, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    found = parse(iter(done.stdout.splitlines()))
    assert {name for name, _ in found} == {"packet"}
    return [dict(packet) for _, packet in found]


def annotations(event):
    found = [dict(value) for name, value in event if name == "debug_annotations"]
    return {one["name"]: one.get("string_value", one.get("uint_value")) for one in found}


class Trace:
    def __init__(self, path):
        self.processes, self.threads, self.slices, self.instants = {}, {}, [], []
        self.begun, self.ended = {}, {}
        open_slices = defaultdict(list)
        clock = Counter()
        for packet in packets(path):
            assert packet["trusted_packet_sequence_id"] == 1
            if "track_descriptor" in packet:
                self.describe(dict(packet["track_descriptor"]))
                continue
            event = packet["track_event"]
            fields, time = dict(event), packet["timestamp"]
            track = fields["track_uuid"]
            assert track in self.threads
            if fields["type"] == "TYPE_INSTANT":
                self.instants.append((track, time, fields, annotations(event)))
                continue
            assert time >= clock[track]
            clock[track] = time
            if fields["type"] == "TYPE_SLICE_BEGIN":
                open_slices[track].append((time, fields, annotations(event)))
            else:
                begin, fields, noted = open_slices[track].pop()
                depth = len(open_slices[track])
                self.slices.append((track, depth, begin, time, fields, noted))
            self.arrows(track, time, event)
        assert not any(open_slices.values())

    def describe(self, track):
        assert "process" in track or "thread" in track
        if "process" in track:
            process = dict(track["process"])
            assert process["pid"] not in self.processes
            self.processes[process["pid"]] = process["process_name"]
        else:
            thread = dict(track["thread"])
            assert thread["pid"] in self.processes and track["uuid"] not in self.threads
            self.threads[track["uuid"]] = thread["pid"]

    def arrows(self, track, time, event):
        for name, value in event:
            if name == "flow_ids":
                assert value not in self.begun
                self.begun[value] = track, time
            if name == "terminating_flow_ids":
                assert value not in self.ended
                self.ended[value] = track, time

    def run_of(self, track):
        return self.processes[self.threads[track]][0]

    def boundaries(self):
        return [slice for slice in self.slices if "compared" in slice[5]]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("perfetto")
    return {change: record(folder, change) for change in ("none", "bit", "extra")}


def test_one_bit(runs, tmp_path):
    report = align(runs["none"], runs["bit"], tmp_path / "trace")
    trace = Trace(tmp_path / "trace")
    (rank,) = report["identical_prefix"]
    counts = Counter(slice[5]["compared"] for slice in trace.boundaries())
    assert counts["equal"] == 2 * rank["equal"]
    assert counts["differs"] == 2 * (rank["compared"] - rank["equal"]) > 0
    names = [slice[4]["name"] for slice in trace.slices if slice[1] == 0]
    assert names[:2] == ["step 1", "step 1"] and "step 4" in names
    # every pair has its arrow from A to B, forwards in time
    assert len(trace.begun) == rank["compared"] + rank["unknown"]
    assert trace.begun.keys() == trace.ended.keys()
    for number, (track, time) in trace.begun.items():
        other, later = trace.ended[number]
        assert trace.run_of(track) == "A" and trace.run_of(other) == "B" and later - time == 100
    (a, b) = trace.instants
    assert {trace.run_of(a[0]), trace.run_of(b[0])} == {"A", "B"}
    assert a[3]["boundary"] == "first.weight" and a[3]["role"] == "grad"
    assert a[3]["element"] == "[11,5]" and int(a[3]["bits"], 16) == 1 << 19
    inside = [slice for slice in trace.boundaries() if slice[0] == a[0]
              and slice[2] <= a[1] <= slice[3]]  # fmt: skip
    assert [slice[4]["name"] for slice in inside] == ["first.weight grad"]
    assert inside[0][5]["compared"] == "differs"


def test_one_run_only(runs, tmp_path):
    """What one run has alone is a hole in the other, and has no arrow."""
    report = align(runs["none"], runs["extra"], tmp_path / "trace")
    trace = Trace(tmp_path / "trace")
    assert not trace.instants
    alone = [slice for slice in trace.boundaries() if slice[5]["compared"] == "only in B"]
    assert len(alone) == report["identical_prefix"][0]["only_b"] > 0
    assert {trace.run_of(slice[0]) for slice in alone} == {"B"}
    rows = {slice[2] // 1000 for slice in trace.boundaries() if trace.run_of(slice[0]) == "A"}
    assert rows.isdisjoint(slice[2] // 1000 for slice in alone)


def test_ranks(tmp_path):
    """Two processes of each run."""
    runs = [record(tmp_path, "none", 2), record(tmp_path, "bit", 2)]
    align(*runs, tmp_path / "trace")
    trace = Trace(tmp_path / "trace")
    assert sorted(name[0] + name[-6:] for name in trace.processes.values()) == [
        "Arank 0", "Arank 1", "Brank 0", "Brank 1",
    ]  # fmt: skip
    assert {trace.run_of(track) for track, *_ in trace.instants} == {"A", "B"}


def test_unwritable(runs, tmp_path):
    command = [TOCSIN, "align", "--perfetto", tmp_path / "no/trace", runs["none"], runs["bit"]]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert done.returncode == 2 and "no/trace" in done.stderr and done.stdout == ""
