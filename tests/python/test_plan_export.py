"""Plans exported from real PyTorch steps: the numbers of every rank agree with the logical plan's,
the logical plan's with PyTorch's own, and `tocsin verify` says so without numbers. Each injected
bug is refuted at the line that makes it."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

import plan_numbers
import tocsin.plan.__main__

torch.set_num_threads(1)
SOURCE = pathlib.Path(os.environ.get("TOCSIN_SOURCE", pathlib.Path(__file__).parents[2]))
EXAMPLES = SOURCE / "examples" / "verify"
TOCSIN = os.environ.get("TOCSIN")

# Script, mesh, arguments of build(), number of roles: replicas share one.
HEALTHY = {
    "mlp": ("mlp.py", "dp=2,tp=2", [], 2),
    "llama_tp": ("llama.py", "tp=2", [], 2),
    "llama_dp_tp": ("llama.py", "dp=2,tp=2", [], 2),
    "llama_sp": ("llama.py", "dp=2,tp=2", ["sequence=1"], 2),
    "llama_vocabulary": ("llama.py", "dp=2,tp=2", ["vocabulary=1"], 2),
    "ddp": ("ddp.py", "dp=4", [], 1),
    "fsdp": ("fsdp.py", "dp=4", [], 1),
    "fsdp_tp": ("fsdp.py:build_2d", "dp=2,tp=2", [], 2),
    "pipeline": ("pipeline.py", "dp=2,pp=2", [], 2),
    "moe": ("moe.py", "dp=2,ep=2", [], 2),
    "handwritten": ("handwritten.py", "dp=2,tp=2", [], 2),
}

# Which source line the first cause must name: a fragment of it. A reduction that is missing has no
# line; then it is one of the two operators between which it belongs.
BUGS = {
    "copy_backward": ["self.down(F.silu(self.gate(x)) * self.up(x))"],
    "row_forward": ["x + self.bias", "self.down(F.silu(self.gate(x)) * self.up(x))"],
    "wrong_axis": ["dist.all_reduce(parameter.grad, op=operation, group=data_group)"],
    "loss_twice": ["(loss / mesh[\"dp\"].size()).backward()"],
    # A mean over local tokens and a sum over ranks do not fit; either can be called the wrong one.
    "sum_gradients": ["loss = F.cross_entropy(",
                      "dist.all_reduce(parameter.grad, op=operation, group=data_group)"],
    "norm_gradient": ["dist.all_reduce(parameter.grad, op=operation, group=data_group)"],
    "position_offset": ["x + self.positions[first:first + x.shape[1]]"],
    "epsilon": ["torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)"],
    "scale": ["width ** -0.5"],
    "bias_early": ["x = x + self.bias", "ranks.sum(x)"],
    "gather_dim": ["all_gather(x, 0, self.group)",
                   "shards.reshape(x.shape[0], -1, *x.shape[2:])"],
    "rotation": ["sin = -sin", "first * cos - second * sin"],
}


def export(folder, script, mesh, arguments=(), logical=True):
    script = script if ":" in script else script + ":build"
    words = ["export", f"{EXAMPLES / script}", "--mesh", mesh,
             "-o", str(folder / "parallel.plan")]
    if logical:
        words += ["--logical", str(folder / "logical.plan")]
    for argument in arguments:
        words += ["--arg", argument]
    assert tocsin.plan.__main__.main(words) == 0  # in this process: torch is imported once
    return folder / "logical.plan", folder / "parallel.plan"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """The healthy pair of that name, exported once."""
    made = {}

    def get(name):
        if name not in made:
            script, mesh, arguments, _ = HEALTHY[name]
            made[name] = export(tmp_path_factory.mktemp(name), script, mesh, arguments)
        return made[name]

    return get


def verify(logical, parallel):
    done = subprocess.run([TOCSIN, "verify", "--format", "json", str(logical), str(parallel)],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", HEALTHY)
def test_ranks_compute_the_logical_values(exported, name):
    logical, parallel = exported(name)
    wrong, count = plan_numbers.compare(logical.read_text(), parallel.read_text())
    assert wrong == [] and count > 10


@pytest.mark.parametrize("name", HEALTHY)
def test_replicas_share_a_role(exported, name):
    text = exported(name)[1].read_text()
    assert text.count("\nrole") == HEALTHY[name][3]
    assert text.count("\nout loss") == (1 if name == "pipeline" else HEALTHY[name][3])


@pytest.mark.skipif(TOCSIN is None, reason="needs the command of a build")
@pytest.mark.parametrize("name", HEALTHY)
def test_healthy_plans_are_proved(exported, name):
    result = verify(*exported(name))
    assert result["verdict"] in ("PROVED", "PROVED-PROB")
    assert (result["causes"], result["unknown"]) == ([], [])


def test_the_logical_plan_computes_what_torch_does(exported):
    """Weights and a batch into both: the loss and every gradient agree."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import llama
    finally:
        sys.path.remove(str(EXAMPLES))
    torch.manual_seed(1)
    model = llama.Llama().double()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    batch = {name: torch.randint(0, llama.VOCABULARY, (llama.BATCH, llama.LENGTH))
             for name in ("tokens", "targets")}
    loss = llama.loss_fn(model, batch)
    loss.backward()
    plan = plan_numbers.Plan(exported("llama_tp")[0].read_text())
    inputs = {name: tensor.detach() for name, tensor in
              [*model.named_parameters(), *model.named_buffers(), *batch.items()]}
    rank, = plan_numbers.run(plan, inputs).values()
    got = {(kind, name): rank.values[value] for kind, name, _, value, _ in rank.role.outputs}
    assert torch.allclose(got["loss", "loss"], loss.detach(), rtol=1e-9)
    for name, parameter in model.named_parameters():
        assert torch.allclose(got["grad", name], parameter.grad, rtol=1e-7, atol=1e-10), name


