"""What the guard does in a step, in its fixed order.

A check is an object made with the guard, with any of these methods:
    forward()        a context manager around a forward pass
    suspicious()     has this rank seen something? No message; any rank's yes makes all ranks call
    before_update()  gradients are complete and check 1 was made, no optimizer has moved
    after_update()   the optimizers have stepped
    close()
before_update and after_update return findings, the same on all ranks, which call them alike. A
check that finds something on one rank alone gives it to Guard.report().
"""

import contextlib
import dataclasses
import importlib
import os
import socket
import time

from tocsin import _core
from tocsin.guard.exchange import Exchange, PeerLost
from tocsin.guard.gradient_check import GradientCheck, plain_name
from tocsin.guard.unseen import Unseen
from tocsin.guard.weight_check import WeightCheck
from tocsin.messages import say

ACTIONS = ("skip_update", "stop", "continue")
# Seconds: a thread of gloo takes the interpreter's lock once more after its last work, and aborts
# the process if the interpreter is gone by then.
_LAST_WORK = 0.2


class GuardAlarm(SystemExit):
    """The guard ends the job. finding: why; code: 86 when it names a rank, else 87."""

    def __init__(self, finding):
        named = bool(finding["ranks"])
        super().__init__(_core.GUARD_EXIT_NAMED if named else _core.GUARD_EXIT_UNNAMED)
        self.finding = finding

    def __str__(self):
        return self.finding["text"]


@dataclasses.dataclass
class Outcome:
    """What guard.step() did."""

    step: int
    updated: bool = True
    skipped_by: str = ""  # "scaler" or "guard"
    norm: float | None = None
    findings: list = dataclasses.field(default_factory=list)


def _made(wanted, module, name, guard):
    """A check, its module loaded only when it is wanted; else None."""
    if not wanted:
        return None
    return getattr(importlib.import_module(f"tocsin.guard.{module}"), name)(guard)


