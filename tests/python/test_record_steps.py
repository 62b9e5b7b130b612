"""Steps, micro-steps, stages and the other meta variables."""

from recording import Script, recorded

STEP = "optimizer.step"


def test_gradient_accumulation():
    process = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for step in range(2):
            for micro in range(3):
                layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    ).process
    assert process.meta("micro_step") == [0, 1, 2, 3, 0, 1, 2, 3, 0]
    assert process.meta("step") == [0, 1, 2]
    assert len(process.calls("tocsin.step_end")) == 2
    entry = process.at_role("backward", "enter", variable="weight")
    assert ["present" in group[0]["flags"] for group in entry[3:]] == [False, True, True]


def test_two_optimizers_and_a_gradient_penalty():
    process = recorded(
        """
        from torch import nn
        critic, generator = nn.Linear(2, 1), nn.Linear(2, 2)
        of_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
        of_generator = torch.optim.SGD(generator.parameters(), lr=1e-2)
        for step in range(3):
            fake = generator(torch.randn(4, 2))
            sample = torch.randn(4, 2, requires_grad=True)
            slope, = torch.autograd.grad(critic(sample).sum(), sample, create_graph=True)
            of_critic.zero_grad()
            (critic(fake.detach()).mean() + slope.norm()).backward()
            of_critic.step()
            of_generator.zero_grad()
            (-critic(fake).mean()).backward()
            of_generator.step()
        """
    ).process
    assert process.meta("step") == [0, 1, 2, 3]
    assert process.meta("micro_step") == [0] + [1, 0] * 6
    steps = process.calls("torch.optim.Optimizer.step")
    values = [{v["name"]: v.get("value") for v in call["values"]} for call in steps[:2]]
    assert [v["self.type"] for v in values] == ["Adam", "SGD"]
    assert [v["self.slot"] for v in values] == [0, 1]
    assert [v["self.param_count"] for v in values] == [2, 2] and values[1]["self.lr"] == 1e-2
    adam = {k: values[0][f"self.{k}"] for k in ("beta1", "beta2", "eps", "amsgrad")}
    assert adam == {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "amsgrad": False}
    assert values[1]["self.nesterov"] is False and values[1]["self.dampening"] == 0
    held = {s["variable"]: s["flags"] for s in process.at_role(STEP, "enter", attribute="grad")[0]}
    names = [name for name, flags in held.items() if "in_this_optimizer" in flags]
    assert names in (["model0.weight", "model0.bias"], ["model1.weight", "model1.bias"])
    assert all("in_optimizer" in names for names in held.values())


def test_stages_follow_mode_and_gradients():
    process = recorded(
        """
        from torch import nn
        layer, loss = nn.Linear(2, 2), nn.MSELoss()
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        for epoch in range(2):
            layer.train()
            loss(layer(torch.randn(3, 2)), torch.zeros(3, 2)).backward()
            optimizer.step()
            layer.eval()
            with torch.no_grad():
                loss(layer(torch.randn(3, 2)), torch.zeros(3, 2))
        layer(torch.randn(3, 2)).sum().backward()
        """
    ).process
    assert process.meta("stage") == ["init"] + ["training", "evaluation"] * 2 + ["training"]
    assert process.meta("grad_enabled") == [True, False, True, False, True]


def test_the_user_says_what_a_step_is():
    process = recorded(
        """
        import tocsin
        from torch import nn
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        tocsin.set_meta("data", "synthetic")
        tocsin.set_meta("scale", 0.5)
        tocsin.stage("warmup")
        for step in range(4):
            layer(torch.randn(3, 2)).sum().backward()
            if step % 2:
                tocsin.step()
        tocsin.stage(None)
        layer(torch.randn(3, 2))
        """
    ).process
    assert process.meta("step") == [0, 1, 2]
    assert process.meta("stage") == ["init", "warmup", "training"]
    assert process.meta("data") == ["synthetic"] and process.meta("scale") == [0.5]


def test_the_api_does_nothing_when_not_recorded():
    script = Script(
        """
        import tocsin
        tocsin.step(), tocsin.stage("x"), tocsin.set_meta("a", 1)
        """
    )
    result = script.plain()
    assert (result.returncode, result.stderr) == (0, "")


def test_a_scaler_that_skips_and_a_closure():
    process = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
        for step in range(3):
            optimizer.zero_grad()
            loss = layer(torch.randn(3, 2)).sum() * (float("inf") if step == 1 else 1.0)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        second = torch.optim.LBFGS(layer.parameters(), max_iter=2)
        def closure():
            second.zero_grad()
            loss = layer(torch.ones(1, 2)).pow(2).sum()
            loss.backward()
            return loss
        second.step(closure)
        """
    ).process
    assert process.meta("step") == [0, 1, 2]
    assert len(process.calls("torch.optim.Optimizer.step")) == 3
    assert len(process.calls("torch.amp.GradScaler.step")) == 3


def test_a_step_that_raises_and_the_next_one():
    process = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 2)
        class Careful(torch.optim.SGD):
            def step(self, closure=None):
                if layer.weight.grad is None:
                    raise ValueError("no gradient")
                return super().step(closure)
        optimizer = Careful(layer.parameters(), lr=0.1)
        try:
            optimizer.step()
        except ValueError as error:
            assert str(error) == "no gradient"
        layer(torch.randn(3, 2)).sum().backward()
        optimizer.step()
        torch.ones(1)
        """
    ).process
    raised = [e for e in process.events if e["kind"] == "raise"]
    assert [e["values"][0]["value"] for e in raised] == ["ValueError"]
    assert process.meta("step") == [0, 1]
    assert process.calls("torch.ones")[-1]["depth"] == 0
    assert len(process.calls("torch.optim.Optimizer.step")) == 2


def test_call_sites_and_argument_names():
    script = Script(
        """
        from torch import nn
        import torch.nn.functional as F
        def forward(model, images):
            return F.dropout(model(images), p=0.25)
        layer = nn.Linear(2, 2)
        forward(layer, torch.ones(3, 2))
        """
    )
    process = script.recorded().process
    call = process.calls("torch.nn.functional.dropout")[0]
    assert call["site"] == {"file": str(script.path), "line": 8, "function": "forward"}
    values = {v["name"]: v for v in call["values"]}
    assert values["p"]["value"] == 0.25 and values["input"]["shape"] == [3, 2]
    assert values["input"]["flags"] == ["requires_grad", "has_grad_fn"]
    module = process.calls("torch.nn.Module.__call__")[0]
    assert module["site"]["line"] == 8 and module["values"][0]["type"].endswith("linear.Linear")
