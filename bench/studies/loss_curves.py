"""Baselines: what is suspicious in the loss curve of a run, without looking at anything else.

A detector gives a curve a score. Each is used twice: with its customary threshold, and with the one
at which just 5 % of the healthy runs are above it, which nobody who has no such runs can know.
"""

import json

import numpy as np
from sklearn.ensemble import IsolationForest
from sklearn.neighbors import LocalOutlierFactor

POINTS = 6  # a shorter curve is not judged
WINDOW = 8


def loss_curve(studio, run):
    """The sum of what loss functions returned in each step of training; of the first process."""
    kept = studio.folder / f"{run.name}.losses.json"
    if kept.exists() and kept.stat().st_mtime > (run / "run.json").stat().st_mtime:
        return json.loads(kept.read_text())
    steps, step, training, process, inside = {}, 0, False, None, 0
    for line in studio.output_of("dump", "--format", "jsonl", run).splitlines():
        if '"role":"loss"' not in line and '"kind":"meta"' not in line:
            continue
        event = json.loads(line)
        process = event["pid"] if process is None else process
        if event["pid"] != process:
            continue
        if event["kind"] == "meta":
            if event["key"] == "step":
                step = event["value"]["value"]
            elif event["key"] == "stage":
                training = event["value"]["value"] == "training"
            continue
        inside += 1 if event["kind"] == "enter" else -1
        if event["kind"] == "exit" and training and inside == 0 and len(event["values"]) > 1:
            returned, item = event["values"][:2]
            if "has_item" in returned.get("flags", ()):
                steps[step] = steps.get(step, 0.0) + float(item["value"])
    curve = [steps[step] for step in sorted(steps)]
    kept.write_text(json.dumps(curve))
    return curve


def spike(curve):
    """How many standard deviations a loss is above those before it, at most."""
    scores = []
    for place in range(4, len(curve)):
        before = curve[max(0, place - WINDOW) : place]
        scores.append((curve[place] - before.mean()) / (before.std() + 1e-12))
    return max(scores)


def trend(curve):
    """The slope over the whole run, in standard deviations of the loss: above 0 is no progress."""
    slope = np.polyfit(np.linspace(0, 1, len(curve)), curve, 1)[0]
    return slope / (curve.std() + 1e-12)


def points(curve):
    """(loss, change of the loss) of each step, standardised."""
    features = np.stack([curve[1:], np.diff(curve)], 1)
    return (features - features.mean(0)) / (features.std(0) + 1e-12)


def local_outlier(curve):
    found = LocalOutlierFactor(n_neighbors=min(10, len(curve) - 2)).fit(points(curve))
    return -found.negative_outlier_factor_.min()


def isolation(curve):
    """0.5 is scikit-learn's own border."""
    forest = IsolationForest(n_estimators=50, random_state=0).fit(points(curve))
    return -forest.score_samples(points(curve)).min()


DETECTORS = {
    "spike": (spike, 3.0),
    "trend": (trend, 0.0),
    "local outlier factor": (local_outlier, 1.5),
    "isolation forest": (isolation, 0.5),
}


def score(detector, curve):
    """Of a curve that is not finite: infinite; of one that is too short: nothing."""
    curve = np.array(curve, dtype=float)
    if len(curve) < POINTS:
        return None
    if not np.isfinite(curve).all():
        return np.inf
    return float(detector(curve))


def measure(curves):
    """{(detector, threshold): {kind: (above it, curves)}}; curves: {kind: [curve]}."""
    table = {}
    for name, (detector, customary) in DETECTORS.items():
        scores = {
            kind: [s for curve in of_kind if (s := score(detector, curve)) is not None]
            for kind, of_kind in curves.items()
        }
        fitted = float(np.quantile(scores["healthy"], 0.95)) if scores["healthy"] else np.inf
        for threshold, text in ((customary, "customary"), (fitted, "for 5 % of healthy")):
            table[name, text] = {
                kind: (sum(s > threshold for s in of_kind), len(of_kind))
                for kind, of_kind in scores.items()
            }
    return table
