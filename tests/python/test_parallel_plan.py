"""bench/plans writes pairs that are equal: by numbers, with real collectives, on tiny sizes."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "bench/plans"), str(ROOT / "tests/ref")]

import plan_run  # noqa: E402
from parallel_plan import Config, build_pair, build_plan, write_streaming  # noqa: E402
from plan_objects import read_plan, write_plan  # noqa: E402

PAIRS = {
    "mlp": dict(model="mlp", dp=2, pp=2, tp=2, nm=2),
    "mlp-sp-zero1": dict(model="mlp", dp=2, pp=2, tp=2, nm=2, sp=True, zero=1),
    "llama-dp": dict(dp=2, nm=2),
    "llama-tp": dict(tp=2),
    "llama-sp": dict(tp=2, sp=True),
    "llama-pp": dict(pp=2, nm=4, layers=3),
    "llama-cp": dict(cp=2),
    "llama-3d": dict(dp=2, pp=2, tp=2, nm=2),
    "llama-4d-zero1": dict(dp=2, pp=2, tp=2, cp=2, nm=2, sp=True, zero=1),
    "llama-zero3-sgd": dict(dp=2, tp=2, zero=3, nm=2, optimizer="sgd"),
    "llama-tied": dict(dp=2, pp=2, tp=2, nm=2, tied=True, vocab_embedding=True),
    "llama-call": dict(tp=2, dp=2, vocab_embedding=True, sp=True, weight_gradient="call"),
    "moe": dict(model="moe", dp=2, tp=2, pp=2, nm=2),
    "moe-sp-zero3": dict(model="moe", dp=2, tp=2, sp=True, zero=3, nm=2),
}


@pytest.mark.parametrize("name", PAIRS)
def test_pair_is_equal_by_numbers(name):
    logical, parallel = build_pair(Config(**PAIRS[name]))
    assert plan_run.compare(logical, parallel, plan_run.random_inputs(logical, 1)) == []


@pytest.mark.parametrize("model", ["mlp", "llama", "moe"])
def test_gradients_are_those_of_the_loss(model):
    """The hand-written backward against central differences along a random direction."""
    logical = build_plan(Config(model=model).logical_side())
    inputs = plan_run.random_inputs(logical, 3)

    def outputs(values):
        found = plan_run.Machine(logical, values).run().outputs()
        return {(o.kind, o.name): copies[0][2] for _, o, copies in found}

    gradients = {name: g for (kind, name), g in outputs(inputs).items() if kind == "grad"}
    generator = np.random.default_rng(4)
    for name, gradient in gradients.items():
        way = generator.normal(size=gradient.shape)
        step = 1e-6
        up, down = dict(inputs), dict(inputs)
        up[name], down[name] = inputs[name] + step * way, inputs[name] - step * way
        change = outputs(up)["loss", "loss"] - outputs(down)["loss", "loss"]
        expected = np.sum(gradient * way)
        assert change / (2 * step) == pytest.approx(expected, rel=1e-4, abs=1e-8), name


@pytest.mark.parametrize("name", ["mlp", "llama-4d-zero1", "moe"])
def test_text_reads_back(name, tmp_path):
    config = Config(**PAIRS[name])
    write_plan(build_plan(config), tmp_path / "a.plan")
    write_plan(read_plan(tmp_path / "a.plan"), tmp_path / "b.plan")
    assert (tmp_path / "a.plan").read_text() == (tmp_path / "b.plan").read_text()


def test_streaming_declares_every_group(tmp_path):
    config = Config(model="moe", layers=6, dp=2, pp=4, tp=2, nm=2, sp=True, zero=1)
    write_streaming(config, tmp_path / "a.plan")
    write_plan(build_plan(config), tmp_path / "b.plan")
    streamed, whole = read_plan(tmp_path / "a.plan"), read_plan(tmp_path / "b.plan")
    assert sorted(streamed.groups) == sorted(whole.groups)
    assert len(list(streamed.ops())) == len(list(whole.ops()))


def test_a_missing_reduction_shows_in_the_numbers():
    logical, parallel = build_pair(Config(tp=2))
    for op in parallel.ops():
        if op.label == "layers.0.attention.wo.reduce":
            op.name, op.attrs, op.group = "identity", {}, ""
    assert plan_run.compare(logical, parallel, plan_run.random_inputs(logical, 1)) != []


def test_a_plan_that_cannot_run_fails():
    logical, parallel = build_pair(Config(tp=2))
    role = parallel.roles[1]
    role.segments["fw"] = [op for op in role.segments["fw"] if "wo.reduce" not in op.label]
    with pytest.raises(plan_run.PlanFailure):
        plan_run.compare(logical, parallel, plan_run.random_inputs(logical, 1))
