"""`python -m tocsin.plan export SCRIPT:build ...`: what `tocsin plan export` runs."""

from __future__ import annotations

import argparse
import os
import sys

from tocsin import command


def _axes(words: str) -> dict[str, int]:
    axes = {}
    for part in words.split(","):
        name, _, size = part.partition("=")
        if not name.isidentifier() or not size.isdigit() or int(size) < 1 or name in axes:
            raise argparse.ArgumentTypeError(f"'{part}' is not NAME=SIZE")
        axes[name] = int(size)
    return axes


def _argument(words: str) -> tuple[str, object]:
    name, equals, value = words.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"'{words}' is not NAME=VALUE")
    return name, int(value) if value.lstrip("-").isdigit() else value


def _parser() -> argparse.ArgumentParser:
    parser = command.Parser(prog="tocsin plan", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    export = commands.add_parser("export", help="trace a script's training step into .plan files")
    export.add_argument("script", metavar="SCRIPT:FUNCTION",
                        help="a Python file and its function build(mesh)")
    export.add_argument("--mesh", type=_axes, metavar="NAME=SIZE,...",
                        help="axes of the device mesh, outermost first: dp=2,tp=2")
    export.add_argument("--replica", metavar="NAME", default="dp",
                        help="the axis whose ranks do alike (default dp; none: every rank its own)")
    export.add_argument("-o", "--output", metavar="FILE", help="write the parallel plan here")
    export.add_argument("--logical", metavar="FILE", help="write the logical model's plan here")
    export.add_argument("--arg", type=_argument, action="append", default=[], metavar="NAME=VALUE",
                        help="an argument of build() for the parallel plan alone")
    return parser


def _write(path: str, plan: str) -> None:
    if path == "-":
        sys.stdout.write(plan)
        return
    with open(path + ".part", "w", encoding="utf-8") as file:
        file.write(plan)
    os.replace(path + ".part", path)


def main(words: list[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(words)
    script, _, build = options.script.rpartition(":")
    if not script or not build.isidentifier():
        parser.error("SCRIPT:FUNCTION is needed, such as train.py:build")
    if not os.path.isfile(script):
        parser.error(f"{script}: no such file")
    if not options.output and not options.logical:
        parser.error("nothing to write: give --output or --logical")
    if options.output and not options.mesh:
        parser.error("--output needs --mesh")
    from .capture import ExportError
    from .export import export

    try:
        if options.logical:
            _write(options.logical, export(script, build, {}, None, None))
        if options.output:
            replica = options.replica if options.mesh.get(options.replica, 1) > 1 else None
            plan = export(script, build, dict(options.arg), options.mesh, replica)
            _write(options.output, plan)
    except ExportError as error:
        command.fail(error)
        return command.INPUT
    return 0


if __name__ == "__main__":
    command.run(main)
