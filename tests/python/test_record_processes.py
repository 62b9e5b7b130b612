"""Forks, loaders, ranks and every way to end: what was observed is in the run."""

import os
import signal
import time

from recording import Process, Script, recorded

TRAIN = """
    import os, signal, sys, time
    from torch import nn
    layer = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    def train(steps):
        for step in range(steps):
            layer(torch.randn(3, 4)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    train(20)
"""


def steps_of(process):
    return len(process.calls("tocsin.step_end"))


def ended(ending, code):
    result = Script(TRAIN + ending).recorded()
    assert result.returncode == code, result.stderr
    assert steps_of(result.process) == 20
    return result


def test_sys_exit():
    ended("    sys.exit(3)", 3)


def test_an_exception():
    result = ended("    raise KeyError('lost')", 1)
    assert "KeyError: 'lost'" in result.stderr and "tocsin: 20 steps" in result.stderr


def test_os_exit():
    ended("    os._exit(5)", 5)


def test_an_abort():
    ended("    os.abort()", -signal.SIGABRT)


def test_interrupt():
    script = Script(TRAIN + "    print('ready', flush=True)\n    time.sleep(60)")
    process, run = script.start()
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT and "KeyboardInterrupt" in stderr
    (file,) = run.glob("process-*.trace")
    assert steps_of(Process(file)) == 20


def test_kill_loses_nothing_that_was_observed_before():
    script = Script(TRAIN + "    print('ready', flush=True)\n    train(10**9)")
    process, run = script.start()
    process.stdout.readline()
    time.sleep(0.4)
    process.kill()
    process.wait(timeout=60)
    (file,) = run.glob("process-*.trace")
    killed = Process(file)
    assert steps_of(killed) > 20
    assert killed.meta("step")[-1] >= steps_of(killed) - 1


def test_loader_workers_by_fork_and_a_plain_fork():
    result = recorded(
        """
        import os
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        class Numbers(Dataset):
            def __len__(self): return 12
            def __getitem__(self, index): return torch.full((2,), float(index))
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for batch in DataLoader(Numbers(), batch_size=3, num_workers=2):
            layer(batch).sum().backward()
            optimizer.step()
        child = os.fork()
        if child == 0:
            os._exit(0)
        os.waitpid(child, 0)
        print(os.getpid())
        """
    )
    processes = {p.pid: p for p in result.processes()}
    parent = processes.pop(int(result.stdout))
    assert steps_of(parent) == 4 and len(parent.calls("torch.utils.data.DataLoader.__next__")) == 5
    assert not parent.calls("torch.full")
    assert len(processes) == 2  # the two workers; the idle fork left no file
    assert sum(len(p.calls("torch.full")) for p in processes.values()) == 12
    assert sum(len(p.calls("torch.stack")) for p in processes.values()) == 4
    assert not result.stderr.replace("tocsin: 4 steps", "", 1).count("tocsin:")


def test_a_child_made_by_spawn():
    result = recorded(
        """
        import torch.multiprocessing as multiprocessing
        def work(index):
            torch.ones(index + 1)
        if __name__ == "__main__":
            multiprocessing.spawn(work, nprocs=1)
        """
    )
    assert sum(len(p.calls("torch.ones")) for p in result.processes()) == 1


def test_threads_have_their_own_streams():
    process = recorded(
        """
        import threading
        from torch import nn
        layer = nn.Linear(2, 2)
        def work():
            for _ in range(50):
                layer(torch.ones(3, 2))
        threads = [threading.Thread(target=work) for _ in range(3)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        """
    ).process
    calls = process.calls("torch.nn.Module.__call__")
    assert len(calls) == 150 and len({c["thread"] for c in calls}) == 3
    assert {c["depth"] for c in calls} == {0}


