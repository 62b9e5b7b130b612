"""`tocsin plan show` on nnScaler plans: the real ones (of the folder TOCSIN_NNSCALER_PLANS, or
shared/data/nnscaler-plans beside the checkout) against an independent reader, and small ones made
here, right and wrong. Nothing in a pickle is ever executed."""

import collections
import io
import os
import re
import subprocess
import sys
from pathlib import Path

import nnscaler_reader
import nnscaler_writer
import pytest
from nnscaler_writer import Call, Name, build, dumps, make

SOURCE = Path(os.environ.get("TOCSIN_SOURCE", Path(__file__).resolve().parents[2]))
TOCSIN = os.environ.get("TOCSIN", str(SOURCE / "build/tocsin"))
REAL = Path(
    os.environ.get("TOCSIN_NNSCALER_PLANS", SOURCE.parent / "shared/data/nnscaler-plans")
)
sys.path.insert(0, str(SOURCE / "tests/ref"))
import plan as reference  # noqa: E402

FILES = sorted(REAL.glob("*.pkl.zst")) if REAL.is_dir() else []
WORLD = re.compile(r"_dp(\d+)_pp(\d+)_tp(\d+)_nm(\d+)")


def tocsin(*arguments):
    return subprocess.run([TOCSIN, *map(str, arguments)], capture_output=True, text=True)


def show(path):
    done = tocsin("plan", "show", path)
    assert done.returncode == 0, done.stderr
    return reference.read(done.stdout)


def write(folder, root, world="dp1_pp1_tp1_nm1", protocol=4, name="p"):
    path = folder / f"{name}_{world}.pkl"
    path.write_bytes(root if isinstance(root, bytes) else dumps(root, protocol))
    return path


# ---- real plans --------------------------------------------------------------------------------


@pytest.fixture(scope="module", params=FILES, ids=lambda path: path.name.split(".")[0])
def real(request):
    packed = request.param
    data = subprocess.run(["zstd", "-dc", packed], capture_output=True, check=True).stdout
    return packed, nnscaler_reader.load(io.BytesIO(data)), show(packed)


@pytest.mark.skipif(not FILES, reason=f"there are no nnScaler plans in {REAL}")
def test_there_are_real_plans():
    assert len(FILES) == 16


def operators(role):
    return [op for segment in role["segments"] for op in segment["ops"]]


def test_world(real):
    path, root, plan = real
    dp, pp, tp, nm = map(int, WORLD.search(path.name).groups())
    assert [tuple(axis) for axis in plan["axes"]] == [("dp", dp), ("pp", pp), ("tp", tp)]
    assert plan["microbatches"] == nm
    assert len(plan["roles"]) == len(root.devices) == pp * tp


def test_operators(real):
    """Each operator of the file is there once, its derivatives once for each gradient."""
    _, root, plan = real
    for device, role in zip(nnscaler_reader.devices(root), plan["roles"], strict=True):
        found = collections.Counter(op["label"].split("#")[0] for op in operators(role))
        wanted = {label: count for label, count in device.labels.items()}
        known = {label: found[label] for label in wanted}
        assert known == wanted


def test_communication(real):
    _, root, plan = real
    names = {"all_reduce", "all_gather", "all_to_all", "slice", "broadcast", "send", "recv"}
    for device, role in zip(nnscaler_reader.devices(root), plan["roles"], strict=True):
        found = collections.Counter()
        for op in operators(role):
            reducer = op["label"].startswith("IRWeightReducer")
            if reducer or op["label"].split("Prim")[0] != op["label"]:
                found["reducer" if reducer else op["name"]] += 1
        expected = {k: v for k, v in device.communication.items() if v}
        assert {k: v for k, v in found.items() if k in names | {"reducer", "identity"}} == expected


def test_schedule(real):
    """The order in which cells run, micro-batch by micro-batch, is the file's."""
    _, root, plan = real
    for device, role in zip(nnscaler_reader.devices(root), plan["roles"], strict=True):
        found = [(int(re.sub(r"^\D+", "", name).split(".")[0]), batch)
                 for name, batch in role["schedule"]]  # fmt: skip
        assert found == device.turns


