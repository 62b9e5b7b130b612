"""Waits in a process until torch is imported, then attaches the recorder.

A process that never imports torch pays for this small module and nothing else. The finder below
never finds anything itself: it lets the other finders answer and asks to be told when the module
has been executed, by a temporary exec_module on that module's own loader object.

Any interpreter of a job may come here, also one that is too old for the package `tocsin`.
"""

from __future__ import annotations

import os
import sys

_WATCHED = (
    "torch",
    "torch._dynamo",
    "torch.distributed._functional_collectives",
    "transformers.trainer_callback",
)
_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def _warn(error: object) -> None:
    if sys.stderr is not None:
        print(f"tocsin: error: not recording: {error}", file=sys.stderr)


def _has_extension(root: str) -> bool:
    """Can this interpreter load the package `tocsin` in the folder `root`?"""
    from importlib.machinery import EXTENSION_SUFFIXES

    core = os.path.join(root, "tocsin", "_core")
    return any(os.path.exists(core + suffix) for suffix in EXTENSION_SUFFIXES)


def _why_not(root: str) -> str:
    python = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    package = os.path.join(root, "tocsin")
    if sys.version_info < (3, 10):
        return f"{python} is too old, Tocsin needs 3.10"
    if not os.path.exists(os.path.join(package, "__init__.py")):
        return f"no package in {package}"
    return f"{package} is not built for {python}: install Tocsin with {sys.executable} -m pip"


class ImportWatch:
    """A finder on sys.meta_path that tells when torch and the like have been imported."""

    def __init__(self, root: str, packages: tuple[str, ...]):
        self.root = root  # has the package `tocsin`
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
        return name in _WATCHED or any(name == p or name.startswith(p + ".") for p in self.packages)

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
            self.imported(module)

        # Its frame counts as one of importlib's, which warnings and tracebacks leave out: a warning
        # with stacklevel=2 at import is about the line that imports.
        hidden = "<frozen importlib._bootstrap_external>"
        exec_module.__code__ = exec_module.__code__.replace(co_filename=hidden)
        loader.exec_module = exec_module

    def imported(self, module) -> None:
        """A watched module has been executed. Never raises."""
        try:
            if module.__name__ == "torch":
                if not _has_extension(self.root):
                    _warn(_why_not(self.root))
                    return
                import tocsin.attach

                tocsin.attach.attach()
            elif "tocsin.attach" in sys.modules:
                sys.modules["tocsin.attach"].module_imported(module)
        except Exception as error:
            _warn(repr(error))


def _begin(root: str) -> None:
    for finder in sys.meta_path:
        if isinstance(finder, ImportWatch):
            # Installed here too. The package of the command that was called is preferred.
            if _has_extension(root):
                finder.root = root
            return
    packages = tuple(filter(None, os.environ.get("TOCSIN_MODULES", "").split(":")))
    watch = ImportWatch(root, packages)
    sys.meta_path.insert(0, watch)
    if "torch" in sys.modules:
        watch.imported(sys.modules["torch"])


def wanted() -> bool:
    """Is this process to be recorded, or to have a fault?"""
    asked = os.environ.get("TOCSIN_RUN") or os.environ.get("TOCSIN_INJECT")
    return bool(asked) and os.environ.get("TOCSIN_MODE") != "off"


def start(root: str = _ROOT) -> None:
    """Watch imports from now on, with the package `tocsin` in `root`; in a process that has torch
    already, attach at once. Does nothing in a process of which nothing is asked. Never raises."""
    if not wanted():
        return
    try:
        _begin(root)
    except Exception as error:
        _warn(repr(error))
