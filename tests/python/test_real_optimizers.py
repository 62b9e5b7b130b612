"""Optimizers as training libraries wrap and subclass them."""

from recording import recorded


def test_wrapper_that_forwards_every_other_call():
    # accelerate's AcceleratedOptimizer: an Optimizer by class, whose step and zero_grad do nothing
    # while gradients accumulate. Only the calls that reach a real optimizer are recorded.
    process = recorded(
        """
        from torch import nn

        class Wrapper(torch.optim.Optimizer):
            def __init__(self, inner):
                self.inner, self.synchronize = inner, False

            param_groups = property(lambda self: self.inner.param_groups)
            state = property(lambda self: self.inner.state)

            def zero_grad(self, set_to_none=True):
                if self.synchronize:
                    self.inner.zero_grad(set_to_none)

            def step(self, closure=None):
                if self.synchronize:
                    self.inner.step(closure)

        layer = nn.Linear(2, 2)
        optimizer = Wrapper(torch.optim.SGD(layer.parameters(), lr=0.1))
        for micro in range(6):
            optimizer.synchronize = micro % 2 == 1
            layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    ).process
    assert len(process.calls("torch.optim.Optimizer.step")) == 3
    assert len(process.calls("torch.optim.Optimizer.zero_grad")) == 3


def test_subclass_with_methods_of_its_own():
    # Its step is recorded once although it calls its parent's, which is hooked too; so is the
    # zero_grad that an inner class overrides.
    process = recorded(
        """
        from torch import nn

        class Clearing(torch.optim.SGD):
            def zero_grad(self, set_to_none=True):
                for group in self.param_groups:
                    for parameter in group["params"]:
                        parameter.grad = None

        class Clipping(Clearing):
            def step(self, closure=None):
                for group in self.param_groups:
                    nn.utils.clip_grad_norm_(group["params"], 1.0)
                return super().step(closure)

        torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
        layer = nn.Linear(2, 2)
        optimizer = Clipping(layer.parameters(), lr=0.1)
        for step in range(3):
            optimizer.zero_grad()
            layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    assert len(process.calls("torch.optim.Optimizer.step")) == 3
    assert len(process.calls("torch.optim.Optimizer.zero_grad")) == 3
    assert process.meta("step") == [0, 1, 2, 3]


def test_first_an_instance_of_the_subclass_then_of_its_base():
    # torch.optim.AdamW is an Adam: each has a step that is wrapped when its first instance is made.
    process = recorded(
        """
        from torch import nn
        layer = nn.Linear(2, 2)
        for cls in (torch.optim.AdamW, torch.optim.Adam):
            optimizer = cls(layer.parameters(), lr=0.1)
            layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
        """
    ).process
    steps = process.calls("torch.optim.Optimizer.step")
    types = [{v["name"]: v.get("value") for v in call["values"]}["self.type"] for call in steps]
    assert types == ["AdamW", "Adam"]


def test_a_scheduler_is_not_stepped_by_its_constructor():
    process = recorded(
        """
        from torch import nn
        from torch.optim.lr_scheduler import LinearLR, SequentialLR, StepLR
        layer = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
        scheduler = SequentialLR(optimizer, [LinearLR(optimizer), StepLR(optimizer, 1)], [1])
        for step in range(2):
            layer(torch.randn(3, 2)).sum().backward()
            optimizer.step()
            scheduler.step()
        """
    ).process
    calls = process.calls("torch.optim.lr_scheduler.LRScheduler.step")
    assert len([call for call in calls if call["depth"] == 0]) == 2


def test_an_optimizer_that_steps_another():
    # ZeroRedundancyOptimizer: an Optimizer with parameters of its own, whose step has another one
    # update a part of them, and then copies what other ranks have updated.
    process = recorded(
        """
        from torch import nn

        class Sharing(torch.optim.Optimizer):
            def __init__(self, parameters):
                super().__init__(parameters, {})
                self.mine, self.theirs = self.param_groups[0]["params"]
                self.inner = torch.optim.SGD([self.mine], lr=0.1)

            @torch.no_grad()
            def step(self, closure=None):
                self.inner.step()
                self.theirs.fill_(float(self.mine.sum()))

        layer = nn.Linear(2, 2)
        optimizer = Sharing(layer.parameters())
        for step in range(2):
            layer(torch.ones(3, 2)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        """
    ).process
    steps = process.at_role("optimizer.step", "exit", variable="bias", attribute="data")
    assert [len(states) for states in steps] == [1, 1]
    assert process.meta("step") == [0, 1, 2]
