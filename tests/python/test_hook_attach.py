"""Getting into a process: the injected sitecustomize, the watch for torch, children, failures.

The package under test is the built one with a recorder of its own that counts and prints calls.
"""

import json
import os
import subprocess
import sys

import pytest

import tocsin

PACKAGE = os.path.dirname(os.path.abspath(tocsin.__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

RECORDER = """
import atexit, json, sys
def start(directory, mode, selection, packages, *options):
    from tocsin import _core, targets
    if mode == "run":
        raise OSError("no space left")
    targets.install(None, None, packages)
    _core.count(True)
    def finish():
        _core.count(False)
        print("COUNTS " + json.dumps([directory, mode, selection, _core.counts()]), flush=True)
    atexit.register(finish)
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A build tree: tocsin/ and tocsin_inject/, with the recorder above."""
    root = tmp_path_factory.mktemp("build")
    (root / "tocsin").mkdir()
    for name in os.listdir(PACKAGE):
        if name not in ("__pycache__", "recorder.py"):
            os.symlink(os.path.join(PACKAGE, name), root / "tocsin" / name)
    (root / "tocsin" / "recorder.py").write_text(RECORDER)
    os.symlink(os.path.join(SOURCE, "python", "tocsin_inject"), root / "tocsin_inject")
    return root


def _run(root, code, *arguments, path=(), **environment):
    paths = [str(root / "tocsin_inject"), *map(str, path)]
    variables = {k: v for k, v in os.environ.items() if not k.startswith("TOCSIN_")}
    variables.update(PYTHONPATH=":".join(paths), TOCSIN_RUN="/run", TOCSIN_MODE="record")
    variables.update(environment)
    variables = {k: v for k, v in variables.items() if v is not None}
    command = [sys.executable, *arguments, *(["-c", code] if code else [])]
    return subprocess.run(command, capture_output=True, text=True, env=variables, timeout=300)


def _counts(process):
    lines = [line for line in process.stdout.splitlines() if line.startswith("COUNTS ")]
    return [json.loads(line[len("COUNTS ") :]) for line in lines]


def test_torch_is_hooked(root):
    process = _run(root, "import torch; torch.nn.functional.relu(torch.ones(2))")
    assert process.returncode == 0 and process.stderr == ""
    [(directory, mode, selection, counts)] = _counts(process)
    assert (directory, mode, selection) == ("/run", "record", None)
    assert counts["torch.nn.functional.relu"] == [1, 0]


def test_nothing_without_torch(root):
    code = "import sys, json; print(sorted(n for n in sys.modules if 'tocsin' in n), sys.path[:2])"
    process = _run(root, code)
    assert process.stdout.startswith("['tocsin_inject']")
    assert str(root) not in process.stdout
    assert process.stderr == ""


@pytest.mark.parametrize("change", [{"TOCSIN_RUN": None}, {"TOCSIN_MODE": "off"}])
def test_off(root, change):
    code = "import torch, sys; print(sorted(n for n in sys.modules if 'tocsin' in n))"
    process = _run(root, code, **change)
    assert process.stdout == "[]\n"


def test_sys_path_is_as_without_us(root, tmp_path):
    code = "import sys; print(sys.path, [n for n in sys.modules if n == 'sitecustomize'])"
    without = _run(root, code, PYTHONPATH=str(tmp_path), TOCSIN_RUN=None)
    assert _run(root, code, path=[tmp_path]).stdout.startswith(without.stdout.split("]")[0])


def test_shadowed_sitecustomize_runs(root, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('theirs')\n")
    code = "import sitecustomize, os; print(os.path.dirname(sitecustomize.__file__))"
    process = _run(root, code, path=[tmp_path])
    assert process.stdout.splitlines() == ["theirs", str(tmp_path)]
    assert process.stderr == ""


def test_shadowed_sitecustomize_fails_as_without_us(root, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("import nothing_of_that_name\n")
    process = _run(root, "print('ran')", path=[tmp_path])
    assert process.stdout == "ran\n"
    assert "nothing_of_that_name" in process.stderr


def test_import_tocsin_without_torch(root):
    process = _run(root, "import tocsin; print(tocsin.__file__)")
    assert process.stdout.strip() == str(root / "tocsin" / "__init__.py")


def test_failure_is_one_line_and_the_job_runs(root):
    process = _run(root, "import torch; print(torch.ones(2).sum().item())", TOCSIN_MODE="run")
    assert process.returncode == 0
    assert process.stdout == "2.0\n"
    assert process.stderr == "tocsin: error: not recording: OSError: no space left\n"


def test_broken_package_is_one_line(root, tmp_path):
    folder = os.path.join(SOURCE, "python", "tocsin_inject")
    (tmp_path / "tocsin_inject").mkdir()
    for name in ("sitecustomize.py", "__init__.py"):
        os.symlink(os.path.join(folder, name), tmp_path / "tocsin_inject" / name)
    # A tree without a package: the environment's own tocsin must not be taken by accident.
    process = _run(tmp_path, "import torch; print('ran')")
    assert process.stdout == "ran\n"
    assert process.stderr.count("\n") == 1 and "tocsin: error: not recording" in process.stderr


def test_torch_looks_as_without_us(root):
    code = """
import torch, sys
print(type(torch.__loader__).__name__, vars(torch.__spec__.loader), torch.__spec__.origin)
print([type(f).__name__ for f in sys.meta_path if 'Watch' not in type(f).__name__])
"""
    assert _run(root, code).stdout.splitlines()[:2] == (
        _run(root, code, TOCSIN_RUN=None).stdout.splitlines()
    )


PACKAGE_FILES = {
    "mine/__init__.py": """
import torch
from . import part
def top(x): return part.Thing().go(x)
""",
    "mine/part.py": """
import functools
class Thing:
    def go(self, x): return self._private(x)
    def _private(self, x): return x
    @staticmethod
    def fixed(x): return x
    @classmethod
    def made(cls): return cls()
    @property
    def size(self): return 1
    def each(self): yield 1
def _hidden(x): return x
def late(x): return x
""",
    "other.py": "def untouched(x): return x\n",
}


def test_packages_of_the_user(root, tmp_path):
    for name, text in PACKAGE_FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    code = """
import other, mine
mine.top(1); mine.part.Thing.fixed(1); mine.part.Thing.made().size; list(mine.part.Thing().each())
mine.part._hidden(1); mine.part.late(2); other.untouched(1)
"""
    process = _run(root, code, path=[tmp_path], TOCSIN_MODULES="mine:absent")
    [(_, _, _, counts)] = _counts(process)
    assert {k: v[0] for k, v in counts.items() if k.startswith(("mine", "other"))} == {
        "mine.top": 1,
        "mine.part.Thing.go": 1,
        "mine.part.Thing.fixed": 1,
        "mine.part.Thing.made": 1,
        "mine.part.late": 1,
    }


def test_package_imported_before_torch(root, tmp_path):
    (tmp_path / "early.py").write_text("def first(x): return x\n")
    code = "import early, torch; early.first(1)"
    process = _run(root, code, path=[tmp_path], TOCSIN_MODULES="early")
    assert _counts(process)[0][3]["early.first"] == [1, 0]


CHILD = """
import multiprocessing, torch
from torch.nn import functional
def work(n):
    functional.relu(torch.ones(n))
    from tocsin import _core
    print("CHILD", _core.counts().get("torch.nn.functional.relu"), flush=True)
if __name__ == "__main__":
    context = multiprocessing.get_context({method!r})
    process = context.Process(target=work, args=(3,))
    process.start()
    process.join()
"""


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_children(root, tmp_path, method):
    script = tmp_path / "script.py"
    script.write_text(CHILD.format(method=method))
    process = _run(root, None, str(script))
    assert "CHILD (1, 0)" in process.stdout, process.stdout + process.stderr


def test_subprocess(root):
    code = """
import subprocess, sys
subprocess.run([sys.executable, "-c", "import torch; torch.nn.functional.relu(torch.ones(1))"])
"""
    assert _counts(_run(root, code))[0][3]["torch.nn.functional.relu"] == [1, 0]


def test_optimizers_schedulers_and_backward(root):
    code = """
import torch
class Own(torch.optim.SGD):
    def step(self, closure=None):
        return super().step(closure)
    def zero_grad(self, set_to_none=True):
        super().zero_grad(set_to_none)
class OwnSchedule(torch.optim.lr_scheduler.LRScheduler):
    def step(self, epoch=None):
        super().step(epoch)
    def get_lr(self):
        return [0.1]
model = torch.nn.Linear(2, 2)
for cls in (torch.optim.SGD, Own):
    optimizer = cls(model.parameters(), lr=0.1)
    schedule = OwnSchedule(optimizer)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
model.train(); model.eval()
"""
    [(_, _, _, counts)] = _counts(_run(root, code))
    assert counts["torch.optim.Optimizer.step"] == [6, 0]
    assert counts["torch.optim.Optimizer.zero_grad"] == [6, 0]
    # The step that the constructor makes is no step of the schedule.
    assert counts["torch.optim.lr_scheduler.LRScheduler.step"] == [6, 0]
    assert counts["torch.autograd.backward"] == [6, 0]
    assert counts["torch.nn.Module.__call__"] == [6, 0]
    assert counts["torch.nn.Module.train"] == [1, 0]
    assert counts["torch.nn.Module.eval"] == [1, 0]


def test_dynamo_is_prepared(root):
    code = """
import torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=torch.tensor(0.1))
step = torch.compile(optimizer.step, backend="eager")
forward = torch.compile(model, backend="eager", fullgraph=True)
for _ in range(2):
    forward(torch.ones(1, 2)).sum().backward()
    step()
from tocsin import dynamo
print(dynamo._prepared)
"""
    process = _run(root, code)
    assert process.stdout.splitlines()[0] == "True"
    assert _counts(process)[0][3]["torch.optim.Optimizer.step"] == [2, 0]


def test_exit_status_and_exceptions_pass(root):
    assert _run(root, "import torch, sys; sys.exit(7)").returncode == 7
    process = _run(root, "import torch; torch.nn.functional.relu('x')")
    plain = _run(root, "import torch; torch.nn.functional.relu('x')", TOCSIN_RUN=None)
    assert (process.returncode, process.stderr) == (plain.returncode, plain.stderr)