class Guard:
    """Checks each step of a training job: gradients before the update, weights after it, replays of
    other ranks' batches in between. All ranks make one, after the process group and the model.

    model: as it is called: DistributedDataParallel, fully_shard, or plain
    optimizer: one, or a list
    rebuild_batch(step, rank): the batch of another rank; needed for replays
    compute_loss(model, batch): the loss; needed for replays and guard.compute_loss
    audit_every, weights_every: steps between replays, between checks of the weights
    peer_offset: whose batch is replayed; by default a rank of another host
    deterministic: replays compare gradients, too, bit by bit
    gate: None, "vote" or "audit": what a checkpoint needs to be published
    on_alarm: "stop", "skip_update" or "continue"
    folder: of the ledger, one file a rank
    timeout: seconds that a rank waits for another
    scaler, max_norm: the GradScaler, and the norm to which gradients are clipped
    first_step: the number of the next step, as rebuild_batch counts
    mesh: the DeviceMesh whose replicated dimensions hold copies, where parameters do not tell
    collectives, recompute, memory: the checks beyond the three (docs/guard.md)
    exchange: of another guard, to share it; one of its own by default
    """

    def __init__(self, model, optimizer, rebuild_batch=None, compute_loss=None, *, audit_every=10,
                 weights_every=1, peer_offset=None, deterministic=False, gate=None,
                 on_alarm="stop", folder="tocsin-guard", timeout=60.0, scaler=None, max_norm=None,
                 mesh=None, first_step=1, collectives=False, recompute=False, memory=False,
                 exchange=None):  # fmt: skip
        if on_alarm not in ACTIONS:
            raise ValueError(f"on_alarm is {on_alarm!r}, not one of {', '.join(ACTIONS)}")
        if gate not in (None, "vote", "audit"):
            raise ValueError(f"gate is {gate!r}, not None, 'vote' or 'audit'")
        if audit_every < 1 or weights_every < 1:
            raise ValueError("audit_every and weights_every are numbers of steps, from 1")
        if first_step < 1:
            raise ValueError(f"first_step is {first_step}: steps count from 1")
        self.model = model
        self.optimizers = list(optimizer) if isinstance(optimizer, (list, tuple)) else [optimizer]
        self.rebuild_batch, self.loss_function = rebuild_batch, compute_loss
        self.audit_every, self.weights_every = audit_every, weights_every
        self.peer_offset, self.deterministic = peer_offset, deterministic
        self.gate, self.on_alarm, self.folder = gate, on_alarm, folder
        self.scaler, self.max_norm, self.mesh = scaler, max_norm, mesh
        self.step_count = first_step - 1  # finished steps
        self.replaying = False  # a replay runs the model
        self.passed = {}  # check, as findings name it -> the last step that passed it
        self.findings = []  # all so far
        self.named = {}  # rank -> the step at which a finding named it last
        self.exchange = exchange or Exchange(timeout)
        self.rank, self.world_size = self.exchange.rank, self.exchange.world
        self._local = []  # findings that other ranks do not know yet
        self._can_skip = self._skip = False
        self.look_again()
        os.makedirs(folder, exist_ok=True)
        self.ledger = os.path.join(folder, f"rank-{self.rank}.jsonl")
        self.places = self.exchange.gather_objects(_place(model))
        self.gradient_check, self.weight_check = GradientCheck(self), WeightCheck(self)
        replays = rebuild_batch is not None and compute_loss is not None
        self.replay_check = _made(replays, "replay_check", "ReplayCheck", self)
        self.collective_check = _made(collectives, "collective_check", "CollectiveCheck", self)
        self.recompute_check = _made(recompute, "recompute_check", "RecomputeCheck", self)
        self.memory_check = _made(memory, "memory_check", "MemoryCheck", self)
        self.checks = [check for check in (self.replay_check, self.collective_check,
                       self.recompute_check, self.memory_check) if check is not None]  # fmt: skip
        self._raise_all(self.attend(self.weight_check.run))  # replicas begin alike
        self._explain_coverage()

    @property
    def step_number(self):
        """Of the step under way."""
        return self.step_count + 1

    @property
    def is_audited(self):
        """Is the step under way one of every audit_every?"""
        return self.step_number % self.audit_every == 0

    def passed_step(self, check):
        """The last step that passed this check; -1: none yet."""
        return self.passed.get(check, -1)

    def named_before(self, check):
        """Ranks that were named, and this check has passed since: again is persistent."""
        passed = self.passed_step(check)
        return sorted(rank for rank, step in self.named.items() if step <= passed)

    def named_parameters(self):
        """(name, parameter) of the model and of the optimizers, each once, as at the last
        look_again()."""
        return self._parameters

    def look_again(self):
        """Parameters may have come or gone. At the start of each step's checks."""
        found = {id(each): (plain_name(name), each) for name, each in self.model.named_parameters()}
        for number, optimizer in enumerate(self.optimizers):
            for g, group in enumerate(optimizer.param_groups):
                for p, parameter in enumerate(group["params"]):
                    found.setdefault(id(parameter), (f"optimizer{number}.{g}.{p}", parameter))
        self._parameters = list(found.values())

    def weights_changed(self):
        """The program has changed weights or optimizer state in a way that torch does not count,
        such as through .data: the memory check begins anew after the next update."""
        if self.memory_check is not None:
            self.memory_check.forget()

    # ---- in a step ----------------------------------------------------------------------------

    def forward(self):
        """A context for a forward pass: what the checks watch in it."""
        stack = contextlib.ExitStack()
        if not self.replaying:
            for check in self.checks:
                if hasattr(check, "forward"):
                    stack.enter_context(check.forward())
        return stack

    def compute_loss(self, batch):
        """compute_loss(model, batch), prepared for a replay where one is due."""
        if self.loss_function is None:
            raise ValueError("Guard was made without compute_loss")
        with self.forward():
            if self.replay_check is not None:
                return self.replay_check.compute_loss(batch)
            return self.loss_function(self.model, batch)

    def backward(self, loss):
        """loss.backward(), scaled where there is a scaler; as often as gradients are added up."""
        (loss if self.scaler is None else self.scaler.scale(loss)).backward()

    def step(self, loss=None):
        """Check, update, check. Returns an Outcome; raises GuardAlarm."""
        if loss is not None:
            self.backward(loss)
        outcome = self.before_update()
        if outcome.skipped_by == "guard":
            self._drop_update()
        else:
            self._update()
        return self.after_update(outcome)

    def before_update(self):
        """The checks before the optimizers move."""
        outcome = Outcome(self.step_number)
        first = len(self.findings)
        self._skip, self._can_skip = False, True
        self.look_again()
        try:
            suspicious = self.attend(self._check_gradients, outcome)
            for check in self.checks:
                if hasattr(check, "before_update") and (
                    suspicious or not hasattr(check, "suspicious")
                ):
                    self._raise_all(self.attend(check.before_update))
        finally:
            self._can_skip = False
        if self._skip:
            outcome.updated, outcome.skipped_by = False, "guard"
        outcome.findings = self.findings[first:]
        return outcome

    def after_update(self, outcome):
        """The checks after the optimizers have moved; the step is over."""
        first = len(self.findings)
        if outcome.updated and self.step_number % self.weights_every == 0:
            self._raise_all(self.attend(self.weight_check.after_update))
        for check in self.checks:
            if hasattr(check, "after_update"):
                self._raise_all(self.attend(check.after_update))
        outcome.findings = outcome.findings + self.findings[first:]
        self.gradient_check.reset()
        self.step_count += 1
        return outcome

    def _check_gradients(self, outcome):
        """Check 1, and what single ranks reported. Returns whether a check of some rank is
        suspicious."""
        check = self.gradient_check
        bad, row, name, shape = check.evidence()
        outcome.norm = check.norm
        suspicious = any(each.suspicious() for each in self.checks if hasattr(each, "suspicious"))
        if not self.exchange.maximum(int(bad or suspicious or bool(self._local))):
            check.skips = 0
            self.passed["gradient"] = self.step_number
            return False
        said = self.exchange.gather_objects([row.hex(), name, shape, suspicious, self._local])
        self._local = []
        for each in said:
            self._raise_all(each[4])
        rows = [bytes.fromhex(each[0]) for each in said]
        verdict, finding = check.judge(rows, [each[1] for each in said], [each[2] for each in said])
        if verdict == "scaler_skip":
            check.skips += 1
            self.passed["gradient"] = self.step_number  # nothing of it reaches a weight
            outcome.updated, outcome.skipped_by = False, "scaler"
        elif finding is not None:
            self.raise_finding(self._explained(finding, said))
        else:
            check.skips = 0
            self.passed["gradient"] = self.step_number
        return any(each[3] for each in said)

    def _explained(self, finding, said):
        """With what a replay says of the first rank's batch: the hardware, or the data."""
        rank = next((rank for rank, each in enumerate(said) if each[1]), None)
        if rank is None or self.replay_check is None:
            return finding
        replayed = self.replay_check.explain(self.step_number, rank)
        if replayed is None:
            return finding
        return {**finding, "cause": replayed["cause"], "ranks": replayed["ranks"],
                "text": f"{finding['text']}; {replayed['text']}",
                "evidence": {**finding["evidence"], "replay": replayed["evidence"]}}  # fmt: skip

    def _update(self):
        for optimizer in self.optimizers:
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()

    def _drop_update(self):
        if self.scaler is not None and self.max_norm is not None:
            self.scaler.update(self.scaler.get_scale())  # forget that gradients were unscaled
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)

    # ---- findings -----------------------------------------------------------------------------

    def report(self, finding):
        """A finding of this rank alone: all ranks are told before the next update, and act."""
        self._local.append(finding)

    def _raise_all(self, findings):
        for finding in findings or ():
            self.raise_finding(finding)

    def raise_finding(self, finding):
        """Act on a finding that all ranks have: write it down, then do as on_alarm says."""
        finding = self._complete(finding)
        self.findings.append(finding)
        self.named.update(dict.fromkeys(finding["ranks"], finding["step"]))
        try:
            _core.guard_ledger_append(self.ledger, finding)
        except OSError as error:  # a full disk must not hide what was found
            say(f"guard: error: a finding is not in the ledger: {error}")
        if self.rank == 0 or finding["check"] == "peer":
            say(f"guard: {finding['text']}")
        if finding["action"] == "stop":
            if self.world_size > 1:
                time.sleep(_LAST_WORK)
            raise GuardAlarm(finding)
        self._skip = self._skip or finding["action"] == "skip_update"

    def _complete(self, finding):
        """With where and when it was, and what is done."""
        action = self.on_alarm
        skips = self._can_skip and finding["check"] != "memory"
        if finding["check"] == "peer" or (action == "skip_update" and not skips):
            action = "stop"  # nobody to go on with, or no update left that would undo it
        places = [self.places[rank] for rank in finding["ranks"]]
        return {**finding, "time": time.time(), "hosts": [each["host"] for each in places],
                "devices": [each["device"] for each in places], "action": action}  # fmt: skip

    def attend(self, check, *arguments):
        """Run a check, unrecorded; a rank that is gone is a finding."""
        try:
            with Unseen():
                return check(*arguments)
        except PeerLost as lost:
            self.raise_finding(_core.guard_finding(
                "peer", "unattributable", str(lost), self.step_number, self.step_count,
                replicas=self.world_size,
            ))  # fmt: skip

    # ---- checkpoints --------------------------------------------------------------------------

    def save(self, state, path):
        """torch.save, behind the gate."""
        return importlib.import_module("tocsin.guard.publish").save(self, state, path)

    def save_distributed(self, state, path):
        """torch.distributed.checkpoint.save, behind the gate."""
        return importlib.import_module("tocsin.guard.publish").save_distributed(self, state, path)

    def _explain_coverage(self):
        """Say once what check 3 cannot see."""
        uncovered = self.weight_check.uncovered
        if self.rank == 0 and self.world_size > 1 and uncovered:
            say(f"guard: no other rank is known to have a copy of {len(uncovered)} tensors "
                f"({uncovered[0]}, ...): check 3 does not cover them")  # fmt: skip

    def close(self):
        """No check from here on. Waits for nobody."""
        for check in [*self.checks, self.gradient_check, self.weight_check]:
            if hasattr(check, "close"):
                check.close()
        self.exchange.close()


def _place(model):
    """Where this rank runs."""
    parameter = next(iter(model.parameters()), None)
    device = "cpu" if parameter is None else str(parameter.device)
    return {"host": os.environ.get("NODE_NAME") or socket.gethostname(), "device": device,
            "local_rank": os.environ.get("LOCAL_RANK", "")}  # fmt: skip
