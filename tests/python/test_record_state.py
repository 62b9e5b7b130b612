"""The training state beyond the tensors of the model: samples, checkpoints, generators, optimizer
state, labels, memory, the declared plan."""

import os
import tempfile
import unittest

from recording import Script, recorded

TRAIN = """
    import os, sys
    from torch import nn
    import torch.nn.functional as F
    import tocsin

    tocsin.expect(steps=6, tokens=1000)
    class Data(torch.utils.data.Dataset):
        def __len__(self):
            return 130
        def __getitem__(self, index):
            return torch.full((3,), float(index)), index % 3 if index % 10 else -100

    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    tied = nn.Linear(4, 3)
    nn.init.normal_(model[0].weight)
    nn.init.normal_(model[0].weight)
    nn.init.normal_(model[1].weight)
    weight, bias = model[0].weight, model[0].bias
    optimizer = torch.optim.AdamW([
        {"params": [model[0].weight, model[1].weight], "weight_decay": 0.1},
        {"params": [model[0].bias, model[1].bias], "weight_decay": 0.0}])
    loader = torch.utils.data.DataLoader(Data(), batch_size=64, shuffle=True, num_workers=WORKERS)
    for epoch in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    state = {"model": nn.DataParallel(model).state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, "checkpoint")
    read = torch.load("checkpoint")
    model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 3))
    optimizer = torch.optim.AdamW([
        {"params": [model[0].weight, model[1].weight], "weight_decay": 0.1},
        {"params": [model[0].bias, model[1].bias], "weight_decay": 0.0}])
    nn.DataParallel(model).load_state_dict(read["model"])
    optimizer.load_state_dict(read["optimizer"])
    model(x).sum().backward()
    optimizer.step()
    print(model[0].weight.sum().item().hex())
"""


def values(event, name):
    return [v.get("value") for v in event.get("values", ()) if v["name"] == name]


def run(workers=0):
    script = Script(TRAIN.replace("WORKERS", str(workers)))
    result = script.recorded(TOCSIN_QUIET="1")
    assert result.returncode == 0, result.stderr
    assert result.stderr == "" and result.stdout == script.plain().stdout
    return result.processes()


