"""Check 2: each rank computes the work of another one again, and the results must be equal.

On the steps that are audited, before the update: the owner of a batch keeps what its computation
began with and what came out; another rank computes the same; where the two differ, lib/guard asks
for more runs and says what they prove. All ranks take the same path, because they decide by what
all have been told; a rank that could not compute tells that, too.
"""

import collections
import contextlib
import dataclasses
import inspect

import torch

from tocsin import determinism
from tocsin.guard import replay_isolation, replay_work
from tocsin.guard.replay_session import NONFINITE, WRITTEN, Session
from tocsin.guard.replay_work import GradientWatch, Outcome, Worker
from tocsin.messages import say

_REPLICAS_TO_NAME = 3


def _takes_micro(rebuild_batch):
    """Does it want the number of the micro-batch, too? An option of another name is its own."""
    try:
        parameters = list(inspect.signature(rebuild_batch).parameters.values())
    except ValueError:
        return False
    positional = [each for each in parameters
                  if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]  # fmt: skip
    if len(positional) < 3:
        return any(each.kind == each.VAR_POSITIONAL for each in parameters)
    return positional[2].default is inspect.Parameter.empty or "micro" in positional[2].name


def _ranks_per_host(places):
    return max(collections.Counter(place["host"] for place in places).values())


def _obstacle(model, ranks):
    """Why nothing can be replayed, or None."""
    if ranks < 2:
        return "there is no other rank"
    if hasattr(model, "_orig_mod") and any(map(replay_work.is_wrapped, model.modules())):
        return "what is compiled holds DistributedDataParallel: wrap the compiled model instead"
    if replay_work.is_wrapped(model) and model._compiled_call_impl is not None:
        return "DistributedDataParallel is compiled: compile what it wraps instead"
    if replay_work.is_wrapped(model) and model.mixed_precision is not None:
        return "DistributedDataParallel's own mixed precision casts parameters on the way"
    for module in model.modules():
        if isinstance(module, torch.nn.SyncBatchNorm):
            return "SyncBatchNorm computes with all ranks at once"
    for parameter in model.parameters():
        if hasattr(parameter, "_local_tensor"):
            return "parameters are distributed: no rank can compute a batch alone"
    return None


def _is_compiled(model):
    return any(
        hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None) is not None
        for module in model.modules()
    )


def _in_words(error):
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"


