"""The gate: a checkpoint gets its name only after the checks of its step passed, and what was
written was read back and is what the replicas agreed on.

All ranks call. A checkpoint is written beside its place under another name, read back from the
file, and compared with the digests that the vote was about; tensors on which nobody could vote are
compared with what they were before the write. Only then it is renamed. What does not pass is kept
as PATH.quarantined with the finding in PATH.quarantined.json, and the old checkpoint stays.
"""

import contextlib
import dataclasses
import functools
import json
import os
import threading
import traceback

from tocsin import _core
from tocsin.guard import checkpoint_contents as contents
from tocsin.guard import digests, location, verify_checkpoint
from tocsin.guard.unseen import Unseen
from tocsin.messages import say

QUARANTINED = ".quarantined"
TEXTS_MAX = 10  # differences in a finding


@dataclasses.dataclass
class Saved:
    """What became of a checkpoint."""

    path: str | None  # None: this rank wrote nothing
    state: str  # "verified", "candidate" (nobody could vote) or "quarantined" (not published)
    reason: str


class SaveFailed(RuntimeError):
    """Another rank could not write the checkpoint; nothing was published."""


# ---- what all ranks do alike ------------------------------------------------------------------


def _checked(guard):
    """Vote now, replay if the gate wants it. The evidence of all checks at this step, as arguments
    of gate_decide."""
    mode, step = guard.gate or "vote", guard.step_count
    if mode == "audit" and guard.replay_check is None:
        raise ValueError("gate='audit' replays at every save, which needs rebuild_batch and "
                         "compute_loss")  # fmt: skip
    weights = _run(guard, guard.weight_check.run)
    replay = False
    if mode == "audit" and not _fresh(guard):
        replay = _run(guard, guard.replay_check.audit_now)
        if guard.collective_check is not None:
            _run(guard, guard.collective_check.audit_now)
    replicas = 1 if guard.weight_check.uncovered else guard.weight_check.replicas
    return [mode, step, _gradients_step(guard, step), step if weights else -1,
            step if replay or _fresh(guard) else -1, replicas]  # fmt: skip


def _run(guard, check):
    """Did a check pass? Its findings are raised."""
    found = guard.attend(check)
    for finding in found or ():
        guard.raise_finding(finding)
    return found is not None and not found


def _fresh(guard):
    """Has this guard seen no step yet?"""
    return guard.passed_step("gradient") < 0 and not any(
        finding["check"] == "gradient" for finding in guard.findings
    )


def _gradients_step(guard, step):
    """The step whose gradients were found good; a step whose update was skipped changed nothing."""
    actions = {finding["action"] for finding in guard.findings
               if finding["step"] == step and finding["check"] != "checkpoint"}  # fmt: skip
    if "continue" in actions:
        return -1  # something was let through
    return step if "skip_update" in actions or _fresh(guard) else guard.passed_step("gradient")


def _patiently(guard, work):
    """Run work() on this rank (None: wait) until all ranks have. Meanwhile they exchange messages:
    a file may take as long as it takes, and a rank that is gone is noticed."""
    result = []

    def run():
        try:
            result.append((work(), None))
        except BaseException as error:  # noqa: BLE001 (raised below)
            result.append((None, error))

    thread = threading.Thread(target=run, daemon=True) if work is not None else None
    if thread is not None:
        thread.start()
    pause, longest = 0.01, min(1.0, guard.exchange.timeout / 4)
    while guard.attend(guard.exchange.maximum, int(thread is not None and thread.is_alive())):
        if thread is not None:
            thread.join(pause)
        pause = min(2 * pause, longest)
    if thread is None:
        return None
    thread.join()
    value, error = result[0]
    if error is not None:
        raise error
    return value


def _agree(guard, row):
    """The rows of all ranks."""
    return guard.attend(guard.exchange.gather_objects, row)


@contextlib.contextmanager
def _all_or_none(guard):
    """What fails on one rank fails on all, after everybody has been told."""
    own = None
    try:
        yield
    except Exception as error:  # noqa: BLE001 (raised below)
        own = error
    rows = _agree(guard, "" if own is None else "".join(traceback.format_exception_only(own)))
    if own is not None:
        raise own
    for rank, text in enumerate(rows):
        if text:
            raise SaveFailed(f"rank {rank} could not save: {text.strip()}")


