"""`tocsin verify --cache`: what is proved by parts is what is proved as a whole. A mistake is never
hidden by what the cache knows, and a damaged cache never changes a verdict."""

import copy
import json
import os
import random
import shutil
import subprocess

import pytest
from plan_mutations import mutations
from plan_random_edits import edit_plan
from plan_refactorings import refactorings
from test_verify_campaign import RANDOM_BASES, random_config

from parallel_plan import Config, build_pair
from plan_objects import write_plan

SAME = ("verdict", "coverage", "nodes", "nodes_dead", "outputs", "outputs_proved", "gradients",
        "gradients_proved", "assumptions", "dead", "operators", "ranks", "collapsed")  # fmt: skip
SMALL = dict(layers=3, dp=2, tp=2, pp=2, nm=2, hidden=8, heads=4, kv_heads=2, head_dim=4, ffn=8,
             vocab=16, seq=4)  # fmt: skip


def verify(logical, parallel, *options):
    done = subprocess.run([os.environ["TOCSIN"], "verify", logical, parallel, "--format", "json",
                           *options], capture_output=True, text=True)  # fmt: skip
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout)


class Pair:
    """A healthy pair of plans whose proof is in a cache."""

    known = {}

    def __init__(self, folder, config):
        self.folder = folder / f"pair{len(Pair.known)}"
        self.folder.mkdir()
        logical, self.plan = build_pair(Config(**config))
        self.logical, self.parallel = self.folder / "l.plan", self.folder / "p.plan"
        self.primed = self.folder / "primed"
        write_plan(logical, self.logical)
        write_plan(self.plan, self.parallel)
        self.plain = verify(self.logical, self.parallel)
        self.first = verify(self.logical, self.parallel, "--cache", self.primed)

    @classmethod
    def of(cls, folder, config):
        key = tuple(sorted(config.items()))
        if key not in cls.known:
            cls.known[key] = cls(folder, config)
        return cls.known[key]

    def cache(self):
        """A copy of the primed cache, for one use."""
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        shutil.copytree(self.primed, self.folder / "cache")
        return self.folder / "cache"

    def both(self, plan):
        """(as a whole, with the cache)"""
        target = self.folder / "edited.plan"
        write_plan(plan, target)
        return verify(self.logical, target), verify(self.logical, target, "--cache", self.cache())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    Pair.known.clear()
    return tmp_path_factory.mktemp("cached")


def assert_same(one, other):
    assert {key: one[key] for key in SAME} == {key: other[key] for key in SAME}


@pytest.mark.parametrize("seed", range(12))
def test_parts_prove_what_the_whole_does(folder, seed):
    pair = Pair(folder, random_config(seed))
    Pair.known[seed] = pair
    again = verify(pair.logical, pair.parallel, "--cache", pair.primed)
    assert pair.plain["verdict"] == "PROVED"
    assert_same(pair.plain, pair.first)
    assert_same(pair.plain, again)
    assert (again["reused"], again["parts_proved"]) == (True, 0)


def test_only_the_changed_layer_is_proved(folder):
    pair = Pair.of(folder, SMALL)
    plan, label = copy.deepcopy(pair.plan), "layers.1.feed_forward.product"
    ops = [op for role in plan.roles for op in role.segments["fw"] if op.label == label]
    for op in ops:
        op.inputs.reverse()
    assert ops
    plain, cached = pair.both(plan)
    assert_same(plain, cached)
    assert (cached["verdict"], cached["reused"], cached["parts_proved"]) == ("PROVED", True, 1)
    assert cached["parts"] > SMALL["layers"]


def test_names_of_lines_do_not_matter(folder):
    pair = Pair.of(folder, SMALL)
    plan = copy.deepcopy(pair.plan)
    for role in plan.roles:
        for op in role.segments["fw"]:
            op.source = "moved.py:1"
    cached = pair.both(plan)[1]
    assert (cached["reused"], cached["parts_proved"]) == (True, 0)


def test_a_changed_model_is_not_the_same(folder):
    """The parallel plan stays as it was; one operator of the logical model changes."""
    pair = Pair.of(folder, SMALL)
    text = pair.logical.read_text()
    target = pair.folder / "other.plan"
    target.write_text(text.replace("value=1e-05", "value=1e-06", 1))
    assert target.read_text() != text
    assert verify(target, pair.parallel, "--cache", pair.cache())["verdict"] == "REFUTED"
    lacking = "\n".join(line for line in text.split("\n") if not line.startswith("out loss"))
    target.write_text(lacking)
    assert verify(target, pair.parallel, "--cache", pair.cache())["verdict"] == "UNKNOWN"


