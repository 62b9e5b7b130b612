"""Which variables are found, under which names, and what is read of them when."""

import struct

from recording import Script, recorded

STEP = "optimizer.step"


def flags(states, flag):
    return {state["variable"]: flag in state["flags"] for state in states}


def test_every_parameter_and_buffer_has_its_name():
    process = recorded(
        """
        from torch import nn
        net = nn.Sequential()
        net.add_module("stem", nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)))
        net.head = nn.Linear(4, 2)
        net.register_buffer("scale", torch.ones(1))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(2):
            net(torch.randn(5, 3)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        print(*(name for name, _ in net.named_parameters()), *dict(net.named_buffers()))
        """
    )
    assert process.process.variables() == sorted(process.stdout.split())
    assert {s["type"] for s in process.process.states(variable_kind="parameter")} == {
        "torch.nn.parameter.Parameter"
    }
    step = process.process.at_role(STEP, "exit")
    assert len(step) == 2 and len(step[0]) == len(process.stdout.split())
    assert all("digested" in state["flags"] for group in step for state in group)


def test_digests_and_statistics_are_those_of_the_values():
    result = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 3, bias=False)
        with torch.no_grad():
            layer.weight.copy_(torch.tensor([[1.5, 0.0], [-4.0, 2.0], [0.5, 0.25]]))
        optimizer = torch.optim.SGD(layer.parameters(), lr=1.0)
        layer(torch.tensor([[1.0, float("nan")]])).sum().backward()
        optimizer.step()
        """
    ).process
    before, after = (result.at_role(STEP, m, attribute="data")[0][0] for m in ("enter", "exit"))
    values = [1.5, 0.0, -4.0, 2.0, 0.5, 0.25]
    words = [struct.unpack("<I", struct.pack("<f", value))[0] for value in values]
    prime = 2**61 - 1
    assert int(before["sum"], 16) == sum(words)
    assert int(before["polynomial"], 16) == sum(w * 37**i for i, w in enumerate(words)) % prime
    assert before["zero_count"] == 1 and before["absmax"] == 4.0 and before["nan_count"] == 0
    assert before["sum_squares"] == sum(value * value for value in values)
    assert before["dtype"] == "float32" and before["shape"] == [3, 2]
    assert after["nan_count"] == 3 and after["lr"] == 1.0
    gradient = result.at_role(STEP, "enter", attribute="grad")[0][0]
    assert gradient["nan_count"] == 3 and "present" in gradient["flags"]


def test_tied_parameters_are_one_tensor_with_two_names():
    process = recorded(
        """
        from torch import nn
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed, self.head = nn.Embedding(7, 4), nn.Linear(4, 7, bias=False)
                self.head.weight = self.embed.weight
            def forward(self, tokens):
                return self.head(self.embed(tokens))
        model = Model()
        optimizer = torch.optim.Adam(model.parameters())
        model(torch.tensor([1, 2])).sum().backward()
        optimizer.step()
        """
    ).process
    first, second = process.at_role(STEP, "exit", attribute="data")[0]
    assert [first["variable"], second["variable"]] == ["embed.weight", "head.weight"]
    assert first["polynomial"] == second["polynomial"]
    assert "tied" in first["flags"] and "tied" in second["flags"]
    assert all(flags([first, second], "in_optimizer").values())


def test_an_optimizer_of_another_model():
    process = recorded(
        """
        from torch import nn
        old, new = nn.Linear(2, 2), nn.Linear(2, 2)
        optimizer = torch.optim.SGD(old.parameters(), lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            new(torch.randn(3, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    states = process.at_role(STEP, "enter", attribute="grad")[1]
    assert flags(states, "in_model") == {
        "weight": True,
        "bias": True,
        "optimizer0.group0.param0": False,
        "optimizer0.group0.param1": False,
    }
    assert flags(states, "in_this_optimizer") == {
        "weight": False,
        "bias": False,
        "optimizer0.group0.param0": True,
        "optimizer0.group0.param1": True,
    }
    present = flags(states, "present")
    assert present["weight"] and not present["optimizer0.group0.param0"]


def test_a_replaced_head_is_noticed():
    process = recorded(
        """
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(4):
            if step == 2:
                model[1] = nn.Linear(3, 2)
            optimizer.zero_grad()
            model(torch.randn(3, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    groups = process.at_role(STEP, "enter", attribute="grad")
    steps = [flags(group, "in_optimizer") for group in groups]
    assert steps[1]["1.weight"] and not steps[2]["1.weight"] and not steps[3]["1.weight"]
    assert "optimizer0.group0.param2" in steps[2] and "optimizer0.group0.param2" not in steps[1]


def test_frozen_parameters_and_modes():
    process = recorded(
        """
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))
        model[0].requires_grad_(False)
        model[1].eval()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.randn(3, 2)).sum().backward()
        optimizer.step()
        """
    ).process
    states = process.at_role(STEP, "enter", attribute="grad")[0]
    requires = flags(states, "requires_grad")
    assert not requires["0.weight"] and requires["2.weight"]
    assert not flags(states, "present")["0.bias"] and flags(states, "present")["2.bias"]
    training = flags(states, "module_training")
    assert training["0.weight"] and not training["1.weight"] and training["2.bias"]


def test_gradients_set_to_none_zeroed_and_deleted():
    process = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(4):
            layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            if step == 0:
                optimizer.zero_grad(set_to_none=False)
            elif step == 1:
                optimizer.zero_grad()
            elif step == 2:
                for parameter in layer.parameters():
                    parameter.grad = None
        """
    ).process
    first, second = process.at_role("zero_grad", "exit")
    assert all(s["absmax"] == 0 and s["zero_count"] > 0 and "present" in s["flags"] for s in first)
    assert not any(flags(second, "present").values())
    entries = process.at_role("backward", "enter")
    assert [all(flags(group, "present").values()) for group in entries[1:]] == [True, False, False]
    assert entries[1][0]["absmax"] == 0


