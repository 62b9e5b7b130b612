"""Starts the recorder in this process, as the environment says (docs/hooking.md)."""

import os
import sys
import types


class Environment:
    """What `tocsin record`, `tocsin run` and `tocsin inject` tell the processes of a job.

    TOCSIN_RUN        the run's directory
    TOCSIN_MODE       "record" (everything), "run" (what the selection names) or "off"
    TOCSIN_SELECTION  a file that says what to record (docs/formats/selection.md)
    TOCSIN_SAMPLE     digest the model's data and gradients only in each such step
    TOCSIN_BOUNDARIES what else is recorded for comparing runs: "online" (nothing), "trusted",
                      "full" or "drill" (docs/align.md)
    TOCSIN_INJECT     faults to put in, for trying out what finds them (docs/inject.md); in a
                      process without TOCSIN_RUN this alone
    TOCSIN_DRILL      STEP:ROLE:NAME: boundaries only in this step, and tensors by tiles, finest
                      that one
    TOCSIN_JITTER     a number: small random delays at hooked calls, drawn from it
    TOCSIN_MAP        a map of names: what is a part of another framework's tensor is also digested
                      as such (docs/formats/map.md)
    TOCSIN_MAP_GROUPS how many groups of queries the model has
    TOCSIN_GUARD      what a finding of the guard leads to: "stop", "skip_update" or "continue"; not
                      set: there is no guard (docs/guard.md)
    TOCSIN_GUARD_FOLDER  of its ledger
    TOCSIN_MODULES    packages of the user whose functions are hooked too, separated by ":"
    """

    def __init__(self, variables=os.environ):
        self.directory = variables.get("TOCSIN_RUN", "")
        self.mode = variables.get("TOCSIN_MODE", "record")
        self.selection = variables.get("TOCSIN_SELECTION") or None
        self.sample = variables.get("TOCSIN_SAMPLE") or "1"
        self.boundaries = variables.get("TOCSIN_BOUNDARIES") or "online"
        self.inject = variables.get("TOCSIN_INJECT", "")
        self.drill = variables.get("TOCSIN_DRILL", "")
        self.jitter = variables.get("TOCSIN_JITTER") or "0"
        self.name_map = variables.get("TOCSIN_MAP", "")
        self.groups = variables.get("TOCSIN_MAP_GROUPS") or "0"
        self.guard = variables.get("TOCSIN_GUARD", "")
        self.guard_folder = variables.get("TOCSIN_GUARD_FOLDER") or "tocsin-guard"
        self.packages = tuple(filter(None, variables.get("TOCSIN_MODULES", "").split(":")))

    def digest_every(self):
        if not self.sample.isdecimal() or not 1 <= int(self.sample) < 2**31:
            raise ValueError(f"TOCSIN_SAMPLE is {self.sample!r}, not a number of steps")
        return int(self.sample)

    def drill_place(self):
        """(step, name, role), or None."""
        if not self.drill:
            return None
        step, role, name = (*self.drill.split(":", 2), "", "")[:3]
        if not step.isdecimal() or not 1 <= int(step) < 2**62 or not role:
            raise ValueError(f"TOCSIN_DRILL is {self.drill!r}, not STEP:ROLE:NAME")
        return int(step), name, role

    def map_groups(self):
        if not self.groups.isdecimal() or int(self.groups) >= 2**31:
            raise ValueError(f"TOCSIN_MAP_GROUPS is {self.groups!r}, not a number of groups")
        return int(self.groups)

    def jitter_seed(self):
        if not self.jitter.isdecimal() or int(self.jitter) >= 2**64:
            raise ValueError(f"TOCSIN_JITTER is {self.jitter!r}, not a seed")
        return int(self.jitter)


_attached = False
_injected = False  # without a recording


def attach(environment: Environment | None = None) -> bool:
    """Start recording, once per process. A failure is one line on stderr, never an exception."""
    global _attached
    environment = environment or Environment()
    if _attached or environment.mode == "off":
        return _attached
    if not environment.directory:
        _inject(environment.inject)
        return _attached
    try:
        from tocsin import _core, cuts, recorder

        _core.jitter_seed(environment.jitter_seed())
        if environment.name_map:
            cuts.choose(environment.name_map, environment.map_groups())
        recorder.start(
            environment.directory,
            environment.mode,
            environment.selection,
            environment.packages,
            environment.digest_every(),
            environment.boundaries,
            environment.drill_place(),
        )
        if environment.inject:
            from tocsin import injection

            injection.from_environment(environment.inject)
        if environment.guard:
            from tocsin.guard import attached

            attached.install(environment.guard, environment.guard_folder)
        _attached = True
    except Exception as error:
        _stop(error)
    return _attached


def _inject(faults: str) -> None:
    """Faults without a recording. What cannot be put in ends the process: a run without its fault
    must not pass for one that survived it."""
    global _injected
    if faults and not _injected:
        from tocsin import injection

        try:
            injection.from_environment(faults)
        except ValueError as error:
            raise SystemExit(f"tocsin: error: no fault can be injected: {error}") from None
        _injected = True


def module_imported(module: types.ModuleType) -> None:
    """A module of the user's packages, or one that torch imports late. Never raises."""
    if not _attached:
        return
    try:
        from tocsin import targets

        targets.module_imported(module)
    except Exception as error:
        _stop(error)


def _stop(error: Exception) -> None:
    """Give up: nothing is observed from here on."""
    core = sys.modules.get("tocsin._core")
    if core is not None:
        core.pause()
    if sys.stderr is not None:
        print(f"tocsin: error: not recording: {type(error).__name__}: {error}", file=sys.stderr)