def test_gradients(real):
    """Every weight that a device uses has its gradient among the outputs, with its slice."""
    _, root, plan = real
    for device, role in zip(nnscaler_reader.devices(root), plan["roles"], strict=True):
        found = sorted(
            (name, [(s[0], s[0] + n) for s, n in zip(starts, role["types"][value]["shape"])])
            for kind, name, starts, value, _ in role["outputs"]
            if kind == "grad"
        )
        assert found == sorted(device.gradients.values())
        written = {value for _, _, _, value, _ in role["outputs"]} - role["written"]
        assert not written


def test_data(real):
    """Each micro-batch of each replica has its own part of the batch."""
    path, root, plan = real
    dp, _, _, nm = map(int, WORLD.search(path.name).groups())
    for role in plan["roles"]:
        for name, _, logical, starts in role["inputs"]:
            if logical in ("tokens", "data", "input_ids", "position_ids"):
                size = role["types"][name]["shape"][0]
                assert starts[0] == [0, nm * size if dp > 1 else 0, size if nm > 1 else 0]


# ---- small plans -------------------------------------------------------------------------------

WORLDS = [(1, 1, 2, 1), (1, 2, 1, 2), (2, 1, 1, 1), (2, 2, 2, 3), (4, 2, 2, 4), (1, 2, 3, 2)]


def world_name(dp, pp, tp, nm):
    return f"dp{dp}_pp{pp}_tp{tp}_nm{nm}"


@pytest.mark.parametrize("world", WORLDS, ids=lambda w: world_name(*w))
def test_small_plans_are_proved(tmp_path, world):
    logical = write(tmp_path, build())
    parallel = write(tmp_path, build(*world), world_name(*world))
    done = tocsin("verify", logical, parallel)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("PROVED")


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_protocols(tmp_path, protocol):
    golden = SOURCE / "tests/golden/plan/nnscaler_dp2_pp2_tp2_nm3.pkl"
    path = write(tmp_path, build(2, 2, 2, 3), world_name(2, 2, 2, 3), protocol)
    assert tocsin("plan", "show", path).stdout == tocsin("plan", "show", golden).stdout


def segments(root, device):
    for cell in map(nnscaler_reader.inner, root.execplan._seq[device]):
        if nnscaler_reader.kind(cell) == "IRSegment":
            yield cell


def refuted(folder, root, world):
    path = write(folder, root, world_name(*world), name="wrong")
    done = tocsin("verify", write(folder, build()), path)
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout


def test_missing_adapter_is_refuted(tmp_path):
    root = build(1, 1, 2, 1)
    for device in (0, 1):
        forward = next(segments(root, device))
        forward._nodes = [n for n in forward._nodes if nnscaler_reader.kind(n) != "IRAdapter"]
    assert "undefined-value" in refuted(tmp_path, root, (1, 1, 2, 1))


def test_missing_reducer_is_refuted(tmp_path):
    root = build(2, 1, 1, 1)
    root.execplan._seq[0] = root.execplan._seq[0][:-1]
    assert "missing-term" in refuted(tmp_path, root, (2, 1, 1, 1))


def test_wrong_constant_is_refuted(tmp_path):
    root = build(1, 1, 2, 1)
    forward = next(segments(root, 1))
    op = next(n for n in forward._nodes if getattr(n, "name", "") == "div")
    op._inputs = [op._inputs[0], 3]
    assert "div7" in refuted(tmp_path, root, (1, 1, 2, 1))


def cross_shards():
    """A plan whose second stage gathers y from halves that its ranks hold in the other order."""
    builder = nnscaler_writer.Builder(1, 2, 2, 1)
    root = builder.module()
    y = builder.tensor("y", [builder.batch, nnscaler_writer.WIDTH])
    halves = [builder.tensor("y", [builder.batch, nnscaler_writer.WIDTH], 1, part, copy=9)
              for part in (0, 1)]  # fmt: skip
    for device in range(4):
        cells = [nnscaler_reader.inner(c) for c in root.execplan._seq[device]]
        adapter = next(c for c in cells if c._id == 120)
        part = device if device < 2 else 3 - device
        half, kwargs = halves[part], {"src": part, "dst": 3 - part}
        if device < 2:
            adapter._prims = [
                make("ChunkPrim", kwargs={"dim": 1, "ranks": [0, 1]}, _inputs=[y], _outputs=[half]),
                make("MovePrim", kwargs=kwargs, _inputs=[half], _outputs=[]),
            ]
        else:
            adapter._prims = [
                make("MovePrim", kwargs=kwargs, _inputs=[], _outputs=[half]),
                make("AllGatherPrim", kwargs={"dim": 1, "ranks": [2, 3]}, _inputs=[half],
                     _outputs=[y]),
            ]  # fmt: skip
    return root


