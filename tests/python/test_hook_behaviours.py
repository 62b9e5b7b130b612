"""Hooking everything changes nothing that a program can notice: the 86 behaviours of
behaviour_*.py, each the same in a process where nothing is hooked and in two where everything
is."""

import json
import os
import re
import subprocess
import sys

import pytest

SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "hook_behaviours.py")


def _run(mode):
    process = subprocess.run(
        [sys.executable, SCRIPT, mode], capture_output=True, text=True, timeout=600
    )
    assert process.returncode == 0, process.stderr[-2000:]
    return json.loads(process.stdout), process.stderr


@pytest.fixture(scope="module")
def results():
    return {mode: _run(mode) for mode in ("plain", "off", "on")}


def _names():
    folder = os.path.dirname(SCRIPT)
    names = []
    for part in ("identity", "torch", "calls"):
        with open(os.path.join(folder, f"behaviour_{part}.py"), encoding="utf-8") as file:
            names += re.findall(r"^@check\ndef (\w+)", file.read(), re.MULTILINE)
    return names


@pytest.mark.parametrize("name", _names())
def test_behaviour(results, name):
    plain = results["plain"][0][name]
    assert not str(plain).startswith("raised "), plain
    assert results["off"][0][name] == plain
    assert results["on"][0][name] == plain


def test_same_warnings_on_stderr(results):
    assert results["off"][1] == results["plain"][1]
    assert results["on"][1] == results["plain"][1]


def test_calls_were_observed(results):
    assert results["on"][0]["calls observed"] > 1000
