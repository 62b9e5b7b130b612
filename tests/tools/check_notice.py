"""check_notice.py SOURCE - tools/tidy, tools/layers and tools/links notice each kind of breach.

For every rule a tree of a few lines that breaks just that rule is made; the tool must fail and say
so, and must accept the same tree without the breach.
"""
import os
import subprocess
import sys
import tempfile

HEAD = "/* a file. */\n"
LONG_FUNCTION = "int f(int a,\n      int b)\n{\n" + "    a += b;\n" * 67 + "}\n"
FITTING_FUNCTION = LONG_FUNCTION.replace("    a += b;\n", "", 1)

# tool, files that break one rule, what the tool says, the files to put right
CASES = [
    ("tidy", {"lib/base/a.c": HEAD + LONG_FUNCTION}, "a.c:2: a function of 71 lines",
     {"lib/base/a.c": HEAD + FITTING_FUNCTION}),
    ("tidy", {"a.py": '"""A."""\ndef f():\n' + "    pass\n" * 70}, "a.py:2: a function of 71 lines",
     {"a.py": '"""A."""\ndef f():\n' + "    pass\n" * 69}),
    ("tidy", {"lib/base/a.c": HEAD + "int a;\n" * 800}, "801 lines",
     {"lib/base/a.c": HEAD + "int a;\n" * 799}),
    ("tidy", {"a.c": HEAD + "/* " + "x" * 98 + "\n*/\n"}, "a.c:2: 101 columns",
     {"a.c": HEAD + "/* " + "x" * 97 + "\n*/\n"}),
    ("tidy", {"a.c": HEAD + "\tint a;\n"}, "a.c:2: a tab", {"a.c": HEAD + "int a;\n"}),
    ("tidy", {"a.md": "text \n"}, "a.md:1: space at the end", {"a.md": "text\n"}),
    ("tidy", {"a.md": "text"}, "no newline at the end", {"a.md": "text\n"}),
    ("tidy", {"a.c": "int a;\n"}, "a.c:1: no comment", {"a.c": HEAD + "int a;\n"}),
    ("tidy", {"base/file_utils.c": HEAD}, "'utils' in a name", {"base/file_utils.c": None}),
    ("tidy", {"a.c": HEAD + "int window_manager;\n"}, "'manager' in 'window_manager'",
     {"a.c": HEAD + "int window; /* no window_manager */\n"}),
    ("tidy", {"a.py": '"""A."""\ndef run_helper():\n    pass\n'}, "'helper' in 'run_helper'",
     {"a.py": '"""A."""\ndef run():\n    pass\n'}),
    ("tidy", {"a.md": "see /wo" "rk/main\n"}, "belongs to one machine", {"a.md": "see\n"}),
    ("tidy", {"a.md": "TO" "DO: more\n"}, "a note to oneself", {"a.md": "more\n"}),
    ("tidy", {"x/one.c": HEAD, "y/one.c": HEAD}, "the name one.c is taken", {"y/one.c": None}),
    ("layers", {"lib/base/a.c": "#include <tensor/tensor.h>\n"}, "base (layer 0) includes tensor",
     {"lib/base/a.c": "#include <base/base.h>\n"}),
    ("layers", {"lib/base/a.c": "#include <tocsin/trace.h>\n"}, "base (layer 0) includes trace",
     {"lib/base/a.c": "#include <tocsin/status.h>\n"}),
    ("layers", {"lib/event/a.c": "#include <tensor/tensor.h>\n"}, "event (layer 1) includes tensor",
     {"lib/event/a.c": "#include <base/base.h>\n"}),
    ("layers", {"lib/trace/a.c": "#include <tensor/walk.h>\n"}, "entered through <tensor/tensor.h>",
     {"lib/trace/a.c": "#include <tensor/tensor.h>\n"}),
    ("layers", {"cli/a.c": "#include <base/base.h>\n"}, "cli includes <tocsin/...> only",
     {"cli/a.c": "#include <tocsin/trace.h>\n"}),
    ("layers", {"include/tocsin/trace.h": "#include <base/base.h>\n"}, "which is not installed",
     {"include/tocsin/trace.h": "#include <tocsin/event.h>\n"}),
    ("layers", {"lib/trace/a.c": "#include <jansson.h>\n"}, "<jansson.h> is included in base only",
     {"lib/trace/a.c": "#include <zstd.h>\n"}),
    ("layers", {"lib/trace/a.c": "#include <curl/curl.h>\n"}, "<curl/curl.h> is unknown",
     {"lib/trace/a.c": "#include <stdio.h>\n"}),
    ("layers", {"lib/attic/a.c": ""}, "lib/attic:1: not a module", {"lib/attic": None}),
    ("links", {"a.md": "see [b](b.md)\n"}, "a.md:1: no such file: b.md", {"b.md": "# B\n"}),
    ("links", {"a.md": "# A\nsee [b](#c)\n"}, "a.md:2: no such heading",
     {"a.md": "# A\n[b](#a)\n"}),
]


def write(root, files):
    for name, text in files.items():
        path = os.path.join(root, name)
        if text is None:
            subprocess.run(["rm", "-r", path], check=True)
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)


def run(source, tool, root):
    done = subprocess.run([sys.executable, os.path.join(source, "tools", tool), root],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check(source, tool, broken, message, repair):
    with tempfile.TemporaryDirectory() as root:
        if tool == "layers":
            with open(os.path.join(source, "tools/layers.txt"), encoding="utf-8") as rules:
                write(root, {"tools/layers.txt": rules.read(), "lib/base/base.h": ""})
        write(root, broken)
        code, output = run(source, tool, root)
        if code != 1 or message not in output:
            return f"{tool} did not say '{message}' but (exit {code}): {output}"
        write(root, repair)
        code, output = run(source, tool, root)
        return None if code == 0 else f"{tool} complains about a good tree: {output}"


def main():
    failures = [what for case in CASES if (what := check(sys.argv[1], *case))]
    print("\n".join(failures) if failures else f"{len(CASES)} breaches noticed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