class Recorded(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        (cls.process,) = run()

    def states(self, **wanted):
        return [e for e in self.process.events if e["kind"] == "state"
                and all(e.get(k) == v for k, v in wanted.items())]  # fmt: skip

    def test_each_sample_once_an_epoch(self):
        epochs = {}
        for event in self.states(attribute="samples", variable="loader0"):
            self.assertEqual(event["variable_kind"], "ledger")
            if values(event, "epoch"):
                epoch = epochs.setdefault(values(event, "epoch")[0], [])
            epoch += values(event, "id")
        self.assertEqual([sorted(ids) for ids in epochs.values()], [list(range(130))] * 2)
        self.assertNotEqual(epochs[0], epochs[1])
        first = self.states(attribute="samples")[0]
        self.assertEqual([values(first, n)[0] for n in ("size", "dataset_size", "shuffle")],
                         [64, 130, True])  # fmt: skip
        self.assertIn("sum", first)

    def test_what_a_checkpoint_holds(self):
        names = {"0.weight", "0.bias", "1.weight", "1.bias"}
        saved = self.states(attribute="saved", variable_kind="parameter")
        self.assertEqual({e["variable"] for e in saved}, names)  # DataParallel's prefix is off
        self.assertEqual({values(e, "in")[0] for e in saved}, {"model"})
        end = next(i for i, e in enumerate(self.process.events) if e in saved[:1])
        live = {e["variable"]: e["polynomial"] for e in self.process.events[:end]
                if e["kind"] == "state" and (e["attribute"], e["moment"]) == ("data", "exit")
                }  # fmt: skip
        self.assertEqual({e["variable"]: e["polynomial"] for e in saved},
                         {name: live[name] for name in names})  # fmt: skip
        loaded = self.states(attribute="loaded", variable_kind="parameter")
        self.assertEqual(len(loaded), 3 * len(names))  # torch.load, load_state_dict, what came in
        self.assertEqual({e["polynomial"] for e in loaded}, {live[name] for name in names})
        given, found = loaded[4:8], loaded[8:]
        self.assertEqual({n for e in given + found for n in values(e, "loading")}, {1})
        self.assertTrue(all(e["values"][1]["memory"] for e in found))

    def test_the_optimizer_in_a_checkpoint(self):
        groups = [e for e in self.states(variable_kind="optimizer_state")
                  if e["variable"] in ("group0#options", "group1#options")]  # fmt: skip
        self.assertEqual([e["attribute"] for e in groups], ["saved"] * 2 + ["loaded"] * 4)
        self.assertEqual([values(e, "weight_decay")[0] for e in groups], [0.1, 0.0] * 3)
        (given,) = self.states(variable="1#exp_avg", attribute="loaded")[1:]
        (found,) = self.states(variable="1.weight#exp_avg", attribute="loaded")
        self.assertEqual([values(e, "loading") for e in (given, found)], [[1], [1]])
        self.assertEqual(values(found, "place"), [1])
        self.assertEqual(given["polynomial"], found["polynomial"])

    def test_optimizer_state_by_the_name_of_its_parameter(self):
        moment, after = self.states(variable="0.weight#exp_avg", attribute="data")
        (saved,) = self.states(variable="0.weight#exp_avg", attribute="saved")
        (loaded,) = self.states(variable="0.weight#exp_avg", attribute="loaded")
        self.assertEqual(moment["dtype"], "float32")
        self.assertEqual(saved["polynomial"], loaded["polynomial"])
        self.assertEqual(len({e["polynomial"] for e in (moment, saved, after)}), 3)
        options = {e["variable"]: values(e, "weight_decay") + values(e, "ndim")
                   for e in self.states(attribute="value", variable_kind="optimizer_state")
                   }  # fmt: skip
        self.assertEqual(options["1.weight#options"], [0.1, 2])
        self.assertEqual(options["1.bias#options"], [0.0, 1])

    def test_generators_after_each_step(self):
        torch = [e["polynomial"] for e in self.states(variable_kind="rng", variable="torch")]
        self.assertEqual(len(torch), 7)
        self.assertEqual(len(set(torch[:6])), 2)  # the sampler draws a seed for each epoch
        python = {e["polynomial"] for e in self.states(variable_kind="rng", variable="python")}
        self.assertEqual(len(python), 1)

    def test_labels_and_losses(self):
        exits = [e for e in self.process.events if e["kind"] == "exit"]
        losses = [e for e in exits if e["function"].endswith(".cross_entropy")]
        self.assertEqual(sum(values(e, "target.count")[0] for e in losses), 260)
        self.assertEqual(sum(values(e, "target.ignored")[0] for e in losses), 26)
        self.assertEqual(sum(values(e, "target.zeros")[0] for e in losses), 2 * 39)
        self.assertEqual(max(values(e, "target.max")[0] for e in losses), 2)
        for event in losses:
            self.assertIn("has_item", event["values"][0]["flags"])
            self.assertGreater(event["values"][1]["value"], 0)
        norm = next(e for e in exits if e["function"] == "torch.nn.utils.clip_grad_norm_")
        self.assertGreater(norm["values"][1]["value"], 0)

    def test_memory_of_what_is_filled(self):
        tags = [c["values"][0].get("memory")
                for c in self.process.calls("torch.nn.init.normal_")]  # fmt: skip
        self.assertTrue(all(tags))
        self.assertEqual(tags[0], tags[1])
        self.assertNotEqual(tags[0], tags[2])

    def test_the_declared_plan(self):
        self.assertEqual(self.process.meta("expect.steps"), [6])
        self.assertEqual(self.process.meta("expect.tokens"), [1000])


class Workers(unittest.TestCase):
    def test_ids_and_generators_of_workers(self):
        processes = run(workers=2)
        main = next(p for p in processes if p.states(attribute="samples", variable_kind="ledger"))
        handed = main.states(attribute="samples", variable_kind="ledger")
        workers = [values(e, "worker")[0] for e in handed if values(e, "worker")]
        self.assertEqual(workers, [0, 1, 0, 0, 1, 0])
        ids = [i for e in handed for i in values(e, "id")]
        self.assertEqual(sorted(ids), sorted(list(range(130)) * 2))
        generators = {}
        for process in processes:
            for event in process.states(variable_kind="rng", attribute="value"):
                if values(event, "worker") and event["variable"] == "torch":
                    generators[process.pid] = event["polynomial"]
        self.assertEqual(len(set(generators.values())), 4)  # two workers in each epoch


class Context(unittest.TestCase):
    def test_autocast_switched_off_inside(self):
        process = recorded("""
            from torch import nn
            class Inner(nn.Module):
                def forward(self, x):
                    with torch.autocast("cpu", enabled=False):
                        y = torch.matmul(x, x)
                    return torch.matmul(y, y)
            with torch.autocast("cpu", torch.bfloat16):
                Inner()(torch.eye(3))
        """).process
        seen, now = [], None
        for event in process.events:
            if event["kind"] == "meta" and event["key"] == "autocast":
                now = event["value"]["value"]
            elif event["kind"] == "enter" and event["function"] == "torch.matmul":
                seen.append(now)
        self.assertEqual(seen, ["", "torch.bfloat16"])

    def test_how_a_part_is_recomputed(self):
        process = recorded("""
            from torch.utils.checkpoint import checkpoint
            layer = torch.nn.Linear(2, 2)
            checkpoint(layer, torch.ones(1, 2), use_reentrant=False, preserve_rng_state=False)
        """).process
        (call,) = process.calls("torch.utils.checkpoint.checkpoint")
        self.assertEqual(values(call, "preserve_rng_state"), [False])
        before, after = process.states(variable="torch", variable_kind="rng", attribute="value")
        self.assertEqual(before["polynomial"], after["polynomial"])

    def test_generators_around_a_part_that_draws(self):
        process = recorded("""
            from torch.utils.checkpoint import checkpoint, noop_context_fn
            layer, x = torch.nn.Dropout(0.5), torch.ones(1, 2, requires_grad=True)
            for options in (
                {"preserve_rng_state": False},
                {"preserve_rng_state": True},
                {"preserve_rng_state": False, "context_fn": noop_context_fn},
            ):
                checkpoint(layer, x, use_reentrant=False, **options)
        """).process
        before, after = process.states(variable="torch", variable_kind="rng", attribute="value")
        self.assertNotEqual(before["polynomial"], after["polynomial"])

    def test_an_attribute_that_is_overwritten(self):
        process = recorded("""
            from torch import nn
            model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
            model[0].id, model[1].count = 3, 0
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(12):
                model(torch.ones(1, 2)).sum().backward()
                if step == 4:
                    model[0].id = 0
                model[1].count += 1
                optimizer.step()
        """).process
        states = process.states(variable_kind="attribute", attribute="value")
        seen = {}
        for event in states:
            seen.setdefault(event["variable"], []).append(values(event, "value")[0])
        self.assertEqual(seen["0.id"], [3, 0])
        self.assertEqual(seen["0.in_features"], [2])
        self.assertEqual(seen["1.count"], list(range(1, 10)))
        self.assertNotIn("0.training", seen)

    def test_the_scale_of_a_grad_scaler(self):
        process = recorded("""
            from torch import nn
            model = nn.Linear(2, 2)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2)
            for step in range(4):
                optimizer.zero_grad()
                scaler.scale(model(torch.ones(1, 2)).sum()).backward()
                scaler.step(optimizer)
                scaler.update()
        """).process
        self.assertEqual(process.meta("scaler.scale"), [8.0, 16.0, 32.0])


class Sampled(unittest.TestCase):
    """Digests in the first two steps and each fourth."""

    TRAIN = """
        from torch import nn
        model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(9):
            optimizer.zero_grad()
            (model(torch.randn(4, 3)) - torch.randn(4, 3)).square().sum().backward()
            optimizer.step()
    """

    def check(self, **environment):
        process = recorded(self.TRAIN, TOCSIN_SAMPLE="4", **environment).process
        for moment in ("enter", "exit"):
            steps = process.at_role("optimizer.step", moment, variable="0.weight",
                                    attribute="data")  # fmt: skip
            digested = [[s["polynomial"] for s in step if "sum" in s] for step in steps]
            self.assertEqual([n for n, step in enumerate(digested) if step][-2:], [4, 8])
            yield dict(enumerate(digested))

    def test_what_is_compared_is_one_step(self):
        before, after = self.check()
        self.assertEqual(before[1], after[0])
        self.assertNotEqual(before[4], after[1])
        self.assertNotEqual(before[4], after[4])

    def test_with_a_selection(self):
        with tempfile.NamedTemporaryFile("w") as selection:
            selection.write(
                "tocsin-selection 1\nstate optimizer.step exit data digest parameter\n"
            )
            selection.flush()
            before, after = self.check(TOCSIN_MODE="run", TOCSIN_SELECTION=selection.name)
        self.assertEqual([n for n in before if before[n]], [0, 4, 8])
        self.assertEqual([n for n in after if after[n]], [0, 1, 4, 8])

    def test_a_bad_number_is_one_line(self):
        result = Script(self.TRAIN).recorded(TOCSIN_SAMPLE="often")
        self.assertEqual(result.returncode, 0)
        (line,) = result.stderr.splitlines()
        self.assertIn("TOCSIN_SAMPLE is 'often'", line)


class Selected(unittest.TestCase):
    def select(self, *lines):
        script = Script(TRAIN.replace("WORKERS", "0"))
        selection = script.root / "selection"
        selection.write_text("\n".join(("tocsin-selection 1", *lines, "")))
        result = script.recorded(
            TOCSIN_MODE="run", TOCSIN_SELECTION=str(selection), TOCSIN_QUIET="1"
        )
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        kinds = (e for e in result.process.events if e["kind"] == "state")
        return {(e["variable_kind"], e["attribute"]) for e in kinds}

    def test_nothing_of_it_unless_asked(self):
        self.assertEqual(self.select("role backward"), set())

    def test_each_part_alone(self):
        for line, expected in {
            "state data.next exit samples presence ledger": {("ledger", "samples")},
            "state checkpoint exit saved digest parameter":
                {("parameter", "saved"), ("optimizer_state", "saved")},
            "state optimizer.step exit value digest rng": {("rng", "value")},
            "state optimizer.step exit data digest optimizer_state":
                {("optimizer_state", "data"), ("optimizer_state", "value")},
            "state optimizer.step exit value presence attribute": {("attribute", "value")},
        }.items():  # fmt: skip
            with self.subTest(line):
                self.assertEqual(self.select(line), expected)


if __name__ == "__main__":
    os.environ.setdefault("TOCSIN", "tocsin")
    unittest.main()
