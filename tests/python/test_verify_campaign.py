"""`tocsin verify` on generated plans: correct ones are PROVED, every listed mistake is REFUTED with
the wrong operator named, and no random edit that changes the numbers is PROVED."""

import copy
import json
import os
import random
import subprocess

import pytest
from plan_mutations import mutations
from plan_random_edits import edit_plan
from plan_refactorings import refactorings
from test_parallel_plan import PAIRS

import plan_run
from parallel_plan import Config, build_pair
from plan_objects import write_plan

EXACT_SHARE = 0.98
BUILT = {}
RANDOM_BASES = (
    dict(model="mlp", dp=2, pp=2, tp=2, nm=2, hidden=6, ffn=8, seq=4),
    dict(layers=1, dp=2, tp=2, nm=2, hidden=8, kv_heads=2, head_dim=4, ffn=8, vocab=16, seq=4),
    dict(layers=2, dp=2, tp=2, pp=2, nm=2, sp=True, hidden=8, heads=2, kv_heads=2, head_dim=4,
         ffn=8, vocab=16, seq=4, optimizer="sgd"),
    dict(layers=1, dp=2, tp=2, zero=3, hidden=8, kv_heads=4, head_dim=2, ffn=8, vocab=16, seq=2,
         batch=4, vocab_embedding=True, optimizer="sgd"),
    dict(model="moe", layers=1, dense_layers=0, dp=2, tp=2, hidden=8, heads=2, kv_heads=2,
         head_dim=4, ffn=8, vocab=16, seq=4, optimizer="sgd"),
)  # fmt: skip


def random_config(seed):
    """Any mixture of the parallelisms, with sizes that can be cut as often as it wants."""
    pick = random.Random(seed).choice
    dp, cp, pp, tp = pick((1, 2, 3, 4)), pick((1, 1, 2)), pick((1, 2, 3)), pick((1, 2, 4))
    sp, zero, kv = pick((True, False)), pick((0, 0, 1, 3)), tp * pick((1, 2))
    nm, cuts = pick((1, 2, 3)), dp * cp if zero else 1
    vocab_embedding = pick((True, False))
    return dict(
        model=pick(("mlp", "llama", "moe")), layers=pp * pick((1, 2)), hidden=4 * cuts * tp,
        heads=kv * pick((1, 2)), kv_heads=kv, head_dim=2 * cuts, ffn=tp * cuts * pick((3, 4, 5)),
        vocab=tp * cuts * pick((5, 8)), seq=cp * (tp if sp else 1) * pick((1, 2, 3)),
        batch=pick((1, 2, 3)), experts=tp * cuts, top_k=1, dense_layers=pick((0, 1)), dp=dp, cp=cp,
        pp=pp, tp=tp, nm=nm, sp=sp, zero=zero, optimizer=pick(("adamw", "sgd")),
        tied=vocab_embedding and pick((True, False)), vocab_embedding=vocab_embedding,
        weight_gradient=pick(("mm", "call")))  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("plans")


def healthy(folder, config):
    """(path of the logical plan, it, the parallel plan), built once."""
    key = tuple(sorted(config.items()))
    if key not in BUILT:
        logical, parallel = build_pair(Config(**config))
        path = folder / f"logical{len(BUILT)}.plan"
        write_plan(logical, path)
        BUILT[key] = (path, logical, parallel)
    return BUILT[key]


def verify(folder, logical, plan):
    target = folder / "parallel.plan"
    write_plan(plan, target)
    done = subprocess.run([os.environ["TOCSIN"], "verify", logical, target, "--format", "json"],
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", PAIRS)
def test_healthy_pair_is_proved(folder, name):
    logical, _, parallel = healthy(folder, PAIRS[name])
    result = verify(folder, logical, parallel)
    assert (result["verdict"], result["causes"]) == ("PROVED", [])
    assert result["coverage"]["outputs_pct"] == 100


@pytest.mark.parametrize("seed", range(40))
def test_random_correct_plan_is_proved(folder, seed):
    logical, _, parallel = healthy(folder, random_config(seed))
    result = verify(folder, logical, parallel)
    assert (result["verdict"], result["causes"]) == ("PROVED", []), random_config(seed)


@pytest.mark.parametrize("change", list(refactorings()), ids=str)
def test_correct_change_is_proved(folder, change):
    logical, _, parallel = healthy(folder, change.config)
    edited = copy.deepcopy(parallel)
    change.edit(edited)
    result = verify(folder, logical, edited)
    assert (result["verdict"], result["causes"]) == ("PROVED", [])


def test_mistakes_are_refuted_and_named(folder):
    passed, misnamed, count = [], [], 0
    for mutation in mutations():
        logical, _, parallel = healthy(folder, mutation.config)
        edited = copy.deepcopy(parallel)
        mutation.edit(edited)
        result = verify(folder, logical, edited)
        names = mutation.names(parallel) if callable(mutation.names) else mutation.names
        count += 1
        if result["verdict"] != "REFUTED":
            passed.append(str(mutation))
        elif not result["causes"] or result["causes"][0]["op"].split(": ")[0] not in names:
            misnamed.append(str(mutation))
    assert passed == []
    assert len(misnamed) <= (1 - EXACT_SHARE) * count, misnamed


@pytest.mark.parametrize("base", range(len(RANDOM_BASES)))
@pytest.mark.filterwarnings("ignore")
def test_random_edits_that_change_numbers_are_not_proved(folder, base):
    logical, plan, parallel = healthy(folder, RANDOM_BASES[base])
    inputs = plan_run.random_inputs(plan, 1, 16)
    for seed in range(30):
        edited = copy.deepcopy(parallel)
        what = edit_plan(edited, 100 * base + seed)
        try:
            differs = bool(plan_run.compare(plan, edited, inputs))
        except plan_run.PlanFailure:
            differs = True
        verdict = verify(folder, logical, edited)["verdict"]
        assert not (differs and verdict == "PROVED"), f"seed {100 * base + seed}: {what}"
