"""One replay: what the ranks tell each other, in rounds that all of them make alike.

First each tells what its work began with and what came out; then who replays computes, and tells;
then whoever lib/guard still asks for, until it asks for nothing more.
"""

import json
import struct

from tocsin import _core
from tocsin.guard import replay_work
from tocsin.guard.replay_work import Outcome, Work

NONFINITE = 1  # TOCSIN_GUARD_RUN_NONFINITE
WRITTEN = ("weights were written to since a forward pass began, so a replay would begin with "
           "others: an optimizer that steps inside backward, or a forward pass that changes "
           "weights")  # fmt: skip
_RUN = struct.Struct("=IIII24s")  # tocsin_guard_run


def _waves(requests):
    """In parts in which each executor has one run: nobody waits for longer than a step takes."""
    waves, counts = [], {}
    for request in requests:
        number = counts[request[1]] = counts.get(request[1], -1) + 1
        if number == len(waves):
            waves.append([])
        waves[number].append(request)
    return waves


class Session:
    """check: a ReplayCheck; works: of this rank in that step; finiteness: compared is only whether
    loss and gradients are finite; own: this rank's outcome, where it is not what its works hold;
    error: why there is none.

    finding: once it is there, nothing more is run. obstacle: why nothing can be compared, or "".
    """

    def __init__(self, check, step, works, finiteness=False, own=None, error=""):
        self.check, self.guard, self.step = check, check.guard, step
        self.finiteness, self.ranks = finiteness, check.ranks
        self.finding, self.obstacle = None, ""
        self.gradients = finiteness or check.guard.deterministic  # computed again, too
        self._works = works
        self._said = []  # of all runs: what their executors told
        rebuilt, error = self._rebuilt(own, error)
        self.rows = self.guard.exchange.gather_objects({
            "works": [work.row() for work in works], "rebuilt": rebuilt, "error": error,
            "shapes": check.shapes(), "obstacle": self._own_obstacle(own),
        })  # fmt: skip
        if not finiteness and any(work["mixed"] for row in self.rows for work in row["works"]):
            self.gradients = False
        states = json.dumps([replay_work.states_as_json(work.generators) for work in works])
        self._states = self.guard.exchange.gather_bytes(states.encode())  # few are looked at
        self._own = self._recorded() if own is None else own
        self._kept = {(self.guard.rank, 0): self._own}  # (owner, attempt) -> outcome, of this rank
        self._find_obstacle()
        if not self.obstacle:
            self._look_at_inputs()
            self._snapshots = self._gather_buffers()

    # ---- what the ranks begin with --------------------------------------------------------------

    def _rebuilt(self, own, error):
        """Digests of the batches that this rank rebuilds for itself."""
        if own is not None:
            return own.batches, error
        if not all(work.batch for work in self._works):
            return [], error
        return self.check.rebuilt(self.step, self._works)

    def _own_obstacle(self, own):
        """Why what this rank did in the step cannot be done again, or ""."""
        if own is not None and own.obstacle:
            return own.obstacle
        now = replay_work.versions(self.check.worker.module)
        if not self.check.writes and all(work.versions in (None, now) for work in self._works):
            return ""
        return WRITTEN

    def _recorded(self):
        """The outcome that the works hold."""
        count = len(self.check.worker.parameters)
        return Outcome(
            [replay_work.bits(work.loss) for work in self._works],
            [replay_work.gradient_digests(work, count) for work in self._works]
            if self.gradients else [],
        )  # fmt: skip

    def _find_obstacle(self):
        idle = [rank for rank, row in enumerate(self.rows) if not row["works"]]
        self.obstacle = next(filter(None, (row["obstacle"] for row in self.rows)), "")
        if self.obstacle:
            return
        if len(idle) == self.ranks:
            self.obstacle = "guard.compute_loss and a backward pass came before no update"
        elif len({shape for row in self.rows for shape in row["shapes"]}) > 1:
            self.obstacle = (
                "the model is compiled and its batches vary in shape: each rank's history decides "
                "which kernels it has"
            )

    def _look_at_inputs(self):
        for rank, row in enumerate(self.rows):
            if row["error"]:
                text = f"rank {rank} could not compute its own batch again: {row['error']}"
                self._find("software", text, {"error": row["error"]})
                return
            for micro, (work, digest) in enumerate(zip(row["works"], row["rebuilt"], strict=False)):
                if work["batch"] != digest:
                    self._find("data", f"rebuild_batch gives rank {rank} another batch of step "
                               f"{self.step} than it computed with", {"owner": rank,
                               "micro_batch": micro, "given": work["batch"],
                               "rebuilt": digest})  # fmt: skip
                    return

    def _gather_buffers(self):
        """For each micro-batch that may begin with other buffers than the one before left: None if
        all ranks had the same ones, else the bytes of each rank's."""
        gathered = {}
        for micro in range(max(len(row["works"]) for row in self.rows)):
            works = [row["works"][micro] for row in self.rows if micro < len(row["works"])]
            if micro > 0 and not any(work["follows"] for work in works):
                continue
            if len({work["buffers"] for work in works}) > 1:
                mine = self._works[micro].snapshot if micro < len(self._works) else []
                gathered[micro] = self.guard.exchange.gather_bytes(replay_work.packed(mine))
        return gathered

    def _buffers_of(self, owner):
        """For each work of a rank the buffers to begin with; None: those that are there."""
        found = []
        for micro, work in enumerate(self.rows[owner]["works"]):
            if micro > 0 and not work["follows"]:
                found.append(None)
            elif micro in self._snapshots:
                source = 0 if work["follows"] and micro < len(self.rows[0]["works"]) else owner
                form = replay_work.influential_buffers(self.check.worker.module)
                found.append(replay_work.unpacked(self._snapshots[micro][source], form))
            else:
                found.append(self._works[micro].snapshot if micro < len(self._works) else None)
        return found

    def _works_of(self, owner):
        """A rank's works as this rank computes them. Autocast and the attributes of modules are its
        own: all run one program."""
        works = []
        states = json.loads(self._states[owner])
        for micro, row in enumerate(self.rows[owner]["works"]):
            work = self.check.worker.begin()
            if self._works:
                mine = self._works[min(micro, len(self._works) - 1)]
                work.autocast, work.seed_autocast = mine.autocast, mine.seed_autocast
                work.attributes = mine.attributes
            work.generators = replay_work.states_from_json(states[micro])
            work.seed = replay_work.from_bits(row["seed"])
            works.append(work)
        return works

    # ---- rounds ---------------------------------------------------------------------------------

    def own_runs(self):
        """The results that the owners began with."""
        rank = self.guard.rank
        return self._exchanged([self._told(rank, 0, self._own)] if self._works else [])

    def replayers(self):
        """(owner, executor, attempt) of the ring."""
        return [(owner, (owner - self.check.offset) % self.ranks, 0)
                for owner in range(self.ranks) if self.rows[owner]["works"]]  # fmt: skip

    def run(self, requests):
        """Have (owner, executor, attempt) computed. Returns the runs, the same on all ranks."""
        mine = []
        for owner, executor, attempt in requests:
            if executor != self.guard.rank:
                continue
            outcome, error = self.check.attempt(
                self.step, owner, self._works_of(owner), self._buffers_of(owner), self.gradients
            )
            self._kept[owner, attempt] = outcome
            mine.append(self._told(owner, attempt, outcome, error))
        return self._exchanged(mine)

    def _told(self, owner, attempt, outcome, error=""):
        """What all ranks are told of a run. Equal results have equal labels."""
        label = outcome.digest()
        if self.finiteness:
            label = replay_work.hashed("finite" if outcome.finite else "not finite")
        return {"owner": owner, "executor": self.guard.rank, "attempt": attempt, "error": error,
                "obstacle": outcome.obstacle, "label": label.hex(), "finite": outcome.finite,
                "batches": outcome.batches,
                "losses": [replay_work.value_text(loss) for loss in outcome.losses]}  # fmt: skip

    def _exchanged(self, mine):
        told = [each for row in self.guard.exchange.gather_objects(mine) for each in row]
        for each in told:
            self._look_at(each)
        self._said += told
        return [
            (each["owner"], each["executor"], each["attempt"],
             NONFINITE if self.finiteness and not each["finite"] else 0,
             bytes.fromhex(each["label"]))
            for each in told
        ]  # fmt: skip

    def _look_at(self, each):
        if self.finding is not None or self.obstacle:
            return
        self.obstacle = each["obstacle"]
        owner, executor = each["owner"], each["executor"]
        if each["error"]:
            self._find("software", f"rank {executor} could not compute step {self.step} of rank "
                       f"{owner} again: {each['error']}", {"error": each["error"]})  # fmt: skip
            return
        for micro, batch in enumerate(each["batches"]):
            given = self.rows[owner]["works"][micro]["batch"]
            if given and batch != given:
                evidence = {"owner": owner, "executor": executor, "micro_batch": micro}
                self._find("data", f"rebuild_batch gives rank {executor} another batch of step "
                           f"{self.step} of rank {owner} than rank {owner} computed with",
                           evidence)  # fmt: skip
                return

    def settle(self, runs):
        """The finding that the runs and all that they ask for lead to, or None."""
        while self.finding is None and not self.obstacle:
            rows = self._rows(runs)
            requests = _core.guard_replay_requests(rows, self.ranks)
            if not requests:
                return self._judge(rows, runs)
            for wave in _waves(requests):
                runs = runs + self.run(wave)
        return self.finding

    def _rows(self, runs):
        return b"".join(_RUN.pack(*run) for run in runs)

    # ---- findings -------------------------------------------------------------------------------

    def _moment(self):
        return {"step": self.step, "passed": self.guard.passed_step("replay")}

    def _find(self, cause, text, evidence):
        self.finding = _core.guard_finding(
            "replay", cause, text, replicas=self.ranks, evidence=json.dumps(evidence),
            **self._moment(),
        )  # fmt: skip

    def _judge(self, rows, runs):
        finding = _core.guard_replay_judge(rows, self.ranks, **self._moment())
        if finding is None:
            return None
        compared = "loss and gradients" if self.gradients else "loss"
        finding["evidence"] = {**finding["evidence"], "told": self._said,
                               "compared": f"finiteness of {compared}" if self.finiteness
                               else compared}  # fmt: skip
        different = self._first_difference(runs)
        if different is not None:
            finding["tensor"], where = different
            finding["text"] = f"{finding['text']} ({where})"
        return finding

    def _first_difference(self, runs):
        """(name of a tensor or "", sentence) of what differs first in a batch with two results."""
        first = {}
        for owner, executor, attempt, _, label in runs:
            if label != first.setdefault(owner, (executor, attempt, label))[2]:
                return self._difference(owner, first[owner][:2], (executor, attempt))
        return None

    def _difference(self, owner, one, other):
        mine = {}
        for which, (executor, attempt) in enumerate((one, other)):
            if executor == self.guard.rank:
                outcome = self._kept[owner, attempt]
                gradients = [[each.hex() for each in work] for work in outcome.gradients]
                mine[which] = [outcome.losses, gradients]
        told = {key: value for row in self.guard.exchange.gather_objects(mine)
                for key, value in row.items()}  # fmt: skip
        (losses, gradients), (other_losses, other_gradients) = told["0"], told["1"]
        for micro, pair in enumerate(zip(losses, other_losses, strict=False)):
            if pair[0] != pair[1]:
                texts = [replay_work.value_text(each) for each in pair]
                return "", (f"loss of rank {owner}'s micro-batch {micro}: {texts[0]} on rank "
                            f"{one[0]}, {texts[1]} on rank {other[0]}")  # fmt: skip
        names = list(self.check.worker.parameters)
        for micro, pair in enumerate(zip(gradients, other_gradients, strict=False)):
            for name, left, right in zip(names, *pair, strict=False):
                if left != right:
                    return name, (f"equal losses; of rank {owner}'s micro-batch {micro} the "
                                  f"gradient of {name}")  # fmt: skip
        return None
