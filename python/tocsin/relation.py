"""Relations of your own in Python: docs/extending.md.

A relation is a program that `tocsin infer`, `check` and `run` start with --relation. Subclass
`Relation`, say what it wants to hear of, define the methods that hear it, and call `main()`:

    from tocsin.relation import Relation

    class LearningRate(Relation):
        name = "learning_rate"
        calls = [{"role": "optimizer.step", "arguments": True}]

        def enter(self, at):
            rate = at.value("self.lr")
            self.see("update", {"has a learning rate above 0": rate > 0}, detail=f"it is {rate}")

    if __name__ == "__main__":
        LearningRate().main()

Nothing here imports torch: a relation sees the recording, not the training.
"""

import json
import sys

VERSION = 1
CALLBACKS = ("enter", "leave", "state", "meta", "step", "finish")


class At:
    """What a method is about: a call that begins or is over, a state, the end of a step."""

    def __init__(self, question):
        self.process = question["process"]  # the number of the process, from 0
        self.rank = question["rank"]  # -1: not distributed
        self.step = question["step"]  # the training step, from 1
        self.function = question["function"]  # the innermost open call; "": none
        self.role = question["role"]
        self.completed = question["completed"]  # leave: by return
        self.event = question.get("event")  # as `tocsin dump --format jsonl` prints it; or None

    def value(self, name, default=None):
        """The argument, return or attribute of that name; of a meta variable its value. What is no
        number, text, flag or None is the object that describes it."""
        event = self.event or {}
        values = event.get("values", ())
        if event.get("kind") == "meta" and event["key"] == name:
            values = [{**event["value"], "name": name}]
        for value in values:
            if value["name"] == name and "in_sequence" not in value.get("flags", ()):
                if value["kind"] == "none":
                    return None
                if value["kind"] == "float":  # "nan" and "inf" come as texts
                    return float(value["value"])
                return value["value"] if value["kind"] in ("bool", "int", "string") else value
        return default


class Relation:
    """Of each run there is one; what it remembers are its attributes."""

    name = ""  # in files and findings: a-z, 0-9 and _
    calls = ()  # {"role": R} or {"function": F}, and "arguments": True
    states = ()  # {"role", "moment", "attribute", "variable"}, and "digest": True

    def see(self, subject, facts, fields=None, *, entity=None, detail=None, context=True):
        """There is a `subject`, of which `facts` say what is true: {fact: whether}, or a list of
        those that are. `fields` are what a condition may speak of, beside (unless not `context`)
        those of the call or state at hand. `entity` is the variable or function it is about;
        `detail` is what a finding says when a fact does not hold."""
        true = [fact for fact in facts if not isinstance(facts, dict) or facts[fact]]
        instance = {"subject": subject, "facts": true, "fields": fields or {}, "context": context}
        if entity is not None:
            instance["entity"] = entity
        if detail is not None:
            instance["detail"] = detail
        self._seen.append(instance)

    def _describe(self):
        on = [word for word in CALLBACKS if hasattr(self, word)]
        wants = {"calls": list(self.calls), "states": list(self.states), "on": on}
        return {"relation": self.name, "version": VERSION, **wants}

    def _answer(self, question):
        if "on" not in question:
            return self._describe()
        self._seen = []
        try:
            getattr(self, question["on"])(At(question))
        except Exception as error:  # told to who asked, and raised here for its traceback
            self._error = error
            return {"error": f"{type(error).__name__}: {error}"}
        return self._seen

    def main(self):
        """Answer until there are no more questions."""
        self._error = None
        # What a relation prints is no answer.
        answers, sys.stdout = sys.stdout, sys.stderr
        for line in sys.stdin:
            answers.write(json.dumps(self._answer(json.loads(line)), allow_nan=False) + "\n")
            answers.flush()
            if self._error is not None:
                raise self._error