def test_no_mistake_is_hidden(folder):
    cases = list(mutations())
    for mutation in random.Random(1).sample(cases, 40):
        pair = Pair.of(folder, mutation.config)
        edited = copy.deepcopy(pair.plan)
        mutation.edit(edited)
        plain, cached = pair.both(edited)
        assert cached["verdict"] == "REFUTED", str(mutation)
        assert plain["causes"] == cached["causes"], str(mutation)


@pytest.mark.parametrize("change", random.Random(2).sample(list(refactorings()), 8), ids=str)
def test_correct_change_is_proved(folder, change):
    pair = Pair.of(folder, change.config)
    edited = copy.deepcopy(pair.plan)
    change.edit(edited)
    plain, cached = pair.both(edited)
    assert_same(plain, cached)
    assert cached["verdict"] == "PROVED"


@pytest.mark.parametrize("base", range(len(RANDOM_BASES)))
def test_random_edits_get_the_same_verdict(folder, base):
    pair = Pair.of(folder, RANDOM_BASES[base])
    for seed in range(12):
        edited = copy.deepcopy(pair.plan)
        what = edit_plan(edited, 5000 + 100 * base + seed)
        plain, cached = pair.both(edited)
        assert plain["verdict"] == cached["verdict"], f"seed {5000 + 100 * base + seed}: {what}"


def test_messages_cannot_change_places(folder):
    """Two receives swap the names of their values: each claim is about a message, not a name."""
    pair = Pair.of(folder, SMALL)
    lines = pair.parallel.read_text().split("\n")
    receives = [k for k, line in enumerate(lines) if " = recv(" in line]
    same = [k for k in receives if lines[k].split(":")[1].split("]")[0]
            == lines[receives[0]].split(":")[1].split("]")[0]]  # fmt: skip
    a, b = same[0], next(k for k in same if lines[k].split(":")[0] != lines[same[0]].split(":")[0])
    names = [lines[k].split(":")[0] for k in (a, b)]
    role = pair.folder / "swapped.plan"
    for k, name in ((a, names[1]), (b, names[0])):
        lines[k] = name + lines[k][lines[k].index(":"):]
    role.write_text("\n".join(lines))
    plain = subprocess.run([os.environ["TOCSIN"], "verify", pair.logical, role],
                           capture_output=True, text=True)  # fmt: skip
    cached = subprocess.run([os.environ["TOCSIN"], "verify", pair.logical, role, "--cache",
                             pair.cache()], capture_output=True, text=True)  # fmt: skip
    assert plain.returncode == cached.returncode != 0
    assert plain.stderr == cached.stderr


@pytest.mark.parametrize("damage", ("flip", "cut", "empty", "other"))
def test_damaged_cache_is_made_anew(folder, damage):
    pair = Pair.of(folder, SMALL)
    cache = pair.cache()
    (file,) = cache.iterdir()
    content, choice = file.read_bytes(), random.Random(3)
    for _ in range(10):
        if damage == "flip":
            at = choice.randrange(len(content))
            file.write_bytes(content[:at] + bytes([content[at] ^ 1 << choice.randrange(8)])
                             + content[at + 1:])  # fmt: skip
        elif damage == "cut":
            file.write_bytes(content[: choice.randrange(len(content))])
        elif damage == "empty":
            file.write_bytes(b"")
        elif damage == "other":
            file.write_bytes(b"0" * 32 + b"\n{}")
        result = verify(pair.logical, pair.parallel, "--cache", cache)
        assert (result["verdict"], result["reused"]) == ("PROVED", False)
        assert verify(pair.logical, pair.parallel, "--cache", cache)["reused"]


def test_cache_that_cannot_be_written_is_an_error(folder):
    pair = Pair.of(folder, SMALL)
    cache = pair.cache()
    (file,) = cache.iterdir()
    file.unlink()
    file.mkdir()
    done = subprocess.run([os.environ["TOCSIN"], "verify", pair.logical, pair.parallel,
                           "--cache", cache], capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 2 and done.stderr.startswith("tocsin: error:")


def test_unproved_plan_is_not_kept(folder):
    pair = Pair.of(folder, SMALL)
    plan, cache = copy.deepcopy(pair.plan), pair.folder / "fresh"
    next(op for op in plan.roles[0].segments["fw"] if op.name == "add_scalar").attrs["value"] = 7.0
    write_plan(plan, pair.folder / "wrong.plan")
    result = verify(pair.logical, pair.folder / "wrong.plan", "--cache", cache)
    assert (result["verdict"], result["parts"]) == ("REFUTED", 0)
    assert list(cache.iterdir()) == []
