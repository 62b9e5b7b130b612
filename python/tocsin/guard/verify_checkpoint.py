"""Is a checkpoint still what was saved? `python -m tocsin.guard.verify_checkpoint`, which `tocsin
guard verify` runs, and the same for scripts.

Every tensor on disk is digested again and compared with the digests beside the checkpoint.
"""

import contextlib
import dataclasses
import json
import os

from tocsin import command
from tocsin.guard import checkpoint_contents as contents

SIDE = ".tocsin.json"  # behind the name of a file
NEXT = ".next"  # behind that, while a save moves file and digests to their names

VERIFIED, DIFFERS, UNDECIDED = "verified", "differs", "undecided"
EXIT = {VERIFIED: 0, DIFFERS: 1, UNDECIDED: 3}


class CheckpointDiffers(ValueError):
    """A checkpoint is not what was saved. differences: in what, as Verification has them."""

    def __init__(self, path, differences):
        first = differences[0]["text"]
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        super().__init__(f"{path}: {first}{more}")
        self.differences = differences


@dataclasses.dataclass
class Verification:
    path: str
    verdict: str
    saved: dict | None = None  # what the digests say of the save
    differences: list = dataclasses.field(default_factory=list)


def side_files(path):
    """Where the digests of a checkpoint may lie, in the order in which a save moves them. Of what
    a link leads to, they lie there."""
    if os.path.isdir(path):
        return [os.path.join(path, contents.SIDE_IN_FOLDER)]
    places = [path + SIDE + NEXT, path + SIDE]
    if os.path.islink(path) and not any(map(os.path.exists, places)):
        return side_files(os.path.realpath(path))
    return places


def _read_saved(path, against):
    """The digests beside the checkpoint. A save that was cut off between its renames leaves two."""
    if against is not None:
        return [contents.Digests.read(against)]
    found = []
    for side in filter(os.path.exists, side_files(path)):
        with contextlib.suppress(FileNotFoundError):  # it has been moved meanwhile
            found.append(contents.Digests.read(side))
    return found


def _digest_state(state):
    found = contents.Digests()
    for piece in contents.pieces_of_state(state):
        found.add(piece)
    return found


def _digest_folder(path):
    found = contents.Digests()
    for stored in contents.read_index(path):
        found.add(contents.read_piece(path, stored))
    return found


def _judge(path, saved, found):
    """The verdict of the digests that fit best."""
    best = None
    for digests in saved:
        differences = digests.differences(found)
        verdict = DIFFERS if differences else VERIFIED
        if best is None or len(differences) < len(best.differences):
            best = Verification(path, verdict, digests.describe(), differences)
    return best or Verification(path, UNDECIDED)


def _identity(path):
    """What changes when a save replaces the checkpoint or its digests."""
    facts = []
    for each in (path, *side_files(path)):
        with contextlib.suppress(OSError):
            status = os.stat(each)
            facts.append((each, status.st_dev, status.st_ino, status.st_mtime_ns))
    return facts


def _settled(path, look):
    """look() at a checkpoint; again, if it was replaced while it was read and does not verify."""
    while True:
        before = _identity(path)
        try:
            result, state = look()
        except (OSError, ValueError):
            if _identity(path) == before:
                raise
            continue
        if result.verdict != DIFFERS or _identity(path) == before:
            return result, state


def verify(path, against=None):
    """A Verification of a file of torch.save, or of a folder of torch.distributed.checkpoint.
    against: digests that do not lie beside it; of a folder that was cut otherwise, too. Raises
    OSError and ValueError for what cannot be read."""
    import torch  # noqa: F401 (a script that verifies need not have)

    path = os.fsdecode(path)

    def look():
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: no such file or folder")
        saved = _read_saved(path, against)
        if not saved:
            return Verification(path, UNDECIDED), None
        if os.path.isdir(path):
            return _judge(path, saved, _digest_folder(path)), None
        return _judge(path, saved, _digest_state(contents.load_file(path))), None

    return _settled(path, look)[0]


def load_verified(path, against=None):
    """torch.load of a file (weights_only, on the CPU) whose every tensor and value is what was
    saved. Raises CheckpointDiffers, FileNotFoundError without digests, ValueError for what cannot
    be read."""
    import torch  # noqa: F401

    path = os.fsdecode(path)

    def look():
        saved = _read_saved(path, against)
        if not saved:
            raise FileNotFoundError(f"{path + SIDE}: the digests of the checkpoint are not there")
        state = contents.load_file(path, mapped=False)
        return _judge(path, saved, _digest_state(state)), state

    result, state = _settled(path, look)
    if result.differences:
        raise CheckpointDiffers(path, result.differences)
    return state


# ---- the command -----------------------------------------------------------------------------


def _print(result):
    if result.verdict == UNDECIDED:
        print(f"{result.path}: undecided: no digests beside it")
        return
    saved = result.saved
    print(
        f"{result.path}: {result.verdict}: {saved['entries']} entries saved at step "
        f"{saved['step']}, {saved['state']} (gate {saved['gate']}, replicas {saved['replicas']}, "
        f"voted on {saved['voted']})"
    )
    for difference in result.differences:
        print(f"  {difference['text']}")


def _parse():
    parser = command.Parser(
        prog="tocsin guard verify",
        description="Digest every tensor of a checkpoint on disk and compare with the digests that "
        "guard.save or guard.save_distributed put beside it. "
        "Exit status: 0 all verified, else 1 one differs, else 2 input error, else 3 no digests.",
    )
    path = "a file of torch.save, or a folder of torch.distributed.checkpoint"
    against = "the digests of the checkpoint of which PATH is a resharded copy"
    parser.add_argument("paths", nargs="+", metavar="PATH", help=path)
    parser.add_argument("--against", metavar="FILE", help=against)
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    if options.against and len(options.paths) > 1:
        parser.error("--against is about one checkpoint")
    return options


def main():
    options = _parse()
    checkpoints, codes = [], {EXIT[VERIFIED]}
    for path in options.paths:
        try:
            result = verify(path, options.against)
        except (OSError, ValueError) as error:
            command.fail(error)
            codes.add(command.INPUT)
            continue
        codes.add(EXIT[result.verdict])
        checkpoints.append(dataclasses.asdict(result))
        if options.format == "text":
            _print(result)
    if options.format == "json":
        print(json.dumps({"schema": 1, "checkpoints": checkpoints}))
    order = (EXIT[DIFFERS], command.INPUT, EXIT[UNDECIDED], EXIT[VERIFIED])
    return next(code for code in order if code in codes)


if __name__ == "__main__":
    command.run(main)