@contextlib.contextmanager
def _nothing_left(*staged):
    """What was staged, and did not get its name, is removed; staged[0] tells."""
    try:
        yield
    except BaseException:
        if staged and os.path.lexists(staged[0]):
            for path in staged:
                with contextlib.suppress(OSError):
                    location.remove(path)
        raise


# ---- the staged checkpoint ---------------------------------------------------------------------


@dataclasses.dataclass
class _Staged:
    """What one rank found in what it had written."""

    found: contents.Digests = dataclasses.field(default_factory=contents.Digests)
    differences: list = dataclasses.field(default_factory=list)
    unreadable: str = ""

    def row(self, path):
        texts = [difference["text"] for difference in self.differences[:TEXTS_MAX]]
        return {"path": location.shown(path), "differing": len(self.differences), "texts": texts,
                "unreadable": self.unreadable,
                "first": self.differences[0] if self.differences else None}  # fmt: skip


def _memory(tensor):
    return (tensor.data_ptr(), str(tensor.dtype), tuple(tensor.shape), tuple(tensor.stride()),
            str(tensor.device), tensor.is_conj(), tensor.is_neg())  # fmt: skip


def _voted(guard):
    """The digests that the vote was about, by the memory they are of."""
    return {_memory(tensor): digest for _, tensor, digest in guard.weight_check.voted
            if str(tensor.layout) == "torch.strided"}  # fmt: skip


class _Expected:
    """What is to be found in the file: as voted, and where nobody voted as it is now."""

    def __init__(self, pieces, voted):
        self.digests = contents.Digests()
        self.voted = set()
        for piece in pieces:
            digest = None if piece.tensor is None else voted.get(_memory(piece.tensor))
            self.digests.add(piece, digest is not None, digest)
            if digest is not None:
                self.voted.add(piece.name)


