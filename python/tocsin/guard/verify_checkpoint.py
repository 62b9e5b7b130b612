"""Is a checkpoint still what was saved? `python -m tocsin.guard.verify_checkpoint`, which `tocsin
guard verify` runs, and the same for scripts.

Every tensor on disk is digested again and compared with the digests beside the checkpoint.
"""

import argparse
import dataclasses
import json
import os
import sys

from tocsin.guard import checkpoint_contents as contents

SIDE = ".tocsin.json"  # behind the name of a file
NEXT = ".next"  # behind that, while a save moves file and digests to their names
SIDE_IN_FOLDER = "tocsin-digests.json"

VERIFIED, DIFFERS, UNDECIDED = "verified", "differs", "undecided"
EXIT = {VERIFIED: 0, DIFFERS: 1, UNDECIDED: 3}
EXIT_INPUT = 2


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
    """Where the digests of a checkpoint may lie."""
    if os.path.isdir(path):
        return [os.path.join(path, SIDE_IN_FOLDER)]
    return [path + SIDE, path + SIDE + NEXT]


def _read_saved(path, against):
    """The digests beside the checkpoint. A save that was cut off between its renames leaves two."""
    if against is not None:
        return [contents.Digests.read(against)]
    return [contents.Digests.read(side) for side in side_files(path) if os.path.exists(side)]


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
        if best is None or not differences:
            best = Verification(path, verdict, digests.describe(), differences)
    return best or Verification(path, UNDECIDED)


def verify(path, against=None):
    """A Verification of a file of torch.save, or of a folder of torch.distributed.checkpoint.
    against: digests that do not lie beside it; of a folder that was cut otherwise, too. Raises
    OSError and ValueError for what cannot be read."""
    import torch  # noqa: F401 (a script that verifies need not have)

    path = os.fspath(path)
    if not os.path.exists(path):
        raise FileNotFoundError(f"{path}: no such file or folder")
    saved = _read_saved(path, against)
    if not saved:
        return Verification(path, UNDECIDED)
    if os.path.isdir(path):
        return _judge(path, saved, _digest_folder(path))
    return _judge(path, saved, _digest_state(contents.load_file(path)))


def load_verified(path, against=None):
    """torch.load of a file (weights_only, on the CPU) whose every tensor and value is what was
    saved. Raises CheckpointDiffers, FileNotFoundError without digests, ValueError for what cannot
    be read."""
    import torch  # noqa: F401

    path = os.fspath(path)
    saved = _read_saved(path, against)
    if not saved:
        raise FileNotFoundError(f"{path + SIDE}: the digests of the checkpoint are not there")
    state = contents.load_file(path, mapped=False)
    result = _judge(path, saved, _digest_state(state))
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
    parser = argparse.ArgumentParser(
        prog="tocsin guard verify",
        description="Digest every tensor of a checkpoint on disk and compare with the digests that "
        "guard.save or guard.save_distributed put beside it. "
        "Exit status: 0 all verified, 1 one differs, 2 input error, 3 no digests.",
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
    results, code = [], 0
    for path in options.paths:
        try:
            results.append(verify(path, options.against))
        except (OSError, ValueError) as error:
            print(f"tocsin: error: {error}", file=sys.stderr)
            code = EXIT_INPUT
    if options.format == "json":
        checkpoints = [dataclasses.asdict(result) for result in results]
        print(json.dumps({"schema": 1, "checkpoints": checkpoints}))
    else:
        for result in results:
            _print(result)
    verdicts = {result.verdict for result in results}
    for verdict in (DIFFERS, UNDECIDED):
        if code == 0 and verdict in verdicts:
            code = EXIT[verdict]
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except ImportError as error:
        print(f"tocsin: error: {error}: set TOCSIN_PYTHON to the interpreter that has torch",
              file=sys.stderr)  # fmt: skip
        sys.exit(EXIT_INPUT)
