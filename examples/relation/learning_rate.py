"""A relation in Python: how the learning rate moves from one update to the next. A schedule that is
resumed at the wrong step, or stepped twice, jumps. Given to tocsin with --relation; README.md shows
how."""

from tocsin.relation import Relation


class LearningRate(Relation):
    name = "learning_rate"
    calls = [{"role": "optimizer.step", "arguments": True}]

    def __init__(self):
        self.last = {}  # (process, optimizer) -> learning rate of its latest update

    def enter(self, at):
        optimizer = (at.process, at.value("self.slot"))
        rate, last = at.value("self.lr"), self.last.get(optimizer)
        self.last[optimizer] = rate
        if not rate or not last:  # a warm-up from 0 begins anywhere
            return
        facts = {
            "has at most twice the learning rate of the one before": rate <= 2 * last,
            "has at least half the learning rate of the one before": rate >= last / 2,
        }
        self.see("update", facts, detail=f"the learning rate went from {last:.3g} to {rate:.3g}")


if __name__ == "__main__":
    LearningRate().main()
