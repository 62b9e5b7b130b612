"""A second reader of docs/formats/guard-ledger.md, written from it alone."""

import json

HEADER = {"format": "tocsin-guard-ledger", "version": 1}
CHECKS = {"gradient", "replay", "weights", "collective", "recompute", "saved", "memory",
          "checkpoint", "peer"}  # fmt: skip
FAULTS = {"transient", "persistent"}
CAUSES = FAULTS | {"nondeterministic", "software", "data", "unattributable"}


def read(path):
    """(findings, numbers of damaged lines, is the last line torn)."""
    with open(path, "rb") as file:
        lines = file.read().split(b"\n")
    if json.loads(lines[0]) != HEADER:
        raise ValueError(f"{path}: no ledger of a guard")
    findings, damaged, torn = [], [], False
    for number, line in enumerate(lines[1:], 2):
        if not line:
            continue
        try:
            findings.append(check(json.loads(line)))
        except json.JSONDecodeError:
            last = number == len(lines)
            torn = torn or last
            if not last:
                damaged.append(number)
    return findings, damaged, torn


def check(finding):
    """The finding; ValueError: it is not as the format says."""
    window = finding["suspect_window"]
    if (finding["schema"] != 1 or finding["check"] not in CHECKS
            or finding["cause"] not in CAUSES
            or bool(finding["ranks"]) != (finding["cause"] in FAULTS)
            or finding["ranks"] != sorted(set(finding["ranks"]))
            or not window[0] <= window[1] == finding["step"]
            or any(cover != sorted(set(cover)) for cover in finding["covers"])):  # fmt: skip
        raise ValueError(f"no finding: {finding}")
    return finding