def test_two_ranks_of_a_data_parallel_job():
    script = Script(
        """
        import os
        import torch.distributed as dist
        from torch import nn
        dist.init_process_group("gloo")
        rank = dist.get_rank()
        model = nn.parallel.DistributedDataParallel(nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        torch.manual_seed(rank)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 3)).pow(2).sum().backward()
            optimizer.step()
        dist.barrier()
        if rank == 0:
            print(model.module.weight.sum().item().hex())
        dist.destroy_process_group()
        """
    )
    launcher = ("-m", "torch.distributed.run", "--nproc-per-node", "2", "--standalone")
    plain = script.plain(launcher=launcher)
    result = script.recorded(launcher=launcher)
    assert plain.stdout == result.stdout and result.returncode == 0, result.stderr
    assert result.stderr.count("steps recorded") == 1
    ranks = {p.meta("rank")[0]: p for p in result.processes() if p.meta("rank")}
    assert sorted(ranks) == [0, 1]
    for process in ranks.values():
        assert process.meta("world_size") == [2] and process.meta("step") == [0, 1, 2, 3]
    assert ranks[0].variables() == ["bias", "weight"]
    for moment, attribute in (("exit", "data"), ("enter", "grad")):
        first, second = (
            [g[0]["polynomial"] for g in p.at_role("optimizer.step", moment, attribute=attribute)]
            for p in (ranks[0], ranks[1])
        )
        assert first and first == second
    assert ranks[0].calls("torch.distributed.barrier")


def test_a_directory_that_cannot_be_written():
    script = Script(TRAIN)
    result = script.recorded(TOCSIN_RUN=str(script.root / "missing"))
    assert result.returncode == 0
    assert [line.split(":")[:2] for line in result.stderr.splitlines()] == [["tocsin", " error"]]
    assert not os.path.exists(script.root / "missing")


def test_a_fork_inside_an_observed_call():
    result = recorded(
        """
        import os
        from torch import nn
        class Forking(nn.Module):
            def forward(self, x):
                self.child = os.fork()
                return torch.relu(x)
        model = Forking()
        model(torch.ones(2))
        torch.ones(3)
        if model.child == 0:
            os._exit(0)
        os.waitpid(model.child, 0)
        """
    )
    for process in result.processes():
        entered = {e["call"] for e in process.events if e["kind"] == "enter"}
        assert {e["call"] for e in process.events if e["kind"] == "exit"} <= entered
        assert process.calls("torch.relu") and process.calls("torch.ones")[-1]["depth"] == 0
    assert len(result.files) == 2


def test_one_line_of_account_though_workers_start_after_steps():
    result = recorded(
        """
        from torch import nn
        from torch.utils.data import DataLoader, Dataset
        class Numbers(Dataset):
            def __len__(self): return 4
            def __getitem__(self, index): return torch.full((2,), float(index))
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for epoch in range(2):
            for batch in DataLoader(Numbers(), batch_size=2, num_workers=2):
                layer(batch).sum().backward()
                optimizer.step()
        """
    )
    assert len(result.files) == 5
    assert result.stderr.count("steps recorded") == 1 and "tocsin: 4 steps" in result.stderr


def test_handlers_of_a_fork_may_call_torch():
    """Handlers that were registered before torch was imported run before ours in the child."""
    script = Script(TRAIN)
    script.path.write_text(
        "import os\n"
        "os.register_at_fork(after_in_child=lambda: torch.relu(torch.ones(2)))\n"
        + script.path.read_text()
        + "child = os.fork()\n"
        + "if child == 0:\n"
        + "    torch.ones(3)\n"
        + "    os._exit(0)\n"
        + "sys.exit(os.waitpid(child, 0)[1])\n"
    )
    result = script.recorded()
    assert result.returncode == 0, result.stderr
    by_size = {len(p.calls("torch.ones")): p for p in result.processes()}
    assert sorted(by_size) == [0, 1] and not by_size[1].calls("torch.relu")


def test_what_a_signal_handler_raises_is_not_lost():
    """The handler runs while our own Python code does, in the naming of variables."""
    result = Script(
        """
        import os, signal, sys
        from torch import nn
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        class Children(dict):
            def items(self):
                if sys._getframe(1).f_code.co_filename.endswith("tocsin/variables.py"):
                    os.kill(os.getpid(), signal.SIGTERM)
                return super().items()
        model = nn.Sequential(nn.Linear(2, 2))
        model.__dict__["_modules"] = Children(model._modules)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        """
    ).recorded()
    assert result.returncode == 7, (result.returncode, result.stderr)
