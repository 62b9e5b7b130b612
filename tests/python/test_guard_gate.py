"""The gate on real ranks: what did not pass is not published, what is published verifies, also
resharded, and what happens to it later is found and named."""

import collections
import contextlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import types
import zipfile
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tocsin.guard
from tocsin.guard import checkpoint_contents, location, verify_checkpoint

PROGRAM = Path(__file__).resolve().parent / "guard_gate_program.py"
UNVOTED = "there is no second replica of some tensors: nobody could vote on them"
THREE = ("healthy before_the_first_step audited poisoned_weight staged_byte_flipped "
         "changed_on_its_way disk_full one_of_several_fails slow_disk went_on copies "
         "own_class").split()  # fmt: skip
TWO = ("sharded sharded_again sharded_piece_flipped replicated resumed "
       "tried_again killed").split()  # fmt: skip


def saved(ranks, folder, names):
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(ranks), str(folder), *names], capture_output=True,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line) for line in done.stdout.splitlines()]
    return {"folder": folder, **{each["name"]: each["ranks"] for each in seen}}


@pytest.fixture(scope="module")
def three(tmp_path_factory):
    return saved(3, tmp_path_factory.mktemp("three"), THREE)


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    return saved(2, tmp_path_factory.mktemp("two"), TWO)


