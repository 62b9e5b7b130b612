"""`python -m tocsin ARGUMENTS`: the command `tocsin`, wherever it was built or installed."""

import os
import shutil
import sys
from importlib import metadata


def _installed() -> str | None:
    """The command that was installed together with this package."""
    try:
        files = metadata.files("tocsin") or []
    except metadata.PackageNotFoundError:
        files = []
    return next((str(file.locate()) for file in files if file.name == "tocsin"), None)


def command() -> str | None:
    """The command that belongs to this package, or the one on PATH."""
    package = os.path.dirname(os.path.abspath(__file__))
    built = os.path.normpath(os.path.join(package, "..", "..", "tocsin"))
    for path in (built, _installed()):
        if path and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("tocsin")


def main() -> int:
    path = command()
    if path is None:
        print("tocsin: error: the command `tocsin` is not on PATH", file=sys.stderr)
        return 2
    os.execv(path, [path, *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
