"""Small trainings for test_library.py: `python library_programs.py NAME`.

The healthy ones do what is right in unusual ways; of each rule of the shipped library there is a
buggy one that breaks it, and differs from a healthy one by the mistake only.
"""

import copy
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

torch.set_num_threads(1)
STEPS = 8


def batches(steps=STEPS, size=16):
    generator = torch.Generator().manual_seed(1)
    for _ in range(steps):
        x = torch.randn(size, 8, generator=generator)
        yield x, (x.sum(1) > 0).long()


def network(dropout=0.1):
    return nn.Sequential(
        nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(dropout), nn.Linear(16, 2)
    )


def adamw(model, lr=1e-3):
    return torch.optim.AdamW(model.parameters(), lr=lr)


def update(model, optimizer, x, y):
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def evaluate(model):
    with torch.no_grad():
        for x, _ in batches(2):
            model(x)


# ---- healthy --------------------------------------------------------------------------------


def plain():
    model = network()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 1e-2, total_steps=STEPS)
    for x, y in batches():
        model.train()
        update(model, optimizer, x, y)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scheduler.step()
        model.eval()
        evaluate(model)


def warm_up_from_zero():
    model = network()
    optimizer = adamw(model)
    optimizer.step()  # silences the scheduler's warning, as many scripts do
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: step / 4)
    for x, y in batches():
        update(model, optimizer, x, y)
        scheduler.step()


def accumulation():
    model = network()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for i, (x, y) in enumerate(batches()):
        (F.cross_entropy(model(x), y) / 2).backward()
        if i % 2 == 1:
            optimizer.step()
            scheduler.step()
            for parameter in model.parameters():
                parameter.grad = None


def gan():
    generator, critic = network(0.0), nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    first, second = adamw(generator), torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    for x, _ in batches():
        second.zero_grad()
        (critic(generator(x).detach()) - critic(x[:, :2])).mean().backward()
        second.step()
        with torch.no_grad():
            for parameter in critic.parameters():
                parameter.clamp_(-0.01, 0.01)
        first.zero_grad()
        (-critic(generator(x))).mean().backward()
        first.step()


def two_optimizers_one_backward():
    body, head = nn.Linear(8, 16), nn.Linear(16, 2)
    first, second = adamw(body), torch.optim.SGD(head.parameters(), lr=1e-2)
    for x, y in batches():
        F.cross_entropy(head(torch.relu(body(x))), y).backward()
        first.step()
        second.step()
        first.zero_grad()
        second.zero_grad()


def lbfgs():
    model = nn.Linear(8, 2)
    optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=4)
    for x, y in batches(4):

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)


def latents_without_a_module():
    decoder = nn.Linear(4, 8).requires_grad_(False)
    latent = torch.zeros(16, 4, requires_grad=True)
    optimizer = torch.optim.Adam([latent], lr=1e-2)
    for x, _ in batches():
        optimizer.zero_grad()
        F.mse_loss(decoder(latent), x).backward()
        optimizer.step()


def averaged_weights():
    model = network()
    optimizer = adamw(model)
    average = torch.optim.swa_utils.AveragedModel(model, use_buffers=True)
    for x, y in batches():
        model.train()
        update(model, optimizer, x, y)
        average.update_parameters(model)
        average.eval()
        evaluate(average)


def swapped_weights():
    """Evaluation with averaged weights, which are swapped in and out again."""
    model = network()
    optimizer = adamw(model)
    average = copy.deepcopy(model.state_dict())
    for i, (x, y) in enumerate(batches()):
        model.train()
        update(model, optimizer, x, y)
        if i % 2 == 0:
            continue
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                average[name] = value * 0.1 + average[name] * 0.9
        kept = copy.deepcopy(model.state_dict())
        model.load_state_dict(average)
        model.eval()
        evaluate(model)
        model.load_state_dict(kept)


def distillation():
    student, teacher = network(), network()
    teacher.requires_grad_(False)
    optimizer = adamw(student)
    for x, _ in batches():
        optimizer.zero_grad()
        F.mse_loss(student(x), teacher(x)).backward()
        optimizer.step()
        with torch.no_grad():  # a mean teacher
            for mean, parameter in zip(teacher.parameters(), student.parameters()):
                mean.mul_(0.9).add_(parameter, alpha=0.1)


