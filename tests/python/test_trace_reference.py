"""The reader written from docs/formats/trace.md reads the stored traces as the one in C does."""
import json
import os
import shutil
import sys
import unittest

ROOT = os.environ.get("TOCSIN_SOURCE") or os.path.join(os.path.dirname(__file__), "..", "..")
GOLDEN = os.path.join(ROOT, "tests", "golden", "trace")
sys.path.insert(0, os.path.join(ROOT, "tests", "ref"))
sys.dont_write_bytecode = True
import trace_reader  # noqa: E402


class Reference(unittest.TestCase):
    def check(self, name):
        with open(os.path.join(GOLDEN, name + ".jsonl"), encoding="utf-8") as lines:
            expected = [json.loads(line) for line in lines]
        trace = trace_reader.Trace(os.path.join(GOLDEN, name + ".trace"))
        self.assertEqual(list(trace.read()), expected)
        return trace

    def test_stored(self):
        self.assertEqual(self.check("stored").damage, 0)

    @unittest.skipUnless(shutil.which("zstd"), "needs the zstd command")
    def test_compressed(self):
        self.assertEqual(self.check("compressed").damage, 0)

    def test_killed(self):
        self.assertEqual(self.check("killed").damage, 0)

    def test_extended(self):
        """With values of states, memory tags and elements of tensors, all kinds of variables."""
        self.assertEqual(self.check("extended").damage, 0)

    def test_damaged(self):
        self.assertEqual(self.check("damaged").damage, 1)


if __name__ == "__main__":
    unittest.main()