class ReplayCheck:
    """Of a guard with rebuild_batch and compute_loss. coverage: "attributes", "detects" (two ranks:
    nobody can be named) or "none"; limits: sentences on what that leaves out."""

    def __init__(self, guard):
        self.guard = guard
        self.ranks = guard.world_size
        self.coverage, self.limits = "attributes", []
        obstacle = _obstacle(guard.model, self.ranks)
        if obstacle is not None:
            self.coverage = "none"
            self.limits.append(f"check 2 replays nothing: {obstacle}")
        elif self.ranks < _REPLICAS_TO_NAME:
            self.coverage = "detects"
            self.limits.append("check 2 has two ranks: it detects a difference and names nobody")
        self.offset = self._choose_offset(guard.peer_offset)
        self.worker = Worker(guard.model, guard.loss_function)
        self._takes_micro = _takes_micro(guard.rebuild_batch)
        self._compiled = _is_compiled(guard.model)
        self._shapes = set()  # of all batches, where the model is compiled
        self._works = []  # of the step under way
        self._last = (0, [])  # the last finished step that had any, and they
        self._calls = 0  # of compute_loss, up to 2
        self.writes = False  # does it change weights, as last seen?
        self._watch = None  # gradients of an audited step
        self._modes = contextlib.ExitStack()  # deterministic algorithms, in an audited step
        for limit in self.limits:
            self._print(limit)

    def _print(self, limit):
        if self.guard.rank == 0:
            say(f"guard: {limit}")

    def _say(self, limit):
        """Once."""
        if limit not in self.limits:
            self.limits.append(limit)
            self._print(limit)

    def shapes(self):
        """One or two that batches had, if it matters."""
        return sorted(self._shapes)

    def _choose_offset(self, offset):
        if self.coverage == "none":
            return 0
        if offset is None:
            offset = _ranks_per_host(self.guard.places)
            return offset if offset < self.ranks else 1
        if offset % self.ranks == 0:
            raise ValueError(f"peer_offset is {offset}: of {self.ranks} ranks that is the same one")
        return offset % self.ranks

    # ---- in a step ------------------------------------------------------------------------------

    def _due(self):
        return self.coverage != "none" and self.guard.is_audited

    def compute_loss(self, batch):
        """compute_loss(model, batch); kept is what another rank needs to do the same."""
        if self.coverage == "none" or self.guard.replaying or not torch.is_grad_enabled():
            return self.guard.loss_function(self.guard.model, batch)
        due = self._due()
        self._forget_dropped()
        if due and self.guard.deterministic and self._watch is None:
            self._modes.enter_context(determinism.algorithms())
            self._watch = GradientWatch(self.worker.parameters.values())
        if self._compiled and len(self._shapes) < 2:
            self._shapes.add(replay_work.batch_shapes(batch))
        work = self._begin(batch, due)
        look = due or self._calls < 2  # the first one may materialize lazy weights
        before = replay_work.versions(self.worker.module) if look else None
        try:
            result = self.guard.loss_function(self.guard.model, batch)
        except BaseException:
            self._leave_modes()
            raise
        if look:
            self._calls = min(2, self._calls + 1)
            self.writes = replay_work.versions(self.worker.module) != before
        self._computed(work, result)
        return result

    def _forget_dropped(self):
        """No gradient is there any more of what was computed in this step: it was dropped."""
        if self._trained() and all(p.grad is None for p in self.worker.parameters.values()):
            self._works = []

    def _begin(self, batch, due):
        work = self.worker.begin()
        if due:
            model = self.guard.model
            work.batch = replay_work.batch_digest(batch)
            work.follows = any(each.will_sync_module_buffers() for each in model.modules()
                               if replay_work.is_wrapped(each))  # fmt: skip
            work.take_state(self.worker.module)
        return work

    def _computed(self, work, result):
        loss = replay_work.loss_of(result)
        work.loss = loss.detach().clone()
        if loss.requires_grad:
            loss.register_hook(lambda gradient: self._backward_begins(work, gradient))
            self._works.append(work)

    def _backward_begins(self, work, gradient):
        """A hook of the loss. Two losses that begin before any gradient arrives share a backward
        pass, and so does one that begins twice."""
        if self.guard.replaying:
            return
        work.mixed |= work.seed is not None
        work.seed = gradient.detach().clone()
        work.seed_autocast = replay_work.autocast_state(self.worker.device)
        if self._watch is not None:
            before = self._watch.work
            if before is not None and before is not work and not before.gradients:
                before.mixed = work.mixed = True
            self._watch.work = work

    def before_update(self):
        """Findings of the replay that is due, if any."""
        if not self._due():
            return []
        try:
            return self._audit(self.guard.step_number, self._trained(), None) or []
        finally:
            self._leave_modes()

    def _trained(self):
        """The works that a gradient came from."""
        return [work for work in self._works if work.seed is not None]

    def after_update(self):
        """The step is over."""
        self._leave_modes()
        works = self._trained()
        for work in works:
            work.snapshot = work.attributes = work.versions = None
            work.gradients = {}
        if works:
            self._last = (self.guard.step_number, works)
        self._works = []
        return []

    def _leave_modes(self):
        self._modes.close()
        if self._watch is not None:
            self._watch.remove()
            self._watch = None

    def close(self):
        self._leave_modes()
        self._works, self._last = [], (0, [])

    # ---- on demand ------------------------------------------------------------------------------

    def audit_now(self):
        """Findings of a replay of the last batch with the weights as they are, by its owner, too;
        None: nothing was computed yet, or nothing can be replayed. All ranks call it."""
        step, works = self._last
        if self.coverage == "none" or not self.guard.exchange.maximum(len(works)):
            return None
        with contextlib.ExitStack() as stack:
            if self.guard.deterministic:
                stack.enter_context(determinism.algorithms())
            for work in works:
                work.follows = work.mixed = False
                work.take_state(self.worker.module)
            outcome, error = Outcome(obstacle=WRITTEN), ""
            if not self.writes:
                outcome, error = self.attempt(step, self.guard.rank, works)
            for work, batch in zip(works, outcome.batches, strict=False):
                work.batch = batch
            return self._audit(step, works, outcome, error)

    def explain(self, step, rank):
        """A finding that says whether what is not finite in this rank's work comes from its device
        or from data and software; None: that cannot be told. All ranks call it."""
        works = self._trained()
        if self.coverage == "none" or not self.guard.exchange.maximum(len(works)):
            return None
        works = [dataclasses.replace(work, follows=False) for work in works]
        for work in works:
            work.take_state(self.worker.module)
        session = Session(self, step, works, finiteness=True)
        if session.obstacle or session.finding is not None or not session.rows[rank]["works"]:
            return None
        own = (rank, rank, 0, NONFINITE, replay_work.hashed("not finite"))
        replayer = (rank, (rank - self.offset) % self.ranks, 0)
        return session.settle([own, *session.run([replayer])])

    # ---- the replay -----------------------------------------------------------------------------

    def rebuild(self, step, rank, micro, count):
        if self._takes_micro:
            return self.guard.rebuild_batch(step, rank, micro)
        if count > 1:
            raise ValueError(
                f"a step has {count} micro-batches: rebuild_batch(step, rank, micro) is needed"
            )
        return self.guard.rebuild_batch(step, rank)

    def attempt(self, step, owner, works, buffers=None, gradients=None):
        """(outcome, error) of computing the works of a rank here; nothing else changes.
        buffers: for each work what it begins with, or None."""
        outcome = Outcome()
        gradients = self.guard.deterministic if gradients is None else gradients
        worker = self.worker
        if self._watch is not None:
            self._watch.work = None
        self.guard.replaying = True
        try:
            with replay_isolation.undisturbed(worker.module, worker.device) as kept:
                for micro, work in enumerate(works):
                    batch = self.rebuild(step, owner, micro, len(works))
                    outcome.batches.append(replay_work.batch_digest(batch))
                    if buffers is not None and buffers[micro] is not None:
                        replay_work.write_buffers(worker.module, buffers[micro])
                    with replay_isolation.alone(kept, gradients, self._compiled):
                        worker.compute(batch, work, outcome, gradients)
        except replay_work.Refused as refused:
            outcome.obstacle = str(refused)
            return outcome, ""
        except Exception as error:  # told to all ranks; torch's own are of many types
            return outcome, _in_words(error)
        finally:
            self.guard.replaying = False
        return outcome, ""

    def rebuilt(self, step, works):
        """(digests, error) of this rank's own batches."""
        digests = []
        try:
            with replay_isolation.undisturbed(self.worker.module, self.worker.device):
                for micro in range(len(works)):
                    batch = self.rebuild(step, self.guard.rank, micro, len(works))
                    digests.append(replay_work.batch_digest(batch))
        except Exception as error:
            return digests, _in_words(error)
        return digests, ""

    def _audit(self, step, works, own, error=""):
        """Findings; None: nothing could be compared. own: what this rank computed, where that is
        not in its works."""
        session = Session(self, step, works, own=own, error=error)
        finding = session.finding
        if finding is None and not session.obstacle:
            runs = session.own_runs()
            finding = session.settle(runs + session.run(session.replayers()))
        if session.obstacle:
            self._say(f"check 2 compares nothing: {session.obstacle}")
            return None
        if self.guard.deterministic and not session.gradients:
            self._say("check 2 compares losses only: several share one backward pass")
        if finding is not None:
            return [finding]
        self.guard.passed["replay"] = step
        return []
