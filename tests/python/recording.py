"""Runs small training scripts with and without the recorder, and reads what was recorded."""

import json
import os
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import tocsin

INJECT = Path(tocsin.__file__).parent.parent / "tocsin_inject"
HEADER = "import torch\ntorch.set_num_threads(1)\ntorch.manual_seed(0)\n"


def _is_wanted(state, wanted):
    if "variable_kind" not in wanted and state["variable_kind"] not in ("parameter", "buffer"):
        return False
    if "attribute" not in wanted and state["attribute"] not in ("data", "grad"):
        return False
    return all(state.get(key) == value for key, value in wanted.items())


class Process:
    """The events of one recorded process."""

    def __init__(self, path):
        command = [os.environ["TOCSIN"], "dump", "--format", "jsonl", str(path)]
        out = subprocess.run(command, capture_output=True, text=True)
        self.events = [json.loads(line) for line in out.stdout.splitlines()]
        self.pid = int(path.stem.rsplit("-", 1)[1])

    def calls(self, name):
        return [e for e in self.events if e["kind"] == "enter" and e["function"] == name]

    def states(self, **wanted):
        """Data and gradients of parameters and buffers, unless other ones are named."""
        return [e for e in self.events if e["kind"] == "state" and _is_wanted(e, wanted)]

    def meta(self, key):
        changes = (e for e in self.events if e["kind"] == "meta" and e["key"] == key)
        return [change["value"].get("value") for change in changes]

    def variables(self):
        return sorted({e["variable"] for e in self.states()})

    def at_role(self, role, moment, **wanted):
        """States inside calls of a role, one list per call."""
        calls, groups = {}, []
        for event in self.events:
            if event["kind"] == "enter" and event["role"] == role:
                calls[event["thread"], event["call"]] = group = []
                groups.append(group)
            elif event["kind"] == "state" and event["moment"] == moment:
                group = calls.get((event["thread"], event["call"]))
                if group is not None and _is_wanted(event, wanted):
                    group.append(event)
        return groups


class Result:
    def __init__(self, script, completed, directory):
        self.script = script  # keeps the directory
        self.returncode = completed.returncode
        self.stdout = completed.stdout
        self.stderr = completed.stderr
        self.files = sorted(directory.glob("process-*.trace")) if directory else []

    def processes(self):
        return [Process(path) for path in self.files]

    @property
    def process(self):
        assert len(self.files) == 1, (self.files, self.stderr)
        return Process(self.files[0])


class Script:
    """A script in a temporary directory of its own."""

    def __init__(self, text):
        self.directory = tempfile.TemporaryDirectory()
        self.root = Path(self.directory.name)
        self.path = self.root / "train.py"
        self.path.write_text(HEADER + textwrap.dedent(text))

    def environment(self, run=None, **more):
        names = [name for name in os.environ if name.startswith("TOCSIN_")]
        environment = {key: value for key, value in os.environ.items() if key not in names}
        environment.update(OMP_NUM_THREADS="1", PYTHONDONTWRITEBYTECODE="1", **more)
        if run is not None:
            run.mkdir()
            path = os.pathsep.join([str(INJECT), environment.get("PYTHONPATH", "")])
            environment.update(TOCSIN_RUN=str(run), TOCSIN_MODE="record", PYTHONPATH=path)
            environment.update(more)
        return environment

    def command(self, *arguments, launcher=()):
        return [sys.executable, *launcher, str(self.path), *arguments]

    def plain(self, *arguments, launcher=()):
        completed = subprocess.run(
            self.command(*arguments, launcher=launcher),
            env=self.environment(),
            capture_output=True,
            text=True,
            cwd=self.root,
            timeout=300,
        )
        return Result(self, completed, None)

    def recorded(self, *arguments, launcher=(), **environment):
        run = self.root / f"run{len(list(self.root.glob('run*')))}"
        completed = subprocess.run(
            self.command(*arguments, launcher=launcher),
            env=self.environment(run, **environment),
            capture_output=True,
            text=True,
            cwd=self.root,
            timeout=300,
        )
        return Result(self, completed, run)

    def start(self, **environment):
        """A recorded process that is still running, and its run directory."""
        run = self.root / f"run{len(list(self.root.glob('run*')))}"
        process = subprocess.Popen(
            self.command(),
            env=self.environment(run, **environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.root,
        )
        return process, run


def recorded(text, **environment):
    """Record a script once; it has to succeed."""
    result = Script(text).recorded(**environment)
    assert result.returncode == 0, result.stderr
    return result