def test_the_oracle_sees_a_missing_reduction(exported):
    logical, parallel = (path.read_text() for path in exported("mlp"))
    first = next(line for line in parallel.splitlines() if " all_reduce(" in line and "tp." in line)
    head, _, tail = first.partition("all_reduce")
    number = tail.split("(%")[1].split(")")[0]
    broken = parallel.replace(first, f"{head}scale(%{number}) {{factor=1.0}} fw")
    assert plan_numbers.compare(logical, broken)[0]


@pytest.mark.skipif(TOCSIN is None, reason="needs the command of a build")
@pytest.mark.parametrize("bug", BUGS)
def test_bugs_are_refuted_at_their_line(exported, tmp_path, bug):
    _, parallel = export(tmp_path, "handwritten.py", "dp=2,tp=2", [f"bug={bug}"], logical=False)
    result = verify(exported("handwritten")[0], parallel)
    assert result["verdict"] == "REFUTED"
    file, _, line = result["causes"][0]["source"].partition(":")
    text = (EXAMPLES / file).read_text().splitlines()[int(line) - 1]
    assert any(fragment in text for fragment in BUGS[bug]), f"{file}:{line}: {text}"


@pytest.mark.parametrize("words, message", [
    (["mlp.py:nothing", "--mesh", "tp=2", "-o", "x.plan"], "no function nothing"),
    (["missing.py:build", "--mesh", "tp=2", "-o", "x.plan"], "no such file"),
    (["mlp.py:build", "--mesh", "tp=0", "-o", "x.plan"], "is not NAME=SIZE"),
    (["mlp.py:build", "-o", "x.plan"], "--output needs --mesh"),
    (["mlp.py:build"], "nothing to write"),
])
def test_errors_are_one_line(tmp_path, words, message):
    words = [str(EXAMPLES / words[0]) if words[0].startswith("mlp") else words[0], *words[1:]]
    done = subprocess.run([sys.executable, "-m", "tocsin.plan", "export", *words], cwd=tmp_path,
                          capture_output=True, text=True, timeout=60)
    errors = [line for line in done.stderr.splitlines() if not line.startswith("hint: ")]
    assert done.returncode == 2 and len(errors) == 1 and message in errors[0]
    assert errors[0].startswith("tocsin: error: ")
    assert not list(tmp_path.iterdir())
