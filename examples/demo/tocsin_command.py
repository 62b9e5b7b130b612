"""Running the command `tocsin` on the demo programs, several at a time."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


class DemoError(Exception):
    """A step of the demo that should have worked did not; the text says which and why."""


@dataclass(frozen=True)
class Program:
    """One of the demo programs with its arguments, started by torchrun when ranks > 1."""

    script: str
    arguments: str
    ranks: int = 1

    def command(self):
        python = [sys.executable]
        if self.ranks > 1:
            python += ["-m", "torch.distributed.run", "--standalone"]
            python += ["--nproc-per-node", str(self.ranks)]
        ddp = ["--ddp"] if self.ranks > 1 else []
        return python + [str(HERE / self.script)] + self.arguments.split() + ddp

    def __str__(self):
        launcher = f"torchrun --nproc-per-node {self.ranks}" if self.ranks > 1 else "python"
        ddp = " --ddp" if self.ranks > 1 else ""
        return f"{launcher} {self.script} {self.arguments}{ddp}"


class Tocsin:
    def __init__(self, executable, folder, jobs):
        self.executable = str(Path(executable).resolve())
        self.folder = Path(folder)
        self.jobs = jobs
        # One thread a process: several run at a time, and the programs are tiny.
        self.environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

    def call(self, *arguments):
        return subprocess.run(
            [self.executable, *map(str, arguments)],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        )

    def record(self, name, program):
        run = self.folder / name
        done = self.call("record", "--quiet", "-o", run, "--", *program.command())
        if done.returncode != 0:
            raise DemoError(f"recording of {name} failed ({done.returncode}):\n{done.stderr}")
        return run

    def infer(self, runs, name="invariants.jsonl"):
        path = self.folder / name
        done = self.call("infer", *runs, "-o", path)
        if done.returncode != 0:
            raise DemoError(f"inference failed ({done.returncode}):\n{done.stderr}")
        return path

    def watch(self, name, program, invariants):
        """The report of `tocsin run`: see docs/cli.md."""
        run = self.folder / name
        path = self.folder / f"{name}.json"
        done = self.call(
            "run", "--quiet", "-i", invariants, "-o", run, "--format", "json", "-r", path,
            "--", *program.command(),
        )  # fmt: skip
        if done.returncode != 0 or not path.exists():
            raise DemoError(f"run of {name} failed ({done.returncode}):\n{done.stderr}")
        return json.loads(path.read_text(encoding="utf-8"))

    def in_parallel(self, function, items):
        """function(*item) for each item, results in order; the first failure is raised."""
        with ThreadPoolExecutor(self.jobs) as pool:
            return list(pool.map(lambda item: function(*item), items))
