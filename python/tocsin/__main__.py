"""`python -m tocsin ARGUMENTS`: the command `tocsin`, wherever it was built or installed."""

import os
import shutil
import sys


def command() -> str | None:
    """The command that belongs to this package, or the one on PATH."""
    package = os.path.dirname(os.path.abspath(__file__))
    built = os.path.normpath(os.path.join(package, "..", "..", "tocsin"))
    if os.path.isfile(built) and os.access(built, os.X_OK):
        return built
    return shutil.which("tocsin")


def main() -> int:
    path = command()
    if path is None:
        print("tocsin: error: the command `tocsin` is not on PATH", file=sys.stderr)
        return 2
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