def test_models_in_wrappers_and_several_models():
    process = recorded(
        """
        from torch import nn
        def train(*models):
            optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in models]
            for step in range(2):
                x = torch.randn(3, 2)
                for model in models:
                    x = model(x)
                x.sum().backward()
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        train(nn.DataParallel(nn.Linear(2, 2)))
        train(nn.Linear(2, 2), nn.Linear(2, 2, bias=False))
        """
    ).process
    several = ["model0.bias", "model0.weight", "model1.weight"]
    assert process.variables() == ["bias", *several, "weight"]


def test_a_buffer_that_is_replaced_and_a_loss_with_weights():
    process = recorded(
        """
        from torch import nn
        class Model(nn.Linear):
            def __init__(self):
                super().__init__(2, 2)
                self.register_buffer("ema", torch.zeros(2))
            def forward(self, x):
                self.ema = self.ema * 0.9 + x.detach().mean(0)
                return super().forward(x)
        model, loss = Model(), nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            loss(model(torch.randn(3, 2)), torch.tensor([0, 1, 0])).backward()
            optimizer.step()
        """
    ).process
    values = [s["polynomial"] for s in process.states(variable="ema", moment="exit")]
    assert len(set(values)) == 3
    assert "CrossEntropyLoss.weight" in process.variables()


def test_sparse_gradients_are_there_and_not_read():
    process = recorded(
        """
        from torch import nn
        layer = nn.Embedding(5, 2, sparse=True)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        layer(torch.tensor([1])).sum().backward()
        optimizer.step()
        """
    ).process
    state = process.at_role(STEP, "enter", attribute="grad")[0][0]
    assert "present" in state["flags"] and "digested" not in state["flags"]


def test_a_second_optimizer_is_read_for_its_own_parameters():
    process = recorded(
        """
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 2))
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}
        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()
        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        for step in range(3):
            model(torch.randn(3, 2)).sum().backward()
        """
    ).process
    sizes = [len(group) for group in process.at_role(STEP, "exit")]
    assert len(sizes) == 12 and sizes[0] == 4 and sum(sizes[4:]) == 2 * (4 + 1 + 1 + 1)
    assert process.meta("step") == [0, 1, 2, 3]


def test_lazy_modules_and_swapped_parameters():
    result = recorded(
        """
        from torch import nn
        torch.__future__.set_swap_module_params_on_conversion(True)
        model = nn.LazyLinear(2)
        model(torch.randn(3, 5))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            model(torch.randn(3, 5)).sum().backward()
            optimizer.step()
            model.double().float()
        """
    )
    assert "warning" not in result.stderr and result.process.variables() == ["bias", "weight"]
    steps = result.process.at_role(STEP, "exit", variable="weight")
    assert len({group[0]["polynomial"] for group in steps}) == 3