def frozen_backbone():
    model = network()
    model[0].requires_grad_(False)
    model[1].requires_grad_(False).eval()
    optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-3)
    for x, y in batches():
        update(model, optimizer, x, y)


def fine_tuning_in_eval_mode():
    model = network().eval()
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)


def gradual_unfreezing():
    model = network()
    model[0].requires_grad_(False)
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        if i == 4:
            model[0].requires_grad_(True)
        update(model, optimizer, x, y)


def adversarial():
    model = network(0.0)
    optimizer = adamw(model)
    for x, y in batches():
        x.requires_grad_(True)
        model.zero_grad()
        F.cross_entropy(model(x), y).backward()
        attacked = (x + 0.1 * x.grad.sign()).detach()
        model.zero_grad()
        F.cross_entropy(model(attacked), y).backward()
        optimizer.step()


def functional_gradients():
    model = nn.Linear(8, 2)
    optimizer = adamw(model)
    for x, y in batches():
        parameters = dict(model.named_parameters())
        gradients = torch.func.grad(
            lambda p: F.cross_entropy(torch.func.functional_call(model, p, (x,)), y)
        )(parameters)
        for name, parameter in parameters.items():
            parameter.grad = gradients[name]
        optimizer.step()


def evolution_strategy():
    model = nn.Linear(8, 2)
    optimizer = adamw(model)
    with torch.no_grad():
        for x, y in batches():
            for parameter in model.parameters():
                noise = torch.randn_like(parameter)
                parameter.grad = noise * F.cross_entropy(model(x), y)
            optimizer.step()


def in_backward():
    model = nn.Linear(8, 2)
    optimizers = {p: torch.optim.SGD([p], lr=1e-2) for p in model.parameters()}

    def hook(parameter):
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(hook)
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()


def autocast():
    model = nn.Sequential(nn.Linear(8, 16), nn.LayerNorm(16), nn.Dropout(0.1), nn.Linear(16, 2))
    optimizer = adamw(model)
    for x, y in batches():
        model.train()
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
            with torch.autocast("cpu", enabled=False):
                loss = loss + F.linear(x, model[0].weight).float().pow(2).mean()
            loss = loss + (x.double() @ x.double().T).mean()
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.autocast("cpu", torch.bfloat16):
            evaluate(model)


def scaler():
    model = network()
    optimizer = adamw(model)
    scale = torch.amp.GradScaler("cpu", init_scale=2.0**127)
    for x, y in batches():
        optimizer.zero_grad()
        scale.scale(F.cross_entropy(model(x), y)).backward()
        scale.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scale.step(optimizer)
        scale.update()


class Attention(nn.Module):
    def __init__(self, dropout=0.2, always=False):
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 2)
        self.dropout, self.always = dropout, always

    def forward(self, x):
        q, k, v = self.qkv(x).view(-1, 2, 24).chunk(3, -1)
        dropout = self.dropout if self.training or self.always else 0.0
        x = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
        x = x + F.dropout(F.scaled_dot_product_attention(q, k, v), 0.0, True)
        x = F.dropout(x, self.dropout, self.training or self.always)
        return self.out(x.reshape(-1, 8))


def attention(always=False):
    model = Attention(always=always)
    optimizer = adamw(model)
    for x, y in batches():
        model.train()
        update(model, optimizer, x, y)
        model.eval()
        evaluate(model)


def checkpointed(reentrant=False):
    from torch.utils.checkpoint import checkpoint

    first, second = nn.Linear(8, 16), nn.Linear(16, 2)
    model = nn.ModuleList([first, second])
    optimizer = adamw(model)
    for x, y in batches():
        x.requires_grad_(True)
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            hidden = checkpoint(first, x, use_reentrant=reentrant)
            loss = F.cross_entropy(second(hidden), y)
        loss.backward()
        optimizer.step()


def tied():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding, self.head = nn.Embedding(8, 8), nn.Linear(8, 8, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x):
            return self.head(self.embedding(x))

    model = Model()
    optimizer = adamw(model)
    for x, _ in batches():
        tokens = (x.abs() * 2).long().clamp(0, 7)
        optimizer.zero_grad()
        F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()


def reparametrized():
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(8, 16))
    model = nn.Sequential(linear, nn.utils.parametrizations.spectral_norm(nn.Linear(16, 2)))
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)


