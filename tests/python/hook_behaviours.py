"""What a program can notice about torch: printed as JSON, one entry per behaviour.

Run by test_hook_behaviours.py in three processes: nothing hooked, everything hooked and not
observed, everything hooked and observed. All three must print the same.

    python hook_behaviours.py plain|off|on
"""

import json
import sys

import behaviour_identity  # noqa: F401  each of the three adds its checks
import behaviour_torch  # noqa: F401
import behaviour_calls  # noqa: F401  isort: skip
import torch
from behaviour_stage import CHECKS


def main(mode):
    if mode != "plain":
        from tocsin import _core, targets

        targets.install()
        if mode == "on":
            _core.count(True)
    results = {}
    for name, function in CHECKS.items():
        torch.manual_seed(0)
        try:
            results[name] = function()
        except BaseException as error:
            results[name] = f"raised {type(error).__name__}: {error}"
    if mode == "on":
        _core.count(False)
        results["calls observed"] = sum(calls for calls, _ in _core.counts().values())
    json.dump(results, sys.stdout, default=str)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1])
