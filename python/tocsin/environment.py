"""`python -m tocsin.environment`: prints the audit of determinism.py. `tocsin env` runs it."""

import json
import sys

from tocsin import command, determinism


def main():
    parser = command.Parser(
        prog="tocsin env",
        description="Say what must be fixed so that two runs compute the same bits, and is not. "
        "Exit status: 0 all is fixed, 1 something is not.",
    )
    parser.add_argument("--gpu", action="store_true", help="also what only GPUs need")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    options = parser.parse_args()
    try:
        import torch  # noqa: F401
    except ImportError:
        print("tocsin: torch is not there: only the environment is looked at", file=sys.stderr)
    found = determinism.audit(gpu=True if options.gpu else None)
    fixed = all(state == determinism.OK for _, state, *_ in found)
    if options.format == "json":
        members = [dict(zip(("name", "state", "value", "reason"), entry)) for entry in found]
        print(json.dumps({"schema": 1, "fixed": fixed, "settings": members}))
    else:
        width = max(len(name) for name, *_ in found)
        for name, state, value, reason in found:
            print(f"{state:10}  {name:{width}}  {value or '-'}  ({reason})")
    return 0 if fixed else 1


if __name__ == "__main__":
    command.run(main)
