"""What must be fixed so that two runs compute the same bits: set it, and say what is not set.

`tocsin env` prints the audit; a recording holds the settings as they were at the first step, and
`tocsin align` says which differ (docs/align.md). Sources of the list: PyTorch's notes on
reproducibility, NVIDIA's on cuBLAS and NCCL, Intel's on conditional numerical reproducibility.
"""

import contextlib
import importlib.util
import os
import random
import sys

from tocsin import fingerprint
from tocsin.fingerprint import DECIDES, HARMLESS, MAY

OK, MISSING, BAD = "ok", "missing", "bad value"
LATE, GHOST, DEPRECATED = "too late", "ghost", "deprecated"

# name, accepted values (None: any), who needs it ("" everybody, "gpu", else whoever has that
# package), what it is for
_VARIABLES = (
    ("PYTHONHASHSEED", None, "", "the order of sets of strings"),
    ("OMP_NUM_THREADS", None, "", "sums on the CPU depend on the number of threads"),
    ("MKL_CBWR", ("COMPATIBLE", "AVX2,STRICT", "AVX512,STRICT"), "", "other kinds of CPU"),
    ("CUBLAS_WORKSPACE_CONFIG", (":4096:8", ":16:8"), "gpu", "cuBLAS on several streams"),
    ("NCCL_ALGO", None, "gpu", "the order in which ranks are summed"),
    ("NCCL_PROTO", None, "gpu", "the same"),
    ("NCCL_NVLS_ENABLE", ("0",), "gpu", "sums in the switch"),
    ("NCCL_MIN_NCHANNELS", None, "gpu", "sums are cut by channels; the same as the maximum"),
    ("NCCL_MAX_NCHANNELS", None, "gpu", "the same as the minimum"),
    ("NVTE_ALLOW_NONDETERMINISTIC_ALGO", ("0",), "transformer_engine", "its attention"),
    ("FLASH_ATTENTION_DETERMINISTIC", ("1",), "flash_attn", "its backward, if the build reads it"),
    ("MAMBA_DETERMINISTIC", ("1",), "mamba_ssm", "its backward"),
    ("CAUSAL_CONV1D_DETERMINISTIC", ("1",), "causal_conv1d", "its backward"),
)
# Nobody needs these, but what they say decides bits.
_OPTIONAL = {
    "MKL_NUM_THREADS": "sums on the CPU depend on the number of threads",
    "NCCL_TOPO_FILE": "the order in which ranks are summed",
}
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
    yield (
        "torch.utils.deterministic.fill_uninitialized_memory",
        torch.utils.deterministic.fill_uninitialized_memory,
        True,
        "what reads memory that nobody wrote is seen: it is NaN",
    )
    yield "torch.backends.cudnn.deterministic", backends.cudnn.deterministic, True, "convolutions"
    yield "torch.backends.cudnn.benchmark", backends.cudnn.benchmark, False, "timed choices"
    matmul = backends.cuda.matmul
    for name in ("bf16", "fp16"):
        flag = f"allow_{name}_reduced_precision_reduction"
        if hasattr(matmul, flag):
            value = getattr(matmul, flag)
            yield f"torch.backends.cuda.matmul.{flag}", bool(value), False, "split sums"
    inductor = sys.modules.get("torch._inductor.config")
    if inductor is not None and inductor.max_autotune:
        yield "torch._inductor.config.max_autotune", True, False, "timed choices"


def _precisions(torch):
    """(name, precision) of products in fp32. "none": as the switch above it says."""
    for path in ("cuda.matmul", "cudnn.conv", "cudnn.rnn", "mkldnn.matmul", "mkldnn.conv"):
        owner = torch.backends
        for part in path.split("."):
            owner = getattr(owner, part, None)
        value = getattr(owner, "fp32_precision", None)
        if value is not None:
            yield f"torch.backends.{path}.fp32_precision", value


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
    _choose_algorithms(torch, warn_only)


def _choose_algorithms(torch, warn_only):
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    matmul = torch.backends.cuda.matmul
    for name in ("bf16", "fp16"):
        flag = f"allow_{name}_reduced_precision_reduction"
        if hasattr(matmul, flag):
            setattr(matmul, flag, False)
    for path in (torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
        if torch.cuda.is_available() and hasattr(path, "fp32_precision"):
            path.fp32_precision = "ieee"


def _settings_in_effect(torch):
    """(owner, name, value) of what _choose_algorithms sets, but for the first call."""
    backends = torch.backends
    named = [
        (backends.cudnn, "deterministic"), (backends.cudnn, "benchmark"),
        (backends.cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (backends.cuda.matmul, "allow_fp16_reduced_precision_reduction"),
    ]  # fmt: skip
    if torch.cuda.is_available():
        named += [(backends.cudnn.conv, "fp32_precision"), (backends.cudnn.rnn, "fp32_precision")]
    return [(owner, name, getattr(owner, name)) for owner, name in named if hasattr(owner, name)]


@contextlib.contextmanager
def algorithms():
    """Deterministic algorithms and attention made of plain operations, for a while. An operator
    without a deterministic form raises."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    enabled = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    before = _settings_in_effect(torch)
    _choose_algorithms(torch, warn_only=False)
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
        for owner, name, value in before:
            setattr(owner, name, value)


def _initial_environment():
    """The environment as it was when this process began; None: not known."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return None
    pairs = (entry.decode(errors="replace").partition("=") for entry in entries if b"=" in entry)
    return {name: value for name, _, value in pairs}


def _needed(where, gpu):
    return not where or (gpu if where == "gpu" else where in sys.modules or _is_there(where))


def _is_there(package):
    try:
        return importlib.util.find_spec(package) is not None
    except (ImportError, ValueError):
        return False


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
        if _needed(where, gpu)
    ]
    found += [
        _audit_variable(name, None, reason, initial)
        for name, reason in _OPTIONAL.items()
        if name in os.environ
    ]
    channels = [os.environ.get(f"NCCL_{end}_NCHANNELS") for end in ("MIN", "MAX")]
    if gpu and None not in channels and channels[0] != channels[1]:
        found.append(("NCCL_MIN_NCHANNELS", BAD, channels[0], f"the maximum is {channels[1]}"))
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
        for name, value in _precisions(torch) if gpu else ():
            if "mkldnn" not in name:
                state = OK if value in ("ieee", "none") else BAD
                found.append((name, state, value, "products of fewer bits; known to work: ieee"))
    return found


def settings(torch):
    """[(name, text, rating)] of what a recording keeps: it decides bits, or may, and holds no
    secret."""
    named = [*(name for name, *_ in _VARIABLES), *_OPTIONAL]
    kept = [(name, os.environ[name], DECIDES) for name in named if name in os.environ]
    kept += [(name, os.environ[name], MAY) for name in _DEPRECATED if name in os.environ]
    kept += [(name, os.environ[name], HARMLESS) for name in _GHOSTS if name in os.environ]
    kept += [(name, str(value), DECIDES) for name, value, *_ in _flags(torch)]
    kept += [(name, value, DECIDES) for name, value in _precisions(torch)]
    kept += [
        ("torch.get_num_threads", str(torch.get_num_threads()), DECIDES),
        ("torch.get_float32_matmul_precision", torch.get_float32_matmul_precision(), DECIDES),
        ("torch.get_default_dtype", str(torch.get_default_dtype()), DECIDES),
    ]
    return kept + fingerprint.facts(torch)
