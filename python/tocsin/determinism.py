"""What must be fixed so that two runs compute the same bits: set it, and say what is not set.

`tocsin env` prints the audit; a recording holds the settings as they were at the first step, and
`tocsin align` says which differ (docs/align.md). Sources of the list: PyTorch's notes on
reproducibility, NVIDIA's on cuBLAS and NCCL, Intel's on conditional numerical reproducibility.
"""

import os
import random
import sys

OK, MISSING, BAD = "ok", "missing", "bad value"
LATE, GHOST, DEPRECATED = "too late", "ghost", "deprecated"

# name, accepted values (None: any), who needs it ("" everybody, else a GPU), what it is for
_VARIABLES = (
    ("PYTHONHASHSEED", None, "", "the order of sets of strings"),
    ("OMP_NUM_THREADS", None, "", "sums on the CPU depend on the number of threads"),
    ("MKL_CBWR", ("COMPATIBLE", "AVX2,STRICT", "AVX512,STRICT"), "", "other kinds of CPU"),
    ("CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8"), "gpu", "cuBLAS on several streams"),
    ("NCCL_ALGO", None, "gpu", "the order in which ranks are summed"),
    ("NCCL_PROTO", None, "gpu", "the same"),
    ("NCCL_NVLS_ENABLE", ("0",), "gpu", "sums in the switch"),
    ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", ("0",), "gpu", "Transformer Engine's attention"),
)
# Nobody reads these, or under another name.
_GHOSTS = {
    "NCCL_DETERMINISTIC": "NCCL does not read it; fix NCCL_ALGO and NCCL_PROTO",
    "NCCL_TIMEOUT": "NCCL does not read it; init_process_group(timeout=...)",
}
_DEPRECATED = {
    "NCCL_ASYNC_ERROR_HANDLING": "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "NCCL_BLOCKING_WAIT": "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_TRACE_BUFFER_SIZE": "TORCH_FR_BUFFER_SIZE",
}


def _flags(torch):
    """(name, value in effect, value wanted, what it is for) of torch's own switches."""
    backends = torch.backends
    yield (
        "torch.use_deterministic_algorithms",
        torch.are_deterministic_algorithms_enabled(),
        True,
        "operators that have a deterministic form use it, others raise",
    )
    yield "torch.backends.cudnn.deterministic", backends.cudnn.deterministic, True, "convolutions"
    yield "torch.backends.cudnn.benchmark", backends.cudnn.benchmark, False, "timed choices"
    matmul = backends.cuda.matmul
    for name in ("bf16", "fp16"):
        flag = f"allow_{name}_reduced_precision_reduction"
        if hasattr(matmul, flag):
            value = getattr(matmul, flag)
            yield f"torch.backends.cuda.matmul.{flag}", bool(value), False, "split sums"


def deterministic(seed: int, *, warn_only: bool = False) -> None:
    """Seed Python's, numpy's and torch's generators and choose deterministic algorithms. What only
    the launcher can set (`tocsin env` lists it) stays as it is; a DataLoader with workers also
    needs a generator and worker_init_fn. warn_only: operators without a deterministic form warn."""
    import torch

    random.seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(seed % 2**32)
    torch.manual_seed(seed)
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    matmul = torch.backends.cuda.matmul
    for name in ("bf16", "fp16"):
        flag = f"allow_{name}_reduced_precision_reduction"
        if hasattr(matmul, flag):
            setattr(matmul, flag, False)


def _initial_environment():
    """The environment as it was when this process began; None: not known."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def _audit_variable(name, accepted, reason, initial):
    value = os.environ.get(name)
    if value is None:
        return name, MISSING, None, reason
    if accepted is not None and value not in accepted:
        return name, BAD, value, f"{reason}; known to work: {' or '.join(accepted)}"
    if initial is not None and initial.get(name) != value:
        return name, LATE, value, "set by the program itself: libraries may have read it before"
    return name, OK, value, reason


def audit(gpu=None):
    """[(name, state, value, reason)] of everything that decides whether bits repeat. gpu: what only
    GPUs need counts; None: if there is one."""
    torch = sys.modules.get("torch")
    if gpu is None:
        gpu = torch is not None and torch.cuda.is_available()
    initial = _initial_environment()
    found = [
        _audit_variable(name, accepted, reason, initial)
        for name, accepted, where, reason in _VARIABLES
        if gpu or not where
    ]
    for name, advice in _GHOSTS.items():
        if name in os.environ:
            found.append((name, GHOST, os.environ[name], advice))
    for name, new in _DEPRECATED.items():
        if name in os.environ:
            found.append((name, DEPRECATED, os.environ[name], f"now {new}"))
    if torch is not None:
        for name, value, wanted, reason in _flags(torch):
            state = OK if value == wanted else MISSING
            found.append((name, state, str(value), reason))
    return found


def settings(torch):
    """{name: text} of what a recording keeps: it decides bits, and holds no secret."""
    names = [name for name, *_ in _VARIABLES] + [*_GHOSTS, *_DEPRECATED]
    kept = {name: os.environ[name] for name in names if name in os.environ}
    kept.update((name, str(value)) for name, value, *_ in _flags(torch))
    kept["torch"] = torch.__version__
    kept["torch.get_num_threads"] = str(torch.get_num_threads())
    kept["torch.get_float32_matmul_precision"] = torch.get_float32_matmul_precision()
    kept["python"] = ".".join(map(str, sys.version_info[:3]))
    return kept
