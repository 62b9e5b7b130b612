"""Behaviours: calls, errors, frames, tracing, threads, whole training runs."""

import collections
import functools
import operator
import os
import sys
import threading
import traceback

import torch
import torch.nn.functional as F
from behaviour_stage import Small, caught_warnings, check, error_of, train, x
from torch import nn


# ---- calls ----------------------------------------------------------------------------------


@check
def argument_errors():
    return [
        error_of(lambda: F.relu())[:2],
        error_of(lambda: F.relu(x, False, 3))[:2],
        error_of(lambda: F.relu(x, nothing=1))[:2],
        error_of(lambda: torch.add())[:2],
        error_of(lambda: x.normal_(wrong=1))[:2],
        error_of(lambda: nn.Linear(2, 2)())[:2],
    ]


@check
def traceback_frames():
    return [
        error_of(lambda: F.cross_entropy(x, x[0])),
        error_of(lambda: nn.Linear(3, 3)(x)),
        error_of(lambda: torch.matmul(x, x)),
        error_of(lambda: nn.init.normal_(x, std=-1.0)),
    ]


@check
def warnings_name_the_caller():
    return caught_warnings(lambda: F.softmax(x)), caught_warnings(lambda: F.mse_loss(x, x[0]))


@check
def caller_frames():
    found = []

    class Spy(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, kinds, args=(), kwargs=None):
            frame, names = sys._getframe(1), []
            while frame is not None:
                names.append((frame.f_code.co_name, os.path.basename(frame.f_code.co_filename)))
                frame = frame.f_back
            found.append(names)
            return "stop"

    F.relu(x.as_subclass(Spy))
    found.append([f.name for f in traceback.extract_stack()])
    return found


@check
def keyword_only_and_defaults():
    return (
        F.gumbel_softmax(x, hard=True).shape,
        F.normalize(input=x, dim=0, eps=1e-3).sum().item(),
        torch.nn.utils.clip_grad_norm_([], 1.0, error_if_nonfinite=False).item(),
        torch.einsum("ij,kj->ik", x, x).shape,
        torch.block_diag(x, x, x).shape,
        torch.meshgrid(x[0], x[1], indexing="ij")[0].shape,
    )


@check
def defaults_changed_later():
    before = F.relu.__defaults__
    F.relu.__defaults__ = (True,)
    try:
        t = x - 1
        return F.relu(t) is t
    finally:
        F.relu.__defaults__ = before


@check
def map_sorted_reduce_callbacks():
    return (
        len(list(map(F.relu, [x, x]))),
        functools.reduce(torch.add, [x, x, x]).sum().item(),
        sorted([3.0, 1.0], key=lambda v: torch.tensor(v).item()),
        operator.methodcaller("normal_")(x.clone()).shape,
    )


@check
def star_calls():
    arguments, keywords = (x, x), {"alpha": 2}
    return torch.add(*arguments, **keywords).sum().item(), F.linear(*arguments).sum().item()


@check
def default_dict_and_callable_attributes():
    table = collections.defaultdict(lambda: F.relu)
    return table["any"](x).shape, Small()(x).shape


@check
def generators_and_no_grad_decorator():
    @torch.no_grad()
    def values():
        yield torch.add(x, 1).requires_grad
        yield torch.is_grad_enabled()

    return list(values())


@check
def deep_recursion_within_limit():
    class Deep(nn.Module):
        def forward(self, t, n):
            return t if n == 0 else self(t, n - 1)

    return Deep()(x, 150).shape


@check
def recursion_error():
    class Endless(nn.Module):
        def forward(self, t):
            return self(t)

    return error_of(lambda: Endless()(x))[0]


@check
def threads():
    results = []

    def work():
        for _ in range(50):
            results.append(F.relu(torch.add(x, 1)).sum().item())

    workers = [threading.Thread(target=work) for _ in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return len(results), len(set(results))


@check
def profile_function():
    events = []

    def profiler(frame, event, argument):
        if event in ("call", "return") and "functional" in frame.f_code.co_filename:
            events.append((event, frame.f_code.co_name))

    sys.setprofile(profiler)
    try:
        F.relu(x)
    finally:
        sys.setprofile(None)
    return set(events) == {("call", "relu"), ("return", "relu")}, events.count(
        ("call", "relu")
    ) == events.count(("return", "relu"))


@check
def trace_function():
    lines = []

    def tracer(frame, event, argument):
        if frame.f_code.co_name == "relu":
            if event == "line":
                lines.append(frame.f_lineno)
            return tracer
        return None

    sys.settrace(tracer)
    try:
        F.relu(x)
    finally:
        sys.settrace(None)
    return lines


@check
def cprofile_counts():
    import cProfile
    import pstats

    profile = cProfile.Profile()
    profile.enable()
    for _ in range(5):
        Small()(x)
    profile.disable()
    totals = pstats.Stats(profile).stats
    return [calls[1] for (_, _, name), calls in totals.items() if name == "forward" and calls[1]]


@check
def data_loader():
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.arange(8.0))
    loaders = DataLoader(data, 4), DataLoader(data, 4, num_workers=2)
    return [[batch[0].tolist() for batch in loader] for loader in loaders]


@check
def grad_scaler():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(model(x).sum()).backward()
    scaler.unscale_(optimizer)
    scaler.step(optimizer)
    scaler.update()
    return model.weight.grad.tolist(), scaler.get_scale()


@check
def losses_sgd():
    return train(optimizer=torch.optim.SGD, lr=0.1, momentum=0.9)


@check
def losses_adamw():
    return train(optimizer=torch.optim.AdamW, lr=0.01)


@check
def losses_lbfgs():
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=4)

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), x[:, :1])
        loss.backward()
        return loss

    return [optimizer.step(closure).item().hex() for _ in range(3)]


@check
def random_state_after_training():
    train(2, lr=0.01)
    return torch.get_rng_state().sum().item()
