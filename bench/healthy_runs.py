"""Figures healthy_runs and healthy_findings: examples/demo/healthy.py, with the built command."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

if __name__ == "__main__":
    command = os.environ.get("TOCSIN", str(ROOT / "build/tocsin"))
    script = ROOT / "examples/demo/healthy.py"
    sys.exit(subprocess.call([sys.executable, str(script), "--tocsin", command]))
