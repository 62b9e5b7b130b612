"""Which of the corpus' mistakes are found, by how many programs invariants are learned from."""

import random

from run_corpus import judge_case

INPUTS = (1, 2, 3, 5, 8)


def found_cases(cases, reports, invariants):
    """The ids of bugs whose cause is among the findings, in time."""
    return {
        case["id"]
        for name, case in cases.items()
        if name in reports and judge_case(case, reports[name].of(invariants))["found"]
    }


def learn_inputs(court, title, pool, draws):
    """Sets of 1, 2, ... programs of the pool {name: runs}: {inputs: names of sets}."""
    sets = {}
    for inputs in INPUTS:
        chance = random.Random(f"{title} {inputs}")
        for draw in range(draws if inputs <= len(pool) else 0):
            drawn = chance.sample(sorted(pool), inputs)
            name = f"{inputs} of {title}, draw {draw}"
            court.learn(name, [chance.choice(pool[program]) for program in drawn])
            sets.setdefault(inputs, []).append(name)
    return sets
