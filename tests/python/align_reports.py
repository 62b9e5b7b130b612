"""Errors that users of PyTorch have reported, as trainings: align_reports.py WHICH CHECKPOINT.

  threads-1, threads-2    pytorch#88718: gradients depend on the number of threads
  whole                   eight steps, and a checkpoint after the third, in CHECKPOINT
  resumed, resumed-WHAT   goes on from it; WHAT (optimizer, generator, scheduler, sampler) is not
                          restored, as in pytorch#35047 and transformers#17032
  unused, unused-found    pytorch#128949: with find_unused_parameters=False nothing is averaged
                          when a parameter in the bucket has no gradient, and nobody says so
"""

import os
import sys

import gloo_end
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

SAVED_AFTER = 3  # of four batches; the second epoch begins at step 5


def threads(number):
    torch.set_num_threads(number)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(100, 64), nn.LayerNorm(64), nn.Linear(64, 5))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(2):
        model(torch.randn(64, 100)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


class Training:
    def __init__(self):
        torch.manual_seed(1)
        self.model = nn.Sequential(nn.Linear(6, 8), nn.Dropout(0.2), nn.Linear(8, 2))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-2)
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, 2, 0.5)
        generator = torch.Generator().manual_seed(2)
        data = TensorDataset(torch.randn(32, 6, generator=generator), torch.arange(32) % 2)
        self.order = torch.Generator().manual_seed(3)  # of samples
        self.loader = DataLoader(data, 8, sampler=RandomSampler(data, generator=self.order))

    def step(self, x, y):
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(x), y).backward()
        self.optimizer.step()
        self.scheduler.step()

    def run(self, path):
        for epoch in range(2):
            begin = self.order.get_state()
            for batch, (x, y) in enumerate(self.loader, 1):
                self.step(x, y)
                if epoch == 0 and batch == SAVED_AFTER:
                    saved = {name: part.state_dict() for name, part in self.parts()}
                    saved |= {"sampler": begin, "generator": torch.get_rng_state()}
                    torch.save(saved, path)

    def parts(self):
        return [(name, getattr(self, name)) for name in ("model", "optimizer", "scheduler")]

    def resume(self, path, without):
        saved = torch.load(path)
        for name, part in self.parts():
            if name != without:
                part.load_state_dict(saved[name])
        skipped = 0
        if without != "sampler":
            self.order.set_state(saved["sampler"])
            skipped = SAVED_AFTER
        for epoch in range(2):
            for batch, (x, y) in enumerate(self.loader):
                if epoch == 0 and batch == skipped and without != "generator":
                    torch.set_rng_state(saved["generator"])
                if epoch == 1 or batch >= skipped:
                    self.step(x, y)


class Toy(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 1)
        self.b = nn.Linear(3, 1)  # not used

    def forward(self, x):
        return self.a(x)


def unused(found):
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Toy(), find_unused_parameters=found)
    optimizer = torch.optim.SGD(model.parameters(), 1.0)
    torch.manual_seed(dist.get_rank())
    model(torch.randn(2, 3)).mean().backward()
    optimizer.step()
    gloo_end.leave()


def main():
    which, path = sys.argv[1], sys.argv[2]
    what, _, detail = which.partition("-")
    if what == "threads":
        threads(int(detail))
    elif what == "whole":
        Training().run(path)
    elif what == "resumed":
        Training().resume(path, detail)
    else:
        assert "RANK" in os.environ
        unused(detail == "found")


main()