def test_order_of_shards(tmp_path):
    """At run time a group's ranks are sorted; the metadata say what was meant."""
    logical = write(tmp_path, build())
    path = write(tmp_path, cross_shards(), "dp1_pp2_tp2_nm1")
    done = tocsin("verify", logical, path)
    assert done.returncode == 1 and "AllGatherPrim120: wrong-order" in done.stdout, done.stdout
    done = tocsin("verify", "--order=metadata", logical, path)
    assert done.returncode == 0 and done.stdout.startswith("PROVED"), done.stdout


def test_declared_signature(tmp_path):
    """`--ops` takes the place of the annotation: an axis that it wants whole may not be cut."""
    roots = {"dp1_pp1_tp1_nm1": build(), "dp1_pp1_tp2_nm1": build(1, 1, 2, 1)}
    for root in roots.values():
        for cell in (c for d in root.execplan._seq for c in segments(root, d)):
            for node in cell._nodes:
                if getattr(node, "name", "") == "silu":
                    node.name = "swish"
    paths = [write(tmp_path, root, world) for world, root in roots.items()]
    assert tocsin("verify", *paths).returncode == 0
    declarations = tmp_path / "ops"
    declarations.write_text("op swish [b h^] -> [b h^]\n")
    done = tocsin("verify", "--ops", declarations, *paths)
    assert done.returncode == 1 and "swish3" in done.stdout, done.stdout
    declarations.write_text("op swish [...] -> [...]\n")
    assert tocsin("verify", "--ops", declarations, *paths).returncode == 0
    declarations.write_text("op swish [a b c] -> [a b c]\n")
    done = tocsin("verify", "--ops", declarations, *paths)
    assert done.returncode == 2 and "does not fit the tensors of swish3" in done.stderr


# ---- what is not a plan ------------------------------------------------------------------------


def fails(path, message):
    done = tocsin("plan", "show", path)
    assert done.returncode == 2, done.stdout
    assert message in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2


def test_nothing_is_executed(tmp_path):
    """A pickle whose loading would write a file reads as a plan without doing so."""
    witness = tmp_path / "witness"
    root = build()
    root.symbols = Call(Name("os", "system"), f"touch {witness}")
    show(write(tmp_path, root))
    fails(write(tmp_path, dumps(Call(Name("os", "system"), f"touch {witness}"))), "ModuleCodeGen")
    assert not witness.exists()


def test_unknown_node(tmp_path):
    root = build()
    next(segments(root, 0))._nodes.append(make("IRObject", _id=1, name="magic"))
    fails(write(tmp_path, root), "a node of class IRObject (magic) is not known")


def test_unknown_primitive(tmp_path):
    root = build(1, 1, 2, 1)
    adapter = next(n for n in next(segments(root, 0))._nodes
                   if nnscaler_reader.kind(n) == "IRAdapter")  # fmt: skip
    nnscaler_writer.TYPES["TeleportPrim"] = type("TeleportPrim", (), {"__module__": "nnscaler.x"})
    adapter._prims = [make("TeleportPrim", kwargs={}, _inputs=[], _outputs=[])]
    fails(write(tmp_path, root, "dp1_pp1_tp2_nm1"), "the adapter primitive TeleportPrim")


def test_tensor_without_slice(tmp_path):
    root = build()
    tensor = next(segments(root, 0))._nodes[0]._inputs[0]
    tensor._indmap._indices = ((0, 10**9), (0, 8))
    fails(write(tmp_path, root), "has no slice of its whole")


def test_not_nnscaler(tmp_path):
    fails(write(tmp_path, dumps({"weights": [1, 2, 3]})), "the pickle is no ModuleCodeGen")


def test_world_is_needed(tmp_path):
    path = tmp_path / "plan.pkl"
    path.write_bytes(dumps(build()))
    fails(path, "dp is neither given nor in the file's name")


def test_cut_off(tmp_path):
    whole = dumps(build())
    for end in (2, 100, len(whole) // 2, len(whole) - 1):
        fails(write(tmp_path, whole[:end]), "pickle: the file ends")
