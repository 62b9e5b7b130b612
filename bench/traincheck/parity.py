"""Of TrainCheck's invariants that survive a hold-out run, how many does `tocsin infer --wide` find?

Both infer from the same run A. TrainCheck's own checker judges its invariants on another run B:
those that it judged there and did not see violated survive. Each is put into Tocsin's form by
`tocsin merge`, as `check -i` would, and counts as found when

  - the wide set has an invariant of the same population and fact (a precondition that Tocsin
    learned is the weakest safe one: on A it holds wherever theirs is right), and
  - on B it is judged at least as often as theirs in Tocsin's form, and never violated.

"F calls G with arguments" becomes one invariant an argument; all of them must be found. TrainCheck
names arguments by the function's signature, its records by their place: the signature is looked up
as TrainCheck does.
"""

import collections
import importlib
import inspect
import json
import subprocess


def records(path):
    """The objects in one of the checker's logs, which has them one after another."""
    text, at, found = path.read_text(encoding="utf-8"), 0, []
    decoder = json.JSONDecoder()
    while at < len(text):
        if text[at].isspace():
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        found.append(value)
    return found


def survivors(verdicts):
    return [record["invariant"] for record in records(verdicts / "passed.log")]


# ---- their invariants in our form --------------------------------------------------------------


def signature_of(name):
    parts = name.split(".")
    for split in range(len(parts) - 1, 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:split]))
        except ImportError:
            continue
        try:
            for part in parts[split:]:
                found = getattr(found, part)
            return list(inspect.signature(found).parameters)
        except (AttributeError, TypeError, ValueError):
            return None
    return None


def places_of(function, argument):
    """How the imported call may name the argument: by keyword, or by its place."""
    names = signature_of(function) or []
    places = [argument]
    if argument in names:
        places.append("self" if argument == "self" else f"arg{names.index(argument)}")
    return places


def arguments_of(invariant):
    if invariant["relation"] != "APIContainRelation":
        return {}
    return (invariant["params"][1].get("arguments") or {}).get("args", {})


def variants(invariant):
    """What must be found: groups of alternatives, each an invariant of TrainCheck's."""
    arguments = arguments_of(invariant)
    if not arguments:
        return [[invariant]]
    groups = []
    child = invariant["params"][1]
    for name, value in arguments.items():
        group = []
        for place in places_of(child["api_full_name"], name):
            arguments = {"args": {place: value}, "func_name": child["api_full_name"]}
            params = [invariant["params"][0], dict(child, arguments=arguments)]
            group.append(dict(invariant, params=params))
        groups.append(group)
    return groups


def translate(tocsin, invariants, work):
    """For each of them ours, or the reason why there is none."""
    result = [None] * len(invariants)
    left = list(range(len(invariants)))
    while left:  # equal ones are merged: those without an answer go again
        source, target = work / "theirs.json", work / "theirs.jsonl"
        with open(source, "w", encoding="utf-8") as file:
            for index in left:  # the number of examples is kept: it tells which one this is
                tagged = dict(invariants[index], num_positive_examples=index + 1)
                file.write(json.dumps(tagged) + "\n")
        done = subprocess.run([tocsin, "merge", "-f", source, "-o", target], capture_output=True,
                              text=True, check=False)
        answered = set()
        for line in done.stderr.splitlines():
            if f"not judged: {source}:" in line:
                place, why = line.split(f"{source}:", 1)[1].split(":", 1)
                index = left[int(place) - 1]
                result[index] = why.rsplit(": ", 1)[-1]
                answered.add(index)
        if target.exists():
            for ours in read_set(target):
                index = ours["support"]["instances"] - 1
                result[index] = ours
                answered.add(index)
            target.unlink()
        if not answered:
            raise RuntimeError(f"tocsin merge says nothing: {done.stderr[-1000:]}")
        left = [index for index in left if index not in answered]
    return result


# ---- both --------------------------------------------------------------------------------------


def read_set(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file][1:]


def claim(invariant):
    return json.dumps([invariant["population"], invariant["fact"]], sort_keys=True)


def judged_on(tocsin, invariants, run):
    """How often each file's invariants were judged and violated on a run, by id."""
    command = [tocsin, "check", "-q", "-i", invariants, run, "--format", "json", "--counts"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return {found["id"]: found for found in json.loads(done.stdout)["invariants"]}


def write_set(path, invariants):
    with open(path, "w", encoding="utf-8") as file:
        file.write('{"format":"tocsin-invariants","version":1}\n')
        for invariant in invariants:
            file.write(json.dumps(invariant) + "\n")


def verdict_on(theirs, ours, counts):
    """Why one of theirs, in our form, is not found; None: it is."""
    if isinstance(theirs, str):
        return f"not translated: {theirs}"
    if ours is None:
        return "not learned"
    held = counts.get(ours["id"], {"judged": 0, "violated": 0})
    if held["violated"] > 0:
        return "ours is violated on the hold-out run"
    if held["judged"] < counts.get(theirs["id"], {"judged": 0})["judged"]:
        return "ours is judged less often on the hold-out run"
    return None


def kind_of(invariant):
    relation = invariant["relation"].removesuffix("Relation")
    if relation != "APIContain":
        return relation
    child = invariant["params"][1]
    if child["param_type"] != "APIParam":
        return "APIContain (change)"
    return "APIContain (arguments)" if arguments_of(invariant) else "APIContain (call)"


def compare(tocsin, verdicts, wide, held, work):
    """Counts by kind (survivors, found), what is missing as (kind, text, why), how many there are
    of ours, and how many of them survive. `wide`: ours of A; `held`: run B, imported."""
    kept = survivors(verdicts)
    groups = [(index, alternatives) for index, invariant in enumerate(kept)
              for alternatives in variants(invariant)]
    flat = [one for _, alternatives in groups for one in alternatives]
    translated = iter(translate(tocsin, flat, work))
    ours = {claim(invariant): invariant for invariant in read_set(wide)}
    asked, pairs = {}, []
    for index, alternatives in groups:
        forms = [next(translated) for _ in alternatives]
        pairs.append((index, [(form, ours.get(claim(form)) if isinstance(form, dict) else None)
                              for form in forms]))
        for form, mine in pairs[-1][1]:
            asked.update({one["id"]: one for one in (form, mine) if isinstance(one, dict)})
    write_set(work / "asked.jsonl", asked.values())
    counts = judged_on(tocsin, work / "asked.jsonl", held)
    reasons = collections.defaultdict(list)
    for index, forms in pairs:
        whys = [verdict_on(form, mine, counts) for form, mine in forms]
        if None not in whys:
            reasons[index].append(whys[-1])
    table = collections.defaultdict(lambda: [0, 0])
    missing = []
    for index, invariant in enumerate(kept):
        table[kind_of(invariant)][0] += 1
        table[kind_of(invariant)][1] += index not in reasons
        if index in reasons:
            missing.append((kind_of(invariant), invariant["text_description"], reasons[index][0]))
    all_counts = judged_on(tocsin, wide, held)
    surviving = sum(1 for one in all_counts.values() if one["judged"] and not one["violated"])
    return dict(table), missing, len(ours), surviving