def _quarantine(staged, path, finding):
    location.remove(path + QUARANTINED)
    os.rename(staged, path + QUARANTINED)
    with open(path + QUARANTINED + ".json", "w", encoding="utf-8") as file:
        json.dump(finding, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    location.sync(os.path.dirname(os.path.abspath(path)))


def _finding(guard, path, reason, rows):
    """The file may be wrong because of the writing rank's memory, its path to the disk, or the
    disk: nobody is named."""
    firsts = [row["first"] for row in rows if row["first"] is not None]
    texts = [text for row in rows for text in (*row["texts"], row["unreadable"]) if text]
    path = next((row["path"] for row in rows if row["path"]), location.shown(path))
    evidence = {
        "path": path,
        "writers": [rank for rank, row in enumerate(rows) if row["differing"] or row["unreadable"]],
        "differing": sum(row["differing"] for row in rows),
        "differences": texts[:TEXTS_MAX],
    }
    text = f"the checkpoint {path or 'of other ranks'} was not published: {reason}"
    if texts:
        text += f": {texts[0]}"
    step = guard.step_count
    return _core.guard_finding(
        "checkpoint", "unattributable", text, step=step,
        passed=min(guard.passed_step("checkpoint"), step - 1), replicas=guard.world_size,
        tensor=firsts[0]["name"] if firsts else "", evidence=json.dumps(evidence),
    )  # fmt: skip


def _decide(guard, checked, rows):
    return _core.gate_decide(*checked, sum(row["differing"] for row in rows),
                             sum(bool(row["unreadable"]) for row in rows))  # fmt: skip


def _refuse(guard, path, reason):
    """A check did not pass: nothing is written at all."""
    guard.raise_finding(_finding(guard, path, reason, []))
    return Saved(None, "quarantined", reason)


def _tell(guard, path, state, reason):
    guard.passed["checkpoint"] = guard.step_count
    if state == "candidate" and guard.rank == 0:
        say(f"guard: {location.shown(path) or 'a checkpoint'} is published unvoted: {reason}")
    return Saved(path, state, reason)


# ---- one file a rank ----------------------------------------------------------------------------


def save(guard, state, path):
    """torch.save(state, path), behind the gate. All ranks call; one that gives None as its state
    takes part in the checks and writes nothing."""
    with _all_or_none(guard):
        path = None if state is None else location.of_file(path)
    checked = _checked(guard)
    verdict, reason = _core.gate_decide(*checked, 0, 0)
    if verdict == "quarantined":
        return _refuse(guard, path, reason)
    staged = None if path is None else location.beside(path, f"staged-{guard.rank}")
    with _nothing_left(*([] if path is None else [staged, _next_side(path)])):
        return _save_file(guard, state, path, staged, checked)


def _save_file(guard, state, path, staged, checked):
    with _all_or_none(guard):
        stage = functools.partial(_stage_file, guard, state, path, staged)
        result = _patiently(guard, None if path is None else stage)
    rows = _agree(guard, (result or _Staged()).row(path))
    verdict, reason = _decide(guard, checked, rows)
    if verdict == "quarantined":
        finding = _finding(guard, path, reason, rows)
        with _all_or_none(guard):
            if path is not None:
                _quarantine(staged, path, finding)
        guard.raise_finding(finding)
        return Saved(None, verdict, reason)
    with _all_or_none(guard):
        if path is not None:
            _publish_file(result.found, checked, verdict, staged, path)
    return _tell(guard, path, verdict, reason)


def _stage_file(guard, state, path, staged):
    import torch

    location.warn_if_local(guard, path)
    _finish_earlier(path)
    expected = _Expected(contents.pieces_of_state(state), _voted(guard))
    torch.save(state, staged)
    location.sync(staged, drop=True)
    result = _Staged()
    try:
        with Unseen():
            written = contents.load_file(staged)
        for piece in contents.pieces_of_state(written):
            result.found.add(piece, piece.name in expected.voted)
    except Exception as error:  # noqa: BLE001 (whatever it is, it cannot be read)
        result.unreadable = str(error) or repr(error)
    else:
        result.differences = expected.digests.differences(result.found)
    return result


def _next_side(path):
    return path + verify_checkpoint.SIDE + verify_checkpoint.NEXT


def _finish_earlier(path):
    """A save that was cut off between its renames left two digests: those of the file that has the
    name stay."""
    side = path + verify_checkpoint.SIDE
    if not os.path.exists(_next_side(path)):
        return
    try:
        fits = verify_checkpoint.verify(path, _next_side(path)).verdict
    except (OSError, ValueError):
        fits = None
    if fits == verify_checkpoint.VERIFIED:
        _core.gate_publish(_next_side(path), side)
    else:
        location.remove(_next_side(path))


def _publish_file(found, checked, verdict, staged, path):
    """Between the two renames the digests of the old and of the new file are there: whichever file
    has the name verifies."""
    mode, step, *_, replicas = checked
    _core.checkpoint_digests_set_origin(found.handle, mode, verdict, step, replicas)
    _core.checkpoint_digests_save(found.handle, _next_side(path))
    _core.gate_publish(staged, path)
    _core.gate_publish(_next_side(path), path + verify_checkpoint.SIDE)


# ---- one folder of all ranks ---------------------------------------------------------------------


def save_distributed(guard, state, path):
    """torch.distributed.checkpoint.save(state, checkpoint_id=path), behind the gate, into a folder
    that all ranks see. All ranks call."""
    from torch.distributed.checkpoint.stateful import Stateful

    with _all_or_none(guard):
        path = location.of_folder(path)
    checked = _checked(guard)
    verdict, reason = _core.gate_decide(*checked, 0, 0)
    if verdict == "quarantined":
        return _refuse(guard, path, reason)
    state = {key: item.state_dict() if isinstance(item, Stateful) else item
             for key, item in state.items()}  # fmt: skip
    staged = location.beside(path, "staged")
    with _nothing_left(*([staged] if guard.rank == 0 else [])):
        return _save_together(guard, state, path, staged, checked)


def _save_together(guard, state, path, staged, checked):
    with _all_or_none(guard):
        if guard.rank == 0:
            location.warn_if_local(guard, path)
            location.remove(staged)
        live = _patiently(guard, lambda: _live(guard, state))
    with _all_or_none(guard):
        _save_folder(guard, state, staged)
    result = _patiently(guard, lambda: _read_back(guard, staged, live))
    rows = _agree(guard, {**result.row(path), "found": result.found.text()})
    total = _add_up(rows)
    verdict, reason = _decide(guard, checked, rows)
    if verdict == "quarantined":
        finding = _finding(guard, path, reason, rows)
        with _all_or_none(guard):
            if guard.rank == 0:
                _quarantine(staged, path, finding)
        guard.raise_finding(finding)
        return Saved(None, verdict, reason)
    with _all_or_none(guard):
        if guard.rank == 0:
            _publish_folder(total, checked, verdict, staged, path)
    return _tell(guard, path, verdict, reason)


@dataclasses.dataclass
class _Live:
    """A piece as this rank has it in memory."""

    name: str
    voted: bool
    digest: bytes | None  # of the piece as a whole of its own
    piece: contents.Piece


def _live(guard, state):
    """What this rank could write, by name and place in the whole."""
    from torch.distributed.checkpoint import DefaultSavePlanner

    planner = DefaultSavePlanner()
    planner.set_up_planner(state, is_coordinator=False)
    voted, live = _voted(guard), {}
    for item in planner.create_local_plan().items:
        name = item.index.fqn
        if item.tensor_data is None:
            value = contents.canonical(planner.state_dict[name], name)
            live[name, ()] = _Live(name, False, None, contents.Piece(name, value=value))
            continue
        tensor = planner.resolve_data(item)
        contents.check_dense(tensor, name)
        offset = tuple(item.index.offset)
        digest = voted.get(_memory(tensor))
        label = name if tensor.shape == item.tensor_data.size else f"{name}@{list(offset)}"
        live[name, offset] = _Live(name, digest is not None, digest or digests.digest([tensor]),
                                   contents.Piece(label, tensor))  # fmt: skip
    return live


def _save_folder(guard, state, staged):
    import torch.distributed.checkpoint

    torch.distributed.checkpoint.save(state, checkpoint_id=staged)


def _reader(guard, stored):
    """The rank that reads a piece back: who wrote it, as far as can be told."""
    return stored.writer if stored.writer < guard.world_size else 0


def _read_back(guard, staged, live):
    """Compare what this rank wrote with what it has."""
    result = _Staged()
    expected, own = contents.Digests(), contents.Digests()
    try:
        index = contents.read_index(staged)
        mine = [stored for stored in index if _reader(guard, stored) == guard.rank]
        for file in {stored.file for stored in mine}:
            location.sync(os.path.join(staged, file), drop=True)
        for stored in mine:
            with Unseen():
                piece = contents.read_piece(staged, stored)
            known = live.get(stored.key)
            label = stored.name if known is None else known.piece.name
            digest = None if piece.tensor is None else digests.digest([piece.tensor])
            own.add(dataclasses.replace(piece, name=label, whole=None, offset=None), False, digest)
            if known is not None:
                expected.add(known.piece, known.voted, known.digest)
            if piece.tensor is not None and tuple(piece.tensor.shape) != piece.whole:
                digest = None  # another one in the coordinates of the whole
            result.found.add(piece, known is not None and known.voted, digest)
    except Exception as error:  # noqa: BLE001 (whatever it is, it cannot be read)
        result.unreadable = str(error) or repr(error)
    else:
        result.differences = expected.differences(own)
    return result


def _add_up(rows):
    """The digests of all ranks' pieces. What is not complete is noted in the row of rank 0."""
    total = contents.Digests()
    for row in rows:
        total.merge(row.pop("found"))
    incomplete = total.describe()["incomplete"]
    if incomplete is not None and not any(row["unreadable"] for row in rows):
        rows[0]["differing"] += 1
        rows[0]["texts"].append(f"of {incomplete} not every element was written exactly once")
    return total


def _publish_folder(total, checked, verdict, staged, path):
    mode, step, *_, replicas = checked
    _core.checkpoint_digests_set_origin(total.handle, mode, verdict, step, replicas)
    side = os.path.join(staged, contents.SIDE_IN_FOLDER)
    _core.checkpoint_digests_save(total.handle, side)
    location.keep_others(path, staged, contents.is_of_folder)
    location.sync(staged)
    if _core.gate_publish(staged, path):
        location.remove(staged)
