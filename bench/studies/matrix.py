"""False alarms: on which healthy runs are invariants violated that were learned from others."""

import random
from dataclasses import dataclass

from studies.verdicts import Rates

INPUTS = (2, 3, 5)


@dataclass
class Trial:
    """A set of invariants and the runs it is tried on."""

    row: str
    learned: str
    tried: list


def plan_within(court, healthy):
    """Two seeds of a program on its others, for each pair of neighbours."""
    for program, runs in healthy.items():
        for first in range(len(runs)):
            pair = [runs[first], runs[(first + 1) % len(runs)]]
            name = f"{program.name}, seeds {first} and {(first + 1) % len(runs)}"
            court.learn(name, pair)
            yield Trial("within", name, [run for run in runs if run not in pair])


def plan_configurations(healthy, varied):
    """Two seeds of a program as it is, on the same with another configuration."""
    for program, runs in varied.items():
        if len(healthy[program]) > 1:
            yield Trial("cross-configuration", f"{program.name}, seeds 0 and 1", runs)


def draw_trials(court, row, inputs, pool, tried, draws):
    """Sets of one run each of `inputs` programs of the pool, on the runs of all others.

    pool   {program: its runs}; tried: {program: its runs}
    """
    chance = random.Random(f"{row} {inputs}")
    if len(pool) <= inputs:
        return
    for draw in range(draws):
        drawn = chance.sample(sorted(pool), inputs)
        name = f"{row}, {inputs} inputs, draw {draw}"
        court.learn(name, [chance.choice(pool[program]) for program in drawn])
        others = [run for program, runs in tried.items() if program not in drawn for run in runs]
        yield Trial(f"{row}, {inputs} inputs", name, others)


def plan_matrix(court, healthy, varied, corpus, draws):
    """All trials. healthy, varied: {Program: runs}; corpus: runs of {references, twins} by name."""
    trials = list(plan_within(court, healthy)) + list(plan_configurations(healthy, varied))
    by_name = {program.name: runs for program, runs in healthy.items()}
    groups = {}
    for program, runs in healthy.items():
        groups.setdefault(program.group, {})[program.name] = runs
    inputs_of_all = {**by_name, **{name: [run] for name, run in corpus["reference"].items()}}
    everything = {**inputs_of_all, **{name: [run] for name, run in corpus["healthy"].items()}}
    for inputs in INPUTS:
        trials += draw_trials(court, "cross-program", inputs, inputs_of_all, everything, 3 * draws)
        for group, members in sorted(groups.items()):
            row = "cross-program, one class"
            for trial in draw_trials(court, f"{row} {group}", inputs, members, members, draws):
                trial.row = f"{row}, {inputs} inputs"
                trials.append(trial)
            others = {n: r for n, r in by_name.items() if n not in members}
            for trial in draw_trials(court, f"from {group}", inputs, members, others, draws):
                trial.row = f"cross-class, {inputs} inputs"
                trials.append(trial)
    return trials


def judge(court, trials, non_trivial):
    """{row: Rates}, and {(code, sentence): {run name: number of sets}}."""
    rates, alarms = {}, {}
    for trial in trials:
        invariants = court.sets[trial.learned]
        for run in trial.tried:
            report = court.reports[run]
            rates.setdefault(trial.row, Rates()).add(invariants, report, non_trivial)
            for finding in report.of(invariants & report.violated):
                key = (finding["code"], finding["invariant"], finding["sentence"])
                runs = alarms.setdefault(key, {})
                runs.setdefault(run.name, []).append(trial.row)
    return rates, alarms


# ---- transfer ------------------------------------------------------------------------------------


def transfer(court, healthy, corpus):
    """Of each program's own invariants: to how many other programs they apply, and hold there.

    Returns a list of (invariant, programs where triggered, programs where it held).
    """
    others = {program.name: runs[-1] for program, runs in healthy.items()}
    others.update(corpus["reference"])
    rows = []
    owners = {}
    for program in healthy:
        for invariant in court.sets[f"{program.name}, seeds 0 and 1"]:
            owners.setdefault(invariant, set()).add(program.name)
    for invariant, own in sorted(owners.items()):
        reports = [court.reports[run] for name, run in others.items() if name not in own]
        triggered = [report for report in reports if invariant in report.judged]
        held = sum(invariant not in report.violated for report in triggered)
        rows.append((invariant, len(own) + len(triggered), len(own) + held))
    return rows
