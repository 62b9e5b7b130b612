"""What Tocsin says in somebody else's process: lines on stderr."""

import sys


def say(text):
    """A line, in one write: ranks that share stderr do not mix theirs. Nothing where it is gone."""
    stream = sys.stderr
    if stream is not None:
        try:
            stream.write(f"tocsin: {text}\n")
            stream.flush()
        except Exception:
            pass  # closed, or an object of the user's
