"""Small trainings for test_library.py whose calls come in an unusual order, or in a wrong one:
`python order_programs.py NAME`.
"""

import copy
import sys

import torch
import torch.nn.functional as F
from library_programs import STEPS, adamw, batches, evaluate, network, update
from torch import nn
from torch.utils.checkpoint import checkpoint

# ---- healthy --------------------------------------------------------------------------------


def scaled_and_clipped():
    """A GAN under one scaler; then limits that are scaled themselves, and norms that are only
    measured; then no scaler's work at all."""
    models = network(0), network(0)
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.01) for model in models]
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches():
        for model, optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            scaler.scale(F.cross_entropy(model(x), y)).backward()
        scaler.unscale_(optimizers[0])
        nn.utils.clip_grad_norm_(models[0].parameters(), 1.0)
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update()
    for enabled, limit in ((True, scaler.get_scale()), (True, float("inf")), (False, 1.0)):
        scaler = torch.amp.GradScaler("cpu", enabled=enabled)
        for x, y in batches():
            optimizers[0].zero_grad()
            scaler.scale(F.cross_entropy(models[0](x), y)).backward()
            nn.utils.clip_grad_norm_(models[0].parameters(), limit)
            scaler.step(optimizers[0])
            scaler.update()


def schedules():
    """Schedules that are wound forward, in sequences, told an epoch, of batches and of epochs,
    stepped without an update, and plotted."""
    schedules = torch.optim.lr_scheduler
    model = network()
    optimizer = adamw(model)
    batch = schedules.LambdaLR(optimizer, lambda step: 0.99**step)
    epoch = schedules.StepLR(optimizer, 4)
    restarts = schedules.CosineAnnealingWarmRestarts(optimizer, 4)
    parts = [schedules.ConstantLR(optimizer), schedules.ExponentialLR(optimizer, 0.9)]
    sequence = schedules.SequentialLR(optimizer, parts, [3])
    chained = schedules.ChainedScheduler([schedules.ConstantLR(optimizer, total_iters=2)] * 2)
    for _ in range(5):
        batch.step()
    for i, (x, y) in enumerate(batches()):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        if i != 4:  # no update, as if the loss were not finite
            loss.backward()
            optimizer.step()
        batch.step()
        sequence.step()
        chained.step()
        restarts.step(i / 2)
        restarts.step(i / 2)
        if i % 4 == 3:
            epoch.step()
            batch = schedules.LambdaLR(optimizer, lambda step: 0.9**step)
            for _ in range(3):
                batch.step()
    for _ in range(9):
        epoch.step()


class Region(nn.Module):
    def __init__(self, inner, **options):
        super().__init__()
        self.inner = inner
        self.options = options

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False, **self.options)


class Seeded(nn.Module):
    def forward(self, x):
        torch.manual_seed(3)
        return F.dropout(x, 0.5)


def recomputed():
    """Random states are not kept where no numbers are drawn, where the region seeds them itself,
    and where nothing is recomputed; and are kept elsewhere."""
    model = nn.Sequential(
        Region(nn.Linear(8, 8), preserve_rng_state=False),
        Region(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2))),
        Region(Seeded(), preserve_rng_state=False),
        nn.Linear(8, 2),
    )
    noisy = Region(nn.Dropout(0.5), preserve_rng_state=False)
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)
        with torch.no_grad():
            noisy(x)


def spectral_norms():
    """Normalised layers are trained and then evaluated, or loaded, or iterate when they are made;
    and copies are evaluated that are never trained."""
    legacy, modern = nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm
    trained = nn.Sequential(legacy(nn.Linear(8, 8)), nn.ReLU(), modern(nn.Linear(8, 2)))
    average = copy.deepcopy(trained).eval()
    model = nn.Sequential(trained[0], modern(nn.Linear(8, 2)))
    evaluate(model[1].eval())
    model.train()
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)
        evaluate(average)
    other = nn.Sequential(legacy(nn.Linear(8, 8)), modern(nn.Linear(8, 2)))
    other.load_state_dict(model.state_dict())
    optimizer.zero_grad()
    evaluate(other.eval())
    optimizer = adamw(other.train())
    for x, y in batches():
        update(other, optimizer, x, y)


# ---- buggy ----------------------------------------------------------------------------------


def clipped_while_scaled():
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu")
    for x, y in batches():
        optimizer.zero_grad()
        scaler.scale(F.cross_entropy(model(x), y)).backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()


def scheduler_several_times():
    model = network()
    optimizer = adamw(model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * STEPS)
    for x, y in batches():
        update(model, optimizer, x, y)
        scheduler.step()
        scheduler.step()


def recomputed_otherwise():
    inner = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.2), nn.Linear(8, 8))
    model = nn.Sequential(Region(inner, preserve_rng_state=False), nn.Linear(8, 2))
    optimizer = adamw(model)
    for x, y in batches():
        update(model, optimizer, x, y)


def evaluated_untrained():
    model = nn.Sequential(nn.utils.spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 2))
    evaluate(model.eval())
    optimizer = adamw(model.train())
    for x, y in batches():
        update(model, optimizer, x, y)


HEALTHY = """
    scaled_and_clipped schedules recomputed spectral_norms
""".split()


if __name__ == "__main__":
    torch.manual_seed(0)
    globals()[sys.argv[1]]()