def verify(*arguments):
    """(exit status, checkpoints, errors) of `tocsin guard verify`, as the command runs it
    (tests/cli/guard.sh runs the command)."""
    out, errors = io.StringIO(), io.StringIO()
    given = sys.argv
    sys.argv = ["verify", "--format", "json", *map(str, arguments)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
            code = verify_checkpoint.main()
    finally:
        sys.argv = given
    return code, json.loads(out.getvalue())["checkpoints"], errors.getvalue()


def texts(results):
    return [difference["text"] for result in results for difference in result["differences"]]


# ---- saving --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["healthy", "before_the_first_step", "audited", "copies"])
def test_a_healthy_checkpoint_is_published(three, name):
    assert all(rank == {"state": "verified", "reason": ""} for rank in three[name])


def test_what_was_published_verifies(three):
    code, (result,), _ = verify(three["folder"] / "healthy.pt")
    assert (code, result["verdict"]) == (0, "verified")
    assert result["saved"]["step"] == 2 and result["saved"]["replicas"] == 3
    assert result["saved"]["voted"] == 6 * (1 + 3)  # parameters; moments and steps
    state = tocsin.guard.load_verified(three["folder"] / "healthy.pt")
    assert state["epoch"] == 3 and state["model"]["module.0.weight"].shape == (8, 6)


def test_a_poisoned_weight_publishes_nothing(three):
    for first, second in three["poisoned_weight"]:
        assert first["state"] == "verified"
        assert second["code"] == 86 and second["finding"]["ranks"] == [1]
    code, (result,), _ = verify(three["folder"] / "poisoned.pt")
    assert code == 0 and result["saved"]["step"] == 1  # the old one stays
    assert not (three["folder"] / "poisoned.pt.quarantined").exists()


def test_a_bit_that_flipped_in_the_staged_file_is_quarantined(three):
    place = three["folder"] / "staged.pt"
    for first, second in three["staged_byte_flipped"]:
        assert first["state"] == "verified"
        assert second["code"] == 87 and second["finding"]["ranks"] == []
        assert second["finding"]["evidence"]["writers"] == [0]
        assert "model.module.0.weight" in second["finding"]["text"]
        assert "one element differs, [1,3], 1 of its bits" in second["finding"]["text"]
    code, (result,), _ = verify(place)
    assert code == 0 and result["saved"]["step"] == 1
    assert json.loads(Path(f"{place}.quarantined.json").read_text())["check"] == "checkpoint"
    code, results, _ = verify("--against", f"{place}.tocsin.json", f"{place}.quarantined")
    assert code == 1 and "model.module.0.weight is not what was saved" in texts(results)


def test_what_changes_on_the_way_into_the_file_is_found_though_nobody_voted_on_it(three):
    finding = three["changed_on_its_way"][0]["finding"]
    assert finding["evidence"]["differences"] == [
        "epoch is not the value that was saved",
        "model.module.1.running_mean is not what was saved",
    ]
    assert not (three["folder"] / "changed.pt").exists()


def test_a_write_that_fails_fails_on_all_ranks_and_leaves_nothing(three):
    errors = [rank["error"] for rank in three["disk_full"]]
    assert errors[0].startswith("OSError") and "No space left" in errors[0]
    assert all("rank 0 could not save" in error for error in errors[1:])
    assert not list(three["folder"].glob("*full.pt*"))
    assert all("No space left" in rank["error"] for rank in three["one_of_several_fails"])
    assert not list(three["folder"].glob("*own-*"))


def test_a_slow_disk_is_no_lost_peer(three):
    assert [rank.get("state") for rank in three["slow_disk"]] == ["verified"] * 3


def test_a_step_that_was_let_through_is_not_published(three):
    for rank in three["went_on"]:
        assert rank["state"] == "quarantined" and "gradients" in rank["reason"]
    assert not list(three["folder"].glob("went_on.pt*"))


def test_objects_of_other_classes_are_refused_before_anything_is_written(three):
    assert "cannot be read back without running code" in three["own_class"][0]["error"]
    assert not list(three["folder"].glob("*class.pt*"))


def test_before_and_after_the_first_step_of_a_resumed_job(two):
    assert [[each["state"] for each in rank] for rank in two["resumed"]] == [["verified"] * 2] * 2
    _, (result,), _ = verify(two["folder"] / "resumed.pt")
    assert result["saved"]["step"] == 11


def test_a_writer_that_dies_leaves_the_old_checkpoint_and_a_finding(two):
    ((first, second),) = two["killed"]
    assert first["state"] == "verified"
    assert second["code"] == 87 and second["finding"]["check"] == "peer"
    code, (result,), _ = verify(two["folder"] / "killed.pt")
    assert (code, result["saved"]["step"]) == (0, 1)


def test_a_save_that_failed_may_be_tried_again(two):
    for first, second in two["tried_again"]:
        assert (first["state"], second["state"]) == ("quarantined", "verified")


def test_shards_with_replicas_are_voted_on(tmp_path):
    seen = saved(4, tmp_path, ["hybrid"])
    for first, second in seen["hybrid"]:
        assert first["state"] == "verified"
        assert second["code"] == 87 and second["finding"]["check"] == "weights"
    _, (result,), _ = verify(tmp_path / "hybrid")
    assert (result["verdict"], result["saved"]["step"]) == ("verified", 1)
    assert result["saved"]["voted"] == 6 and result["saved"]["replicas"] == 2


def test_shards_are_saved_and_verified(two):
    assert two["sharded"] == [{"state": "candidate", "reason": UNVOTED}] * 2
    assert [rank["state"] for rank in two["replicated"]] == ["verified"] * 2
    names = ("sharded", "replicated", "again")
    code, results, _ = verify(*(two["folder"] / name for name in names))
    states = [result["saved"]["state"] for result in results]
    assert (code, states) == (0, ["candidate", "verified", "candidate"])
    assert results[2]["saved"]["step"] == 2  # replaced as a whole
    assert not list(two["folder"].glob(".*.staged"))


def test_a_flipped_bit_in_a_shard_is_quarantined(two):
    finding = two["sharded_piece_flipped"][0]["finding"]
    assert finding["evidence"]["writers"] == [1] and finding["ranks"] == []
    assert "model.0.weight@[4, 0]" in finding["text"]
    assert not (two["folder"] / "flipped").exists()
    assert (two["folder"] / "flipped.quarantined" / ".metadata").exists()


def test_a_resharded_checkpoint_is_the_same(two, tmp_path):
    source = two["folder"] / "sharded"
    model = {}
    for stored in checkpoint_contents.read_index(source):
        if stored.whole is not None:
            dtype = torch.int64 if "num_batches" in stored.name else torch.float32
            model[stored.name.removeprefix("model.")] = torch.empty(stored.whole, dtype=dtype)
    state = {"model": model, "epoch": 0}
    dcp.load(state, checkpoint_id=source, no_dist=True)
    dcp.save(state, checkpoint_id=tmp_path / "one", no_dist=True)
    side = source / "tocsin-digests.json"
    assert verify("--against", side, tmp_path / "one")[0] == 0
    state["model"]["0.weight"][5, 2] *= 4  # an exponent: one or two bits
    dcp.save(state, checkpoint_id=tmp_path / "other", no_dist=True)
    code, results, _ = verify("--against", side, tmp_path / "other")
    (text,) = texts(results)
    assert code == 1 and text.startswith("model.0.weight is not what was saved")
    assert results[0]["differences"][0]["index"] == [5, 2]


# ---- what a save may replace, on one rank ----------------------------------------------------


@pytest.fixture
def alone(tmp_path):
    """save(state, name) and save_distributed(state, name) into an empty folder."""
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    guard = tocsin.guard.Guard(model, optimizer, folder=tmp_path / "ledgers")
    (tmp_path / "here").mkdir()
    here = os.fsencode(tmp_path / "here")
    return types.SimpleNamespace(
        folder=tmp_path / "here",
        save=lambda state, name: guard.save(state, os.path.join(here, os.fsencode(name))),
        save_distributed=lambda state, name: guard.save_distributed(state, here + b"/" + name),
    )


def test_what_is_no_file_is_not_replaced_by_one(alone):
    (alone.folder / "folder").mkdir()
    (alone.folder / "folder" / "mine").touch()
    (alone.folder / "link").symlink_to("folder")
    os.mkfifo(alone.folder / "pipe")
    for name, kind in (("folder", IsADirectoryError), ("link", IsADirectoryError),
                       ("new/", IsADirectoryError), ("pipe", FileExistsError)):  # fmt: skip
        with pytest.raises(kind):
            alone.save({"a": 1}, name)
    assert sorted(os.listdir(alone.folder)) == ["folder", "link", "pipe"]
    assert os.listdir(alone.folder / "folder") == ["mine"]


def test_a_link_stays_a_link(alone):
    (alone.folder / "latest.pt").symlink_to("real.pt")
    alone.save({"a": 1}, "latest.pt")
    assert os.readlink(alone.folder / "latest.pt") == "real.pt"
    assert verify(alone.folder / "latest.pt")[0] == verify(alone.folder / "real.pt")[0] == 0


def test_a_name_of_any_bytes(alone):
    alone.save({"a": torch.ones(2)}, b"n\xff.pt")
    assert verify(alone.folder / os.fsdecode(b"n\xff.pt"))[0] == 0


def test_what_else_lies_in_a_folder_stays_in_it(alone, monkeypatch):
    alone.save_distributed({"a": torch.ones(2)}, b"c")
    mine = alone.folder / "c" / "mine" / "deep"
    mine.mkdir(parents=True)
    (mine / "file").write_text("kept")
    (alone.folder / "c" / "__9_0.distcp").touch()  # of a rank that is no more
    alone.save_distributed({"a": torch.zeros(2)}, b"c")
    assert (mine / "file").read_text() == "kept"
    assert not (alone.folder / "c" / "__9_0.distcp").exists()
    assert verify(alone.folder / "c")[0] == 0
    (alone.folder / "file").touch()
    with pytest.raises(NotADirectoryError):
        alone.save_distributed({"a": torch.ones(2)}, b"file")
    monkeypatch.chdir(mine)
    with pytest.raises(ValueError, match="cannot be replaced as a whole"):
        alone.save_distributed({"a": torch.ones(2)}, b"c")
    assert sorted(os.listdir(alone.folder)) == ["c", "file"]


def test_a_save_after_one_that_was_cut_off_leaves_one_digest(alone, monkeypatch):
    path = alone.folder / "c.pt"
    side, later = Path(f"{path}.tocsin.json"), Path(f"{path}.tocsin.json.next")
    alone.save({"a": 1}, "c.pt")
    first = side.read_bytes()
    alone.save({"a": 2}, "c.pt")
    second = side.read_bytes()
    monkeypatch.setattr(torch, "save", lambda state, file: 1 / 0)
    for digests in (first, second):  # cut off before and after the file got its name
        side.write_bytes(first)
        later.write_bytes(digests)
        if digests == first:
            side.write_bytes(second)
        with pytest.raises(ZeroDivisionError):
            alone.save({"a": 3}, "c.pt")
        assert side.read_bytes() == second
        assert sorted(os.listdir(alone.folder)) == ["c.pt", "c.pt.tocsin.json"]


@pytest.mark.parametrize("name", ["c.pt", "c"])
def test_a_checkpoint_that_is_replaced_while_it_is_read(alone, monkeypatch, name):
    save = alone.save if name == "c.pt" else alone.save_distributed
    save({"a": torch.ones(2)}, name.encode())
    reader = "load_file" if name == "c.pt" else "read_index"
    read = getattr(checkpoint_contents, reader)
    meanwhile = [torch.zeros(2), torch.ones(3)]

    def replaced(path, *arguments, **options):
        if meanwhile and os.path.basename(path) == name:
            save({"a": meanwhile.pop()}, name.encode())
        return read(path, *arguments, **options)

    monkeypatch.setattr(checkpoint_contents, reader, replaced)
    assert verify(alone.folder / name)[0] == 0 and not meanwhile


# ---- what becomes of it on the disk -----------------------------------------------------------


@pytest.fixture
def healthy(three, tmp_path):
    for ending in ("", ".tocsin.json"):
        shutil.copy(three["folder"] / f"healthy.pt{ending}", tmp_path / f"h.pt{ending}")
    return tmp_path / "h.pt"


def test_a_bit_on_the_disk_is_named(healthy):
    weight = torch.load(healthy, weights_only=True)["model"]["module.2.weight"]
    data = bytearray(healthy.read_bytes())
    at = data.index(weight.numpy().tobytes())
    data[at + 4 * (2 * 8 + 7) + 1] ^= 0x10
    healthy.write_bytes(data)
    code, results, _ = verify(healthy)
    assert code == 1
    assert texts(results) == [
        "model.module.2.weight is not what was saved: one element differs, [2,7], 1 of its bits"
    ]
    with pytest.raises(verify_checkpoint.CheckpointDiffers, match="module.2.weight"):
        tocsin.guard.load_verified(healthy)


@pytest.mark.parametrize("form", ["legacy", "deflated"])
def test_a_file_that_somebody_wrote_in_another_form(healthy, form):
    state = torch.load(healthy, weights_only=True)
    for code in (0, 1):
        if form == "legacy":
            torch.save(state, healthy, _use_new_zipfile_serialization=False)
        else:
            torch.save(state, healthy.with_suffix(".zip"))
            with zipfile.ZipFile(healthy.with_suffix(".zip")) as source, \
                    zipfile.ZipFile(healthy, "w", zipfile.ZIP_DEFLATED) as target:  # fmt: skip
                for each in source.namelist():
                    target.writestr(each, source.read(each))
        assert verify(healthy)[0] == code
        state["model"]["module.0.bias"][1] += 1


def test_missing_extra_renamed_and_reshaped(healthy):
    state = torch.load(healthy, weights_only=True)
    model = state["model"]
    model["other"] = model.pop("module.0.bias")
    model["module.2.bias"] = model["module.2.bias"].double()
    del state["name"]
    state["more"] = torch.zeros(3)
    torch.save(state, healthy)
    code, results, _ = verify(healthy)
    assert code == 1
    found = texts(results)
    assert "model.module.0.bias is called model.other here" in found
    assert "model.module.2.bias was saved as float32[5] and is float64[5]" in found
    assert "name is missing" in found and "more was not saved" in found
    assert ". is not the value that was saved" in found  # the keys at the top


def test_a_save_that_was_cut_off_between_its_renames(healthy):
    side = Path(f"{healthy}.tocsin.json")
    other = json.loads(side.read_text())
    other["tensors"] = other["tensors"][:-1]
    Path(f"{side}.next").write_text(json.dumps(other))  # of a file that has not come
    assert verify(healthy)[0] == 0
    side.rename(f"{side}.next")  # of a file that has
    assert verify(healthy)[0] == 0
    Path(f"{side}.next").unlink()
    code, (result,), _ = verify(healthy)
    assert (code, result["verdict"]) == (3, "undecided")


def one_error(*arguments):
    code, results, errors = verify(*arguments)
    assert (code, results) == (2, []) and errors.count("\n") == 1
    assert errors.startswith("tocsin: error: ")
    return errors


class Hostile:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_input_errors_are_one_line_each(healthy, two, tmp_path):
    side = Path(f"{healthy}.tocsin.json")
    assert "no such file" in one_error(tmp_path / "nowhere")
    assert "no .metadata in it" in one_error("--against", side, tmp_path)
    whole = healthy.read_bytes()
    healthy.write_bytes(whole[: len(whole) // 2])
    assert "h.pt" in one_error(healthy)
    for content in (b"", b"some text", bytes(5000)):
        healthy.write_bytes(content)
        assert "h.pt: torch.load cannot read it: " in one_error(healthy)
    torch.save({"a": Hostile(str(tmp_path / "made"))}, healthy)
    assert "h.pt" in one_error(healthy)
    healthy.write_bytes(whole)
    side.write_text('{"format":"tocsin-checkpoint-digests","version":1}')
    assert "gate" in one_error(healthy)
    side.write_text('{"format":"tocsin-checkpoint-digests","version":9}')
    assert "version 9" in one_error(healthy)
    side.write_bytes(b"\xff")
    one_error(healthy)
    assert not (tmp_path / "made").exists()


def test_hostile_folders(two, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(two["folder"] / "sharded", folder)
    index = folder / ".metadata"
    whole = index.read_bytes()
    index.write_bytes(pickle.dumps(Hostile(str(tmp_path / "made"))))
    assert "posix.mkdir" in one_error(folder)
    index.write_bytes(b"cbuiltins\ngetattr\n(ctorch\nSize\nV__init__\ntR.")
    assert "builtins.getattr" in one_error(folder)
    index.write_bytes(whole[:-20])
    one_error(folder)
    index.write_bytes(pickle.dumps({"a": 1}))
    assert "no index of a checkpoint" in one_error(folder)
    index.write_bytes(whole.replace(b"__0_0.distcp", b"../_0.distcp"))
    assert "not a file in the folder" in one_error(folder)
    index.write_bytes(whole)
    shard = folder / "__1_0.distcp"
    shard.write_bytes(shard.read_bytes()[:700])
    assert "__1_0.distcp" in one_error(folder)
    shard.unlink()
    assert "the file is not there" in one_error(folder)
    assert not (tmp_path / "made").exists()


# ---- values and places ------------------------------------------------------------------------


def test_values_are_told_apart():
    state = {"a": 1, 1: 1.0, "b": [True, None, "1", b"1", 1j, torch.float16, (3,)], "a.b": 2,
             "c": {"d": torch.zeros(2)}, "e": {1, 2}}  # fmt: skip
    pieces = {piece.name: piece for piece in checkpoint_contents.pieces_of_state(state)}
    values = [piece.value for piece in pieces.values() if piece.tensor is None]
    assert pieces["c.d"].tensor is state["c"]["d"]
    assert len(set(values)) == len(values)
    collision = [piece.name for piece in
                 checkpoint_contents.pieces_of_state({"a": {"b": 1}, "a.b": 2})]  # fmt: skip
    assert collision == [".", "a", "a.b", "a.b#2"]


class Own(torch.Tensor):
    pass


Pair = collections.namedtuple("Pair", "a b")


def test_what_is_accepted_can_be_read_back(tmp_path):
    state = {
        "optimizer": torch.optim.AdamW([torch.nn.Parameter(torch.ones(2))]).state_dict(),
        "scaler": torch.amp.GradScaler("cpu").state_dict(),
        "containers": [collections.OrderedDict(a=1), collections.Counter("aab"), (1, {2: None}),
                       torch.Size([1, 2]), {(1, 2), 3}],
        "leaves": [b"1", bytearray(b"2"), 1j, torch.bfloat16, torch.device("cpu"), torch.strided,
                   float("nan"), 1 << 80, "\ud800"],
        "tensors": [torch.nn.Parameter(torch.ones(2)), torch.eye(2).to_sparse(),
                    torch.eye(2).to_sparse_csr(), torch.ones(2, dtype=torch.complex64).conj(),
                    torch.ones(2).to(torch.float8_e4m3fn), torch.ones(2, dtype=torch.uint16),
                    torch.ones(1).expand(4), torch.empty(0, 3), torch.get_rng_state()],
    }  # fmt: skip
    before, after = checkpoint_contents.Digests(), checkpoint_contents.Digests()
    torch.save(state, tmp_path / "state.pt")
    written = checkpoint_contents.load_file(tmp_path / "state.pt")
    for digests, content in ((before, state), (after, written)):
        for piece in checkpoint_contents.pieces_of_state(content):
            digests.add(piece)
    assert before.differences(after) == []


@pytest.mark.parametrize("value", [
    collections.defaultdict(int), Pair(1, 2), frozenset([1]), collections.deque(), range(3),
    torch.channels_last, torch.ones(2).as_subclass(Own), torch.eye(2).to_sparse_csc(),
    torch.ones(2, device="meta"), 1 << 5000, {"a\0b": 1},
])  # fmt: skip
def test_what_could_not_be_read_back_is_refused(value):
    with pytest.raises(ValueError, match="state.v"):
        list(checkpoint_contents.pieces_of_state({"state": {"v": value}}))


def test_sparse_and_deep_states():
    sparse = torch.eye(3).to_sparse()
    names = [piece.name for piece in checkpoint_contents.pieces_of_state({"s": sparse})]
    assert names == [".", "s#indices", "s#values", "s"]
    deep = []
    for _ in range(100):
        deep = [deep]
    with pytest.raises(ValueError, match="more than 64 containers"):
        list(checkpoint_contents.pieces_of_state(deep))


def test_the_file_system_of_a_path(tmp_path):
    mounts = tmp_path / "mounts"
    mounts.write_text(
        f"a / overlay rw 0 0\nb {tmp_path} nfs4 rw 0 0\nc {tmp_path}/x\\040y xfs rw 0 0\n"
    )
    assert location.file_system("/", mounts) == "overlay"
    assert location.file_system(tmp_path / "run", mounts) == "nfs4"
    assert location.file_system(tmp_path / "x y" / "run", mounts) == "xfs"
    assert location.file_system("/", tmp_path / "nothing") == ""


def test_a_checkpoint_on_the_disk_of_one_node_is_warned_of(tmp_path, monkeypatch, capsys):
    places = [{"host": "a"}, {"host": "b"}]
    several = types.SimpleNamespace(places=places, world_size=2)
    one = types.SimpleNamespace(places=places[:1], world_size=1)
    monkeypatch.delenv("LOCAL_WORLD_SIZE", raising=False)
    for guard, kind, times in ((one, "ext4", 0), (several, "nfs4", 0), (several, "ext4", 1)):
        monkeypatch.setattr(location, "file_system", lambda _, kind=kind: kind)
        location.warn_if_local(guard, tmp_path / "model.pt")
        location.warn_if_local(guard, tmp_path / "model.pt")  # once a folder
        assert capsys.readouterr().err.count("is lost with the node") == times
