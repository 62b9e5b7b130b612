"""Waits in a process until torch is imported, then attaches the recorder.

A process that never imports torch pays for this small module and nothing else. The finder below
never finds anything itself: it lets the other finders answer and asks to be told when the module
has been executed, by a temporary exec_module on that module's own loader object.
"""

import os
import sys

_TORCH = ("torch", "torch._dynamo")


def _warn(error: BaseException) -> None:
    print(f"tocsin: error: not recording: {error!r}", file=sys.stderr)


class ImportWatch:
    """A finder on sys.meta_path that calls `imported(module)` after torch and the like."""

    def __init__(self, root: str, packages: tuple[str, ...]):
        self.root = root
        self.packages = packages
        self.asking: set[str] = set()  # names that the other finders are being asked for

    def find_spec(self, name, path=None, target=None):
        if name == "tocsin":
            return self._own_spec()
        if name in self.asking or not self._is_watched(name):
            return None
        self.asking.add(name)
        try:
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find and finder is not self else None
                if spec is not None:
                    self._tell_when_executed(spec)
                    return spec
            return None
        finally:
            self.asking.discard(name)

    def _is_watched(self, name: str) -> bool:
        return name in _TORCH or any(name == p or name.startswith(p + ".") for p in self.packages)

    def _own_spec(self):
        folder = os.path.join(self.root, "tocsin")
        path = os.path.join(folder, "__init__.py")
        if not os.path.exists(path):
            return None
        from importlib.util import spec_from_file_location  # costly, and seldom needed

        return spec_from_file_location(
            "tocsin", path, submodule_search_locations=[folder]
        )

    def _tell_when_executed(self, spec) -> None:
        loader = spec.loader
        original = getattr(loader, "exec_module", None)
        if original is None or not hasattr(loader, "__dict__") or isinstance(loader, type):
            return

        def exec_module(module):
            loader.__dict__.pop("exec_module", None)
            original(module)
            imported(module)

        loader.exec_module = exec_module


def imported(module) -> None:
    """A watched module has been executed. Never raises."""
    try:
        if module.__name__ == "torch":
            import tocsin.attach

            tocsin.attach.attach()
        elif "tocsin.attach" in sys.modules:
            sys.modules["tocsin.attach"].module_imported(module)
    except Exception as error:
        _warn(error)


def start() -> None:
    """Watch imports from now on; in a process that has torch already, attach at once."""
    packages = tuple(filter(None, os.environ.get("TOCSIN_MODULES", "").split(":")))
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    sys.meta_path.insert(0, ImportWatch(root, packages))
    if "torch" in sys.modules:
        imported(sys.modules["torch"])
