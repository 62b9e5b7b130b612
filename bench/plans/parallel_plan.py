"""Writes a pair of plans, the logical model and its parallel version (docs/formats/plan.md).

    parallel_plan.py LOGICAL PARALLEL --model llama --layers 126 --dp 64 --pp 16 --tp 8 --nm 16

Everything of one training step is in it: forward, backward, pipeline sends, gradient accumulation
and synchronisation, the optimizer. Every operator of every role is listed; only replicas and
micro-batches are symbolic. The sizes of --like are those of published models, but for these: the
vocabulary of 405b is padded so that its shards can be cut into optimizer shards; the attention of
671b is plain multi-head attention, and its experts are computed densely.
"""

import argparse
import dataclasses
import sys

from plan_builder import Config, build_roles, new_plan
from plan_models import build_model
from plan_objects import write_header, write_role

SHAPES = {
    "405b": Config(
        model="llama", layers=126, hidden=16384, heads=128, kv_heads=8, ffn=53248, vocab=131072,
        seq=8192, batch=1, dp=64, pp=16, tp=8, nm=16, zero=1),
    "671b": Config(
        model="moe", layers=61, hidden=7168, heads=128, kv_heads=128, head_dim=128, ffn=2048,
        vocab=129280, seq=4096, batch=1, experts=256, top_k=8, dense_layers=3, dp=32, pp=8, tp=8,
        nm=16, zero=1),
}  # fmt: skip


def declare_groups(config, plan):
    """The header names all groups, but roles are written one at a time: dry-run each stage of a
    model with few layers, which meets the same groups."""
    small = dataclasses.replace(config, layers=config.pp, dense_layers=config.layers)
    for _ in build_roles(small, plan, build_model):
        pass


def build_plan(config):
    """The whole plan in memory."""
    plan = new_plan(config)
    plan.roles = list(build_roles(config, plan, build_model))
    return plan


def build_pair(config):
    return build_plan(config.logical_side()), build_plan(config)


def write_streaming(config, path):
    """Write role by role; returns the number of operators."""
    plan, count = new_plan(config), 0
    declare_groups(config, plan)
    with open(path, "w", encoding="utf-8") as stream:
        write_header(plan, stream)
        for role in build_roles(config, plan, build_model):
            write_role(plan, role, stream)
            count += sum(map(len, role.segments.values()))
    return count


def parse_arguments(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logical")
    parser.add_argument("parallel")
    parser.add_argument("--like", choices=sorted(SHAPES), help="the shape of a published model")
    for field in dataclasses.fields(Config):
        if field.name == "logical":
            continue
        option = "--" + field.name.replace("_", "-")
        if field.type in (bool, "bool"):
            parser.add_argument(option, action=argparse.BooleanOptionalAction)
        else:
            parser.add_argument(option, type={"int": int, "str": str}.get(field.type, field.type))
    options = parser.parse_args(arguments)
    if options.zero not in (None, 0, 1, 3):
        parser.error("--zero: 0, 1 (optimizer states) or 3 (parameters too)")
    return options


def main():
    args = vars(parse_arguments())
    given = {name: value for name, value in args.items()
             if value is not None and name not in ("logical", "parallel", "like")}  # fmt: skip
    config = dataclasses.replace(SHAPES.get(args["like"], Config()), **given)
    logical = write_streaming(config.logical_side(), args["logical"])
    parallel = write_streaming(config, args["parallel"])
    print(f"{args['logical']}: {logical} operators; {args['parallel']}: {parallel} operators")
    return 0


if __name__ == "__main__":
    sys.exit(main())
