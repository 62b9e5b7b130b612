"""A command that is written in Python (`tocsin env`, `tocsin guard verify`, `tocsin plan`) speaks
and ends as those in C do (docs/cli.md): an error is one line, and the exit status means the same.
"""

import argparse
import os
import signal
import sys
import traceback

INPUT, INTERNAL = 2, 4  # exit statuses: cannot be used; out of memory, or a bug


def fail(text):
    """An error, as one line."""
    print(f"tocsin: error: {text}", file=sys.stderr)


class Parser(argparse.ArgumentParser):
    def error(self, message):
        fail(message)
        print(f"hint: {self.prog} --help", file=sys.stderr)
        sys.exit(INPUT)


def run(main):
    """The process is main(): it ends with the status that main returns, or 2 if output got lost."""
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.reconfigure(errors="backslashreplace")
    status = _status_of(main)
    if not _flushed():
        fail("cannot write to the standard output")
        status = status or INPUT
        if sys.stdout is not None:  # which the interpreter flushes once more
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(status)


def _status_of(main):
    try:
        return main()
    except SystemExit as end:  # of argparse
        return end.code or 0
    except KeyboardInterrupt:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except MemoryError:
        fail("out of memory")
    except OSError as error:
        lost = error.errno is not None and error.filename is None  # by print
        if _flushed():  # else that is said
            fail("cannot write to the standard output" if lost else error)
        return INPUT
    except ImportError as error:
        if error.name != "torch":
            raise
        fail(error)
        print("hint: set TOCSIN_PYTHON to the interpreter that has torch", file=sys.stderr)
        return INPUT
    except Exception:
        traceback.print_exc()
    return INTERNAL


def _flushed():
    try:
        sys.stdout.flush()
    except (AttributeError, OSError):  # closed from the start, or full
        return False
    return True
