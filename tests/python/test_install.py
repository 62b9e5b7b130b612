"""`pip install`: the wheel's files, recording with what it installs, and its removal."""

import os
import pathlib
import subprocess
import sys
import sysconfig
import zipfile

import pytest

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SCRIPT = """
import torch

torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.ones(3, 4)).square().mean().backward()
    optimizer.step()
print("trained")
"""


def _run(*command, folder=None):
    """Without the package of the build tree, and without a recorder around this test."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name != "PYTHONPATH" and not name.startswith("TOCSIN")
    }
    return subprocess.run(
        [str(word) for word in command],
        capture_output=True,
        text=True,
        cwd=folder,
        env=variables,
        timeout=600,
    )


def _succeed(*command, folder=None):
    done = _run(*command, folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-build-isolation", "--no-deps", "--no-index", "--disable-pip-version-check")
    _succeed(sys.executable, "-m", "pip", "wheel", *offline, "-w", folder, SOURCE)
    [wheel] = folder.iterdir()
    return wheel


class Environment:
    """A virtual environment that sees the torch of the one that runs this test."""

    def __init__(self, folder):
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.tocsin = folder / "bin" / "tocsin"
        _succeed(sys.executable, "-m", "venv", folder)
        where = "import sysconfig; print(sysconfig.get_path('platlib'))"
        self.packages = _succeed(self.python, "-c", where).stdout.strip()
        with open(os.path.join(self.packages, "torch_of_test.pth"), "w") as file:
            file.write(sysconfig.get_path("platlib") + "\n")

    def pip(self, *arguments):
        return _succeed(self.python, "-m", "pip", "--disable-pip-version-check", *arguments)

    def files(self):
        return {
            os.path.join(folder, name)
            for folder, _, names in os.walk(self.folder)
            for name in names
            if not name.endswith(".pyc")  # pip's own, from running it
        }


@pytest.fixture(scope="module")
def environment(wheel, tmp_path_factory):
    environment = Environment(tmp_path_factory.mktemp("fresh") / "venv")
    environment.before = environment.files()
    environment.pip("install", "--no-index", "--no-deps", wheel)
    return environment


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def test_what_is_in_the_wheel(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    metadata = [name for name in names if ".dist-info/" in name]
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    data = wheel.name.split("-cp")[0] + ".data"
    python = pathlib.Path(SOURCE, "python")
    sources = {
        str(path.relative_to(python))
        for package in ("tocsin", "tocsin_inject")
        for path in (python / package).rglob("*.py")
    }
    mpi = {f"{data}/scripts/libtocsin_mpi.so"}  # where the machine that built it has an MPI
    assert set(names) - set(metadata) - mpi == sources | {
        f"{data}/scripts/tocsin",
        f"tocsin/_core{suffix}",
        "zz_tocsin.pth",
    }


def test_what_it_says_of_itself(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        fields = archive.read(name).decode().split("\n\n")[0].splitlines()
    with open(os.path.join(SOURCE, "CMakeLists.txt")) as file:
        version = file.read().split("project(tocsin VERSION ")[1].split()[0]
    assert f"Version: {version}" in fields
    assert "License-Expression: Apache-2.0" in fields
    assert not [field for field in fields if field.startswith("Requires-Dist")]


def test_command_and_module(environment):
    version = _succeed(environment.tocsin, "--version").stdout
    assert version.startswith("tocsin ")
    assert _succeed(environment.python, "-m", "tocsin", "--version").stdout == version


def test_no_part_is_loaded_unless_recording(environment):
    code = "import sys; print([name for name in sys.modules if 'tocsin' in name])"
    assert _succeed(environment.python, "-c", code).stdout == "[]\n"


def test_records_in_its_own_environment(environment, script, tmp_path):
    # -I: Python does not look at PYTHONPATH, so that only zz_tocsin.pth lets us in.
    command = (environment.python, "-I", script)
    done = _succeed(environment.tocsin, "record", "-o", "run", "--", *command, folder=tmp_path)
    assert done.stdout == "trained\n"
    dump = _succeed(environment.tocsin, "dump", "run", folder=tmp_path).stdout
    assert dump.count("torch.optim.Optimizer.step") >= 3


def test_records_another_environment(environment, script, tmp_path):
    command = (environment.tocsin, "record", "-o", "run", "--", sys.executable, script)
    done = _succeed(*command, folder=tmp_path)
    assert done.stdout == "trained\n"
    dump = _succeed(environment.tocsin, "dump", "run", folder=tmp_path).stdout
    assert dump.count("torch.optim.Optimizer.step") >= 3


def test_the_package_of_the_called_command_is_preferred(environment, tmp_path):
    """The build tree's command, in an environment that has an installed one too."""
    build = os.path.dirname(os.environ["TOCSIN"])
    commands = {f"{build}/tocsin": f"{build}/python", environment.tocsin: environment.packages}
    for tocsin, root in commands.items():
        code = "import tocsin; print(tocsin.__file__)"
        command = (tocsin, "record", "-o", "run", "--force", "--", environment.python, "-c", code)
        done = _run(*command, folder=tmp_path)
        assert done.stdout == f"{root}/tocsin/__init__.py\n", done.stderr


def test_package_for_another_python_is_one_line(environment, tmp_path):
    """The extension is missing for this interpreter: the job runs, unrecorded."""
    (tmp_path / "torch.py").write_text("print('imported')\n")
    (tmp_path / "script.py").write_text("import torch\n")
    core = os.path.join(
        environment.packages, "tocsin", "_core" + sysconfig.get_config_var("EXT_SUFFIX")
    )
    os.rename(core, core + ".away")
    try:
        command = (environment.tocsin, "record", "-o", "run", "--", environment.python, "script.py")
        done = _run(*command, folder=tmp_path)
    finally:
        os.rename(core + ".away", core)
    assert done.stdout == "imported\n"
    lines = [line for line in done.stderr.splitlines() if "tocsin: error:" in line]
    python = "{} {}.{}".format(sys.implementation.name, *sys.version_info)
    assert lines == [
        f"tocsin: error: not recording: {environment.packages}/tocsin is not built for {python}: "
        f"install Tocsin with {environment.python} -m pip"
    ]


def test_uninstall_leaves_nothing(environment):  # the last one: it ends the environment
    assert environment.files() > environment.before
    environment.pip("uninstall", "--yes", "tocsin")
    assert environment.files() == environment.before
    assert not os.path.exists(os.path.join(environment.packages, "tocsin"))
    assert not os.path.exists(os.path.join(environment.packages, "tocsin_inject"))