def test_a_scripted_module():
    process = recorded(
        """
        from torch import nn
        model = nn.Linear(2, 2)
        scripted = torch.jit.script(nn.Linear(2, 2, bias=False))
        optimizer = torch.optim.SGD([*model.parameters(), *scripted.parameters()], lr=0.1)
        for step in range(2):
            optimizer.zero_grad()
            scripted(model(torch.randn(3, 2))).sum().backward()
            optimizer.step()
        """
    ).process
    assert process.variables() == ["model0.bias", "model0.weight", "model1.weight"]


def test_names_of_one_storage_that_part():
    """Different parameters of one storage have different gradients, and may get a storage each."""
    process = recorded(
        """
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
        model[1].weight.data = model[0].weight.data
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(3):
            if step == 2:
                model[1].weight.data = model[1].weight.data + 1
            optimizer.zero_grad()
            model(torch.randn(3, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    gradients = process.at_role(STEP, "enter", attribute="grad")
    assert all(first["polynomial"] != second["polynomial"] for first, second in gradients)
    data = process.at_role(STEP, "exit", attribute="data")
    same = [first["polynomial"] == second["polynomial"] for first, second in data]
    assert same == [True, True, False] and "tied" in data[0][1]["flags"]


def test_optimizers_come_and_go():
    process = recorded(
        """
        from torch import nn
        model = nn.Linear(2, 2)
        for trial in range(70):
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    steps = process.at_role(STEP, "enter", attribute="grad")
    assert len(steps) == 70 and process.meta("step") == list(range(71))
    assert all(all(flags(states, "in_this_optimizer").values()) for states in steps)


def test_more_optimizers_than_are_told_apart():
    process = recorded(
        """
        from torch import nn
        model = nn.ParameterList(nn.Parameter(torch.ones(1)) for _ in range(70))
        optimizers = [torch.optim.SGD([p], lr=0.1) for p in model]
        class Sum(nn.Module):
            def __init__(self):
                super().__init__()
                self.parts = model
            def forward(self):
                return sum(self.parts)
        root = Sum()
        root().sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        """
    ).process
    states = process.at_role(STEP, "enter", attribute="grad")[0]
    assert len(states) == 70 and all(flags(states, "in_optimizer").values())


def test_a_child_that_knows_its_parent():
    process = recorded(
        """
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
        for child in list(model):
            child.parent = model
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(2):
            model(torch.ones(1, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    assert "2.bias" in process.variables()


def test_a_function_mode_sees_what_it_saw():
    """Nor is there a warning where what a module returned is pickled: torch warns of hooks."""
    script = Script(
        """
        from torch import nn
        from torch.overrides import TorchFunctionMode
        class Log(TorchFunctionMode):
            def __torch_function__(self, function, types, arguments=(), keywords=None):
                print(getattr(function, "__name__", function))
                return function(*arguments, **(keywords or {}))
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        import copy, io, warnings
        warnings.simplefilter("error")
        with Log():
            for step in range(2):
                model(torch.ones(1, 2)).sum().backward()
                optimizer.step()
        returned = model(torch.ones(1, 2))
        torch.save(returned, io.BytesIO())
        copy.copy(returned)
        """
    )
    plain = script.plain()
    recorded = script.recorded(TOCSIN_BOUNDARIES="full")
    assert (recorded.returncode, recorded.stdout) == (0, plain.stdout), recorded.stderr
    gradients = [event["variable"] for event in recorded.process.events
                 if event.get("attribute") == "grad_output"]  # fmt: skip
    assert gradients == ["", ""]


def test_names_of_any_characters_and_modules_that_all_know_each_other():
    """What C and files cannot hold is spelled out. There are 10! paths through the peers: each has
    some names, and the step its time."""
    process = recorded(
        """
        import io
        from torch import nn
        model = nn.Sequential(nn.Linear(2, 2))
        model.add_module("nul\\0 and \\ud800", nn.Linear(2, 2))
        torch.save(model.state_dict(), io.BytesIO())
        peers = [nn.Linear(2, 2) for _ in range(10)]
        for peer in peers:
            peer.peers = nn.ModuleList(other for other in peers if other is not peer)
        model.append(peers[0])
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
        """
    ).process
    names = {"0.weight", "nul\\0 and \\ud800.weight"}
    assert names <= {state["variable"] for state in process.states(attribute="saved")}
    assert {*names, "2.weight"} <= set(process.variables())
    assert len(process.variables()) <= 2 * (2 + 64 * 10)
