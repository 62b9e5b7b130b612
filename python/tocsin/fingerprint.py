"""What a run ran on, as far as it may decide bits: processor, libraries, packages, source.

Read once a process, from files and from modules that are loaded anyway: no process is started, no
secret, host name or foreign environment variable is kept. `tocsin align` and `tocsin env A B` show
what differs between two recordings (docs/align.md).
"""

import hashlib
import os
import platform
import sys

DECIDES, MAY, HARMLESS = "decides", "may decide", "harmless"

_FILE_MAX = 1 << 20  # what is read of a file
_PACKAGES_MAX = 1000


def _read(path, most=_FILE_MAX):
    """The beginning of a file, or ""."""
    try:
        with open(path, "rb") as file:
            return file.read(most).decode(errors="replace")
    except OSError:
        return ""


def _digest(text):
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16] if text else ""


def _processor():
    """(model, flags) as Linux tells them of the first processor."""
    block = _read("/proc/cpuinfo", 1 << 14).partition("\n\n")[0]
    pairs = (line.partition(":") for line in block.splitlines())
    facts = {name.strip(): value.strip() for name, _, value in pairs}
    model = facts.get("model name") or facts.get("Processor") or os.uname().machine
    flags = facts.get("flags") or facts.get("Features") or ""
    return model, _digest(" ".join(sorted(flags.split())))


def _libc():
    try:
        return os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        return ""


def _libraries(config):
    """(name, version) of the libraries for maths that torch was built with."""
    for line in config.splitlines():
        line = line.strip(" -")
        if "Math Kernel Library" in line:
            yield "mkl", line.partition("Version ")[2].partition(" for ")[0]
        elif "MKL-DNN" in line:
            yield "onednn", line.partition("MKL-DNN ")[2]


def _accelerator(torch):
    """(name, text) of what a GPU computes with. Asks nothing that would start the GPU."""
    yield "cuda", torch.version.cuda or torch.version.hip or ""
    if not torch.cuda.is_initialized():
        return
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    yield "gpu", f"{properties.name}, {properties.multi_processor_count} multiprocessors"
    yield "cudnn", str(torch.backends.cudnn.version() or "")
    if torch.distributed.is_available() and torch.distributed.is_nccl_available():
        yield "nccl", ".".join(map(str, torch.cuda.nccl.version()))


def _packages():
    """(name, version) of all packages there are, by the names of their folders."""
    found = {}
    for folder in sys.path:
        try:
            entries = os.listdir(folder or ".")
        except OSError:
            continue
        for entry in entries:
            name, dash, version = entry.removesuffix(".dist-info").rpartition("-")
            if dash and entry.endswith(".dist-info"):
                found.setdefault(name, version)  # the first on the path is imported
    return sorted(found.items())[:_PACKAGES_MAX]


def _repository(path):
    """The .git folder of the repository in which a file lies, or ""."""
    folder = os.path.dirname(os.path.abspath(path))
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return git
        if os.path.isfile(git):  # a worktree: "gitdir: PATH"
            return os.path.join(folder, _read(git).strip().removeprefix("gitdir: "))
        if os.path.dirname(folder) == folder:
            return ""
        folder = os.path.dirname(folder)


def commit(path):
    """The commit that is checked out where a file lies, or ""."""
    git = _repository(path)
    head = _read(os.path.join(git, "HEAD")).strip() if git else ""
    if not head.startswith("ref: "):
        return head
    reference = head[5:]
    shared = os.path.join(git, _read(os.path.join(git, "commondir")).strip())
    for folder in (git, shared):
        found = _read(os.path.join(folder, *reference.split("/"))).strip()
        if found:
            return found
    for line in _read(os.path.join(shared, "packed-refs")).splitlines():
        if line.endswith(" " + reference):
            return line.partition(" ")[0]
    return ""


def _script():
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    return os.path.abspath(main) if main else ""


def facts(torch):
    """(name, text, rating) of everything that is known here; texts that are empty are left out."""
    model, flags = _processor()
    config = torch.__config__.show()
    script = _script()
    numpy = sys.modules.get("numpy")
    known = [
        ("torch", torch.__version__, DECIDES),
        ("torch.build", _digest(config), DECIDES),
        ("torch.cpu_capability", torch.backends.cpu.get_cpu_capability(), DECIDES),
        *((name, text, DECIDES) for name, text in _libraries(config)),
        *((name, text, DECIDES) for name, text in _accelerator(torch)),
        ("processor", model, MAY),
        ("processor.flags", flags, MAY),
        ("numpy", getattr(numpy, "__version__", ""), MAY),
        ("python", platform.python_version(), MAY),
        ("libc", _libc(), MAY),
        *((f"package {name}", version, MAY) for name, version in _packages()),
        ("commit", commit(script) if script else "", MAY),
        ("script", _digest(_read(script)) if script else "", MAY),
        ("kernel", os.uname().release, HARMLESS),
    ]
    return [fact for fact in known if fact[1]]
