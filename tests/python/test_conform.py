"""A plan against what a recorded run of two gloo ranks communicated."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from recording import Script

PLAN = """tocsin-plan 1
mesh tp=2
microbatches 2
group tp = (tp=0) (tp=1)
group own.0 = (tp=0)
group own.1 = (tp=1)
"""

ROLE = """role tp={rank}
in %x:float32[3,4] each = x[mb*3 : 3, 0 : 4]
in %w:float32[4,4] = w[0 : 4, 0 : 4]
segment fw
%y:float32[3,4] = linear(%x, %w) fw @block src=train.py:1
%z:float32[3,4] = all_reduce(%y) {{op=sum}} group=tp fw label=forward
%l:float32[3,4] = accumulate(%z) fw
segment step
%g:float32[8,4] = all_gather(%w) {{dim=0}} group=tp label=gather @block
%s:float32[4,4] = reduce_scatter(%g) {{dim=0, op=sum}} group=tp label=scatter
%m:float32[4,4] = all_reduce(%s) {{op=max}} group=own.{rank} label=own
%b:float32[4,4] = broadcast(%m) {{root=1}} group=tp label=broadcast
{exchange}
schedule fw.0 fw.1 step
end
""".replace("%l:float32[3,4] =", "%l:float32[3,4] keep =")

SENDS = "= send(%b) {peer=1, tag=3} label=send"
RECEIVES = "%r:float32[4,4] = recv() {peer=0, tag=3} label=receive"

TRAIN = """
    import os, sys
    import torch.distributed as dist
    import torch.multiprocessing as mp

    class Sum(torch.autograd.Function):
        @staticmethod
        def forward(context, value):
            value = value.clone()
            dist.all_reduce(value)
            return value
        @staticmethod
        def backward(context, gradient):
            return gradient

    def train(rank, store, steps, flawed):
        torch.set_num_threads(1)
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
        own = [dist.new_group([0]), dist.new_group([1])][rank]
        pair = dist.new_group([0, 1])
        w = torch.nn.Parameter(torch.ones(4, 4))
        dist.broadcast(w.data, 0)  # sets the run up
        optimizer = torch.optim.SGD([w], lr=0.1)
        for step in range(steps):
            flaw = step if flawed else 0
            optimizer.zero_grad()
            for _ in range(1 if flaw == 6 else 2):
                Sum.apply(torch.ones(2 if flaw == 4 else 3, 4) @ w).sum().backward()
            parts = w.grad.clone()
            whole = torch.empty(8, 4)
            if flaw != 5:
                dist.all_gather_into_tensor(whole, parts)
                dist.reduce_scatter_tensor(parts, whole, group=pair)
            if flaw == 2:
                dist.all_reduce(torch.ones(5))
            if flaw != 1 or rank == 0:
                group = pair if flaw == 3 else own
                dist.all_reduce(parts, dist.ReduceOp.MIN if flaw == 7 else dist.ReduceOp.MAX, group)
            dist.broadcast(parts, 0 if flaw == 8 else 1)
            if flaw == 5:
                dist.all_gather_into_tensor(whole, parts)
                dist.reduce_scatter_tensor(parts, whole, group=pair)
            peer = dist.P2POp(dist.irecv if rank else dist.isend, parts, 1 - rank, tag=3)
            for work in dist.batch_isend_irecv([peer]):
                work.wait()
            optimizer.step()
        dist.barrier()
        dist.all_reduce(torch.ones(1))  # after the last step
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(train, (sys.argv[1], int(sys.argv[2]), sys.argv[3] == "flawed"), 2)
"""


def write_plan(path, edit):
    roles = [ROLE.format(rank=rank, exchange=RECEIVES if rank else SENDS) for rank in (0, 1)]
    path.write_text(edit(PLAN + "".join(roles)))
    return path


class Recording:
    def __init__(self, text, *arguments):
        self.script = Script(text)  # keeps the directory
        self.run = self.script.root / "run"
        command = [os.environ["TOCSIN"], "record", "-q", "-o", str(self.run), "--"]
        command += self.script.command(str(self.script.root / "store"), *arguments)
        environment = self.script.environment()
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def plan(self, name, edit=lambda text: text):
        return write_plan(self.script.root / name, edit)


def conform(plan, run, *options):
    command = [os.environ["TOCSIN"], "verify", "--conform", str(plan), str(run), *options]
    return subprocess.run(command, capture_output=True, text=True)


def conform_json(plan, run):
    done = conform(plan, run, "--format", "json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)


@pytest.fixture(scope="module")
def healthy():
    return Recording(TRAIN, "2", "healthy")


@pytest.fixture(scope="module")
def flawed():
    return Recording(TRAIN, "9", "flawed")


def test_a_run_that_follows_its_plan_conforms(healthy):
    plan = healthy.plan("step.plan")
    code, report = conform_json(plan, healthy.run)
    assert (code, report["verdict"], report["findings"]) == (0, "CONFORMS", [])
    assert (report["ranks"], report["steps"], report["calls"]) == (2, 4, 4 * 7)
    assert report["limits"] == [
        "barriers are not compared: the plan has none",
        "calls after the last step are not compared",
    ]


def test_each_first_deviation_is_named(flawed):
    plan = flawed.plan("step.plan")
    code, report = conform_json(plan, flawed.run)
    assert (code, report["verdict"]) == (1, "DIFFERS")
    seen = [
        (f["step"], f["deviation"], f["ranks"], f["planned"].partition(":")[0])
        for f in report["findings"]
    ]
    assert seen == [
        (1, "missing-call", "1", "own"),
        (2, "extra-call", "0,1", ""),
        (3, "other-group", "0,1", "own"),
        (4, "other-shape", "0,1", "forward"),
        (5, "other-order", "0,1", "gather"),
        (6, "missing-call", "0,1", "forward"),
        (7, "other-reduction", "0,1", "own"),
        (8, "other-peer", "0,1", "broadcast"),
    ]


def test_a_deviation_tells_both_sides_and_where(flawed):
    plan = flawed.plan("step.plan")
    _, report = conform_json(plan, flawed.run)
    shape = next(f for f in report["findings"] if f["deviation"] == "other-shape")
    assert shape["planned"] == "forward: all_reduce sum float32[3,4] over ranks 0,1, micro-batch 0"
    assert shape["issued"] == "torch.distributed.all_reduce sum float32[2,4] over ranks 0,1"
    assert shape["site"].endswith("train.py:13 (forward)")
    assert shape["occurrences"] == 2
    order = next(f for f in report["findings"] if f["deviation"] == "other-order")
    assert (order["fqn"], order["source"], order["index"]) == ("block", "", 2)
    assert order["issued"].startswith("torch.distributed.all_reduce max float32[4,4] over rank ")
    text = conform(plan, flawed.run).stdout
    assert text.startswith("DIFFERS: ")
    assert "1. missing-call: the plan has a call that the run did not make\n" in text
    assert "    first at  rank 1, step 1, call 4 of the step\n" in text


def test_the_order_of_a_group_counts_where_shards_are_joined(healthy):
    def reverse(text):
        return text.replace("group tp = (tp=0) (tp=1)", "group tp = (tp=1) (tp=0)")

    plan = healthy.plan("reversed.plan", reverse)
    code, report = conform_json(plan, healthy.run)
    assert code == 1
    first = report["findings"][0]
    assert (first["deviation"], first["occurrences"]) == ("other-group", 4)
    assert first["planned"].startswith("gather: all_gather float32[4,4] over ranks 1,0")


def test_a_run_of_another_size_is_refused(healthy):
    plan = healthy.script.root / "one.plan"
    plan.write_text("tocsin-plan 1\nmesh tp=1\nrole tp=0\nsegment s\nend\n")
    done = conform(plan, healthy.run)
    assert done.returncode == 2
    assert done.stderr.startswith("tocsin: error: the run has 2 ranks, the plan 1")


STEP = """
    import os, sys
    import torch.distributed as dist
    import torch.multiprocessing as mp
    from torch.distributed.device_mesh import init_device_mesh

    def train(rank, store, examples):
        torch.set_num_threads(1)
        sys.path.insert(0, examples)
        import mlp
        dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
        job = mlp.build(init_device_mesh("cpu", (1, 2), mesh_dim_names=("dp", "tp")))
        optimizer = torch.optim.SGD(job["model"].parameters(), lr=0.1)
        for _ in range(2):
            job["loss_fn"](job["model"], job["batch"]).backward()
            optimizer.step()
            optimizer.zero_grad()
        dist.destroy_process_group()

    if __name__ == "__main__":
        mp.spawn(train, (sys.argv[1], sys.argv[2]), 2)
"""


def test_a_dtensor_model_communicates_as_its_exported_plan_says():
    examples = str(Path(os.environ["TOCSIN_SOURCE"]) / "examples" / "verify")
    recording = Recording(STEP, examples)
    plan = recording.script.root / "mlp.plan"
    script = os.path.join(examples, "mlp.py") + ":build"
    command = [sys.executable, "-m", "tocsin.plan", "export", script]
    command += ["--mesh", "dp=1,tp=2", "-o", str(plan)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    code, report = conform_json(plan, recording.run)
    assert (code, report["verdict"]) == (0, "CONFORMS")
    assert report["steps"] == 4 and report["calls"] > 0
