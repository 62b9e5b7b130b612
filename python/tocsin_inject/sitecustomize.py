"""Imported by every Python process that inherits PYTHONPATH from `tocsin record`, `tocsin run`
or `tocsin inject`.

Takes this directory off sys.path (children inherit it through the environment), lets the
sitecustomize that it shadows run, and waits for torch. Nothing here may break the user's job.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))


def _run_shadowed() -> None:
    this = sys.modules.pop(__name__)
    try:
        import sitecustomize  # noqa: F401  the one behind this directory
    except ImportError as error:
        sys.modules.setdefault(__name__, this)
        if error.name != "sitecustomize":
            raise


def _watch() -> None:
    root = os.path.dirname(_here)
    sys.path.insert(0, root)
    try:
        import tocsin_inject  # there already where an installed tocsin's zz_tocsin.pth was first
    finally:
        sys.path.remove(root)
    tocsin_inject.start(root)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _here]
_asked = os.environ.get("TOCSIN_RUN") or os.environ.get("TOCSIN_INJECT")
if _asked and os.environ.get("TOCSIN_MODE") != "off":
    try:
        _watch()
    except Exception as error:
        print(f"tocsin: error: not recording: {error!r}", file=sys.stderr)
_run_shadowed()