def unused_layer():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.pooler, self.head = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 2)

        def forward(self, x):
            hidden = self.body(x)
            self.pooled = self.pooler(hidden)
            return self.head(hidden)

    model = Model()
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)


def resumed():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pt"
        model = network()
        optimizer = adamw(model)
        for i, (x, y) in enumerate(batches()):
            update(model, optimizer, x, y)
            if i == 3:
                torch.save({"m": model.state_dict(), "o": optimizer.state_dict()}, path)
                del model, optimizer
                model = network()
                optimizer = adamw(model)
                kept = torch.load(path)
                model.load_state_dict(kept["m"])
                optimizer.load_state_dict(kept["o"])


def best_weights():
    """The best weights so far are loaded again after an epoch that made them worse."""
    model = network()
    optimizer = adamw(model)
    best = copy.deepcopy(model.state_dict())
    for i, (x, y) in enumerate(batches()):
        update(model, optimizer, x, y)
        if i % 3 == 2:
            model.eval()
            evaluate(model)
            model.train()
            model.load_state_dict(best)
        best = copy.deepcopy(model.state_dict())


def skipped_updates():
    model = network()
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if i == 3:
            loss = loss * float("nan")
        loss.backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if torch.isfinite(norm):
            optimizer.step()


def half_precision():
    model = network().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for x, y in batches():
        update(model, optimizer, x.bfloat16(), y)


def saved():
    """The model, an average of it and rounded weights in one file."""
    model = network()
    model[0].requires_grad_(False)
    optimizer = adamw(model)
    average = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with tempfile.TemporaryDirectory() as folder:
        for x, y in batches():
            update(model, optimizer, x, y)
            state = model.state_dict()
            half = {name: tensor.bfloat16() for name, tensor in state.items()}
            kept = {"model": state, "average": average, "half": half}
            torch.save(kept, Path(folder) / "checkpoint.pt")


def seeded_workers():
    workers(seeded=True)


def shuffled():
    order_repeats(repeats=False)


def planned():
    import tocsin

    tocsin.expect(steps=STEPS)
    plain()


# ---- buggy ----------------------------------------------------------------------------------


def stale_optimizer():
    model = network()
    optimizer = adamw(model)
    model = copy.deepcopy(model)
    for x, y in batches():
        update(model, optimizer, x, y)


def unused_parameters():
    """Of two heads the optimizer got the wrong one, too."""
    model, other = network(), nn.Linear(16, 2)
    optimizer = torch.optim.AdamW([*other.parameters(), *model.parameters()], lr=1e-3)
    for x, y in batches():
        update(model, optimizer, x, y)


def layer_without_optimizer():
    model = network()
    optimizer = adamw(model)
    model.append(nn.Linear(2, 2))
    for x, y in batches():
        update(model, optimizer, x, y)


def gradient_kept():
    model = network()
    optimizer = adamw(model)
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def cleared_before_the_step():
    model = network()
    optimizer = adamw(model)
    for x, y in batches():
        F.cross_entropy(model(x), y).backward()
        optimizer.zero_grad()
        optimizer.step()


def nothing_trainable():
    """The body was frozen for the first phase and is not unfrozen in the second."""
    body, head = nn.Linear(8, 16).requires_grad_(False), nn.Linear(16, 2)
    optimizer = adamw(body)
    for x, y in batches():
        F.cross_entropy(head(torch.relu(body(x))), y).backward()
        optimizer.step()
        optimizer.zero_grad()
        head.zero_grad()


def twice_a_backward():
    model = network()
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)
        optimizer.step()


def scheduler_each_micro_batch():
    model = network()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    for i, (x, y) in enumerate(batches()):
        (F.cross_entropy(model(x), y) / 2).backward()
        if i % 2 == 1:
            optimizer.step()
            optimizer.zero_grad()
        scheduler.step()


def not_driven():
    """An optimizer of one's own that forgets the parameters of its last group."""

    class Forgetful(torch.optim.SGD):
        def step(self, closure=None):
            groups, self.param_groups = self.param_groups, self.param_groups[:-1]
            super().step(closure)
            self.param_groups = groups

    model = network()
    optimizer = Forgetful([{"params": part.parameters()} for part in (model[0], model[4])], lr=1e-2)
    model[1].requires_grad_(False)
    for x, y in batches():
        update(model, optimizer, x, y)


