"""What modules are, attributes that they gain, parameters registered anew, groups without any."""

import os
import unittest

from recording import recorded

TRAIN = """
    from torch import nn

    class Own(nn.Linear):
        def train(self, mode=True):
            super().train(mode)
            return self

    class Further(Own):
        pass

    model = nn.Sequential(Own(2, 2), Further(2, 2), nn.LayerNorm(2)).eval()
    late = Own(2, 2)
    optimizer = torch.optim.AdamW([{"params": list(model.parameters())},
                                   {"params": [], "weight_decay": 0.0}])
    def step(module):
        module(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    model[0].weight = nn.Parameter(model[0].weight.data)   # no step has named it yet
    step(model)
    model[0].note = 1
    model[0].bias.requires_grad_(False)
    model[0].bias = nn.Parameter(model[0].bias.data)
    model[1].bias = model[1].bias                          # the same object
    model[1].weight = nn.Parameter(torch.ones(2, 2))       # other memory
    step(model)
    step(nn.Sequential(model, late))
"""


def values(event):
    return {value["name"]: value.get("value") for value in event.get("values", ())}


class Modules(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.process = recorded(TRAIN).process

    def said(self, kind):
        return [(e["variable"], values(e)) for e in
                self.process.states(variable_kind=kind, attribute="value")]  # fmt: skip

    def test_classes(self):
        classes = [(name, said) for name, said in self.said("attribute")
                   if name.endswith("__class__")]  # fmt: skip
        linear = "torch.nn.modules.linear.Linear"
        first = dict(classes[:4])
        self.assertEqual(first["0.__class__"],
                         {"value": linear, "class": "__main__.Own", "trained": True})  # fmt: skip
        self.assertEqual(first["1.__class__"]["class"], "__main__.Further")
        self.assertEqual(first["2.__class__"],
                         {"value": "torch.nn.modules.normalization.LayerNorm"})  # fmt: skip
        self.assertEqual(len(first), 4)
        later = [said for _, said in classes[4:]]
        self.assertTrue(later)
        self.assertFalse(any("trained" in said for said in later))

    def test_attributes_that_are_new(self):
        seen = [said for name, said in self.said("attribute") if name == "0.note"]
        self.assertEqual(seen, [{"value": 1, "added": True}])

    def test_parameters_registered_anew(self):
        states = self.process.states(variable_kind="parameter", attribute="value")
        self.assertEqual([(e["variable"], values(e), "requires_grad" in e["flags"])
                          for e in states],
                         [("0.bias", {"replaced": True}, False),
                          ("0.bias", {"replaced": False}, True)])  # fmt: skip

    def test_groups(self):
        said = dict(self.said("optimizer_state"))
        self.assertEqual(said["group1#options"]["parameters"], 0)
        self.assertEqual(said["group1#options"]["weight_decay"], 0.0)
        self.assertEqual(said["2.weight#options"]["module"],
                         "torch.nn.modules.normalization.LayerNorm")  # fmt: skip


if __name__ == "__main__":
    os.environ.setdefault("TOCSIN", "tocsin")
    unittest.main()