def frozen_too_late():
    """Frozen when its gradient is there already: the optimizer moves it once more."""
    model = network()
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        if i == 3:
            model[0].requires_grad_(False)
        optimizer.step()


def not_finite():
    model = network(0.0)
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if i == 3:
            loss = loss + (x * 0).sqrt().sum() * 0 + torch.log(model[0].weight[0, 0] * 0)
        loss.backward()
        optimizer.step()


def dropout_in_evaluation():
    attention(always=True)


def not_swapped_back():
    model = network()
    optimizer = adamw(model)
    average = copy.deepcopy(model.state_dict())
    for i, (x, y) in enumerate(batches()):
        update(model, optimizer, x, y)
        if i == 3:
            model.load_state_dict(average)
            model.eval()
            evaluate(model)
            model.train()


def left_in_eval_mode():
    model = network()
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        update(model, optimizer, x, y)
        if i == 3:
            model.eval()
            evaluate(model)


def untied():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)
            self.second.weight = self.first.weight

        def forward(self, x):
            return self.second(torch.relu(self.first(x)))[:, :2]

    model = Model()
    optimizer = adamw(model)
    for i, (x, y) in enumerate(batches()):
        if i == 3:
            model.second.weight = nn.Parameter(model.second.weight.detach().clone())
            optimizer.add_param_group({"params": [model.second.weight]})
        update(model, optimizer, x, y)


def below_resolution():
    model = network().bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    for x, y in batches(17):
        update(model, optimizer, x.bfloat16(), y)


def saved_wrongly():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Linear(8, 2))
    optimizer = adamw(model)
    with tempfile.TemporaryDirectory() as folder:
        for i, (x, y) in enumerate(batches()):
            update(model, optimizer, x, y)
            if i == 3:
                by_shape = {tensor.shape: tensor for tensor in model.state_dict().values()}
                state = {k: by_shape[t.shape] for k, t in model.state_dict().items()}
                torch.save({"model": state}, Path(folder) / "checkpoint.pt")


def stops_early():
    import tocsin

    tocsin.expect(steps=STEPS + 1)
    plain()


class Drawn(torch.utils.data.Dataset):
    """Samples that are drawn when they are asked for."""

    def __init__(self, seeded):
        self.random, self.seeded = torch.Generator().manual_seed(1), seeded

    def __len__(self):
        return 64

    def __getitem__(self, index):
        if self.seeded:
            self.random.manual_seed(index)
        x = torch.randn(8, generator=self.random)
        return x, (x.sum() > 0).long()


def workers(seeded=False):
    model = network()
    optimizer = adamw(model)
    for x, y in torch.utils.data.DataLoader(Drawn(seeded), batch_size=8, num_workers=2):
        update(model, optimizer, x, y)


def order_repeats(repeats=True):
    model = network()
    optimizer = adamw(model)
    loader = torch.utils.data.DataLoader(Drawn(True), batch_size=8, shuffle=True)
    for epoch in range(3):
        torch.manual_seed(7 if repeats else epoch)
        for x, y in loader:
            update(model, optimizer, x, y)


def probed():
    """A network is trained, then a layer on its features; the network's last gradients stay."""
    encoder = network()
    optimizer = adamw(encoder)
    for x, y in batches():
        update(encoder, optimizer, x, y)
    del optimizer
    encoder.eval()
    probe = nn.Linear(2, 2)
    optimizer = adamw(probe)
    for x, y in batches():
        with torch.no_grad():
            features = encoder(x)
        update(probe, optimizer, features, y)


def autocast_lost():
    """A layer that leaves autocast by itself and stays in full precision."""

    class Skipped(nn.Linear):
        def forward(self, x):
            with torch._C._DisableAutocast():
                return super().forward(x)

    model = Skipped(8, 2)
    optimizer = adamw(model)
    for x, y in batches():
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()


HEALTHY = """
    plain warm_up_from_zero accumulation gan two_optimizers_one_backward lbfgs
    latents_without_a_module averaged_weights swapped_weights distillation frozen_backbone
    fine_tuning_in_eval_mode gradual_unfreezing adversarial functional_gradients
    evolution_strategy in_backward autocast scaler attention checkpointed tied reparametrized
    unused_layer resumed best_weights skipped_updates half_precision saved seeded_workers
    shuffled planned probed
""".split()


def main(name):
    torch.manual_seed(0)
    globals()[name]()


if __name__ == "__main__":
    main(sys.argv[1])
