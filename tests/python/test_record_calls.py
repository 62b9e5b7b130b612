"""What is said of a call: the names of its arguments and their values."""

from recording import Script


def recorded_user(mine, script):
    """The calls of functions of a user's module `mine`."""
    script = Script(script)
    (script.root / "mine.py").write_text(mine)
    result = script.recorded(TOCSIN_MODULES="mine")
    assert result.returncode == 0, result.stderr
    return result


def values(call):
    return {value["name"]: value.get("value") for value in call["values"]}


def test_positional_arguments_beyond_the_named_ones():
    result = recorded_user(
        "def f(a, *rest, flag=False, **more):\n    return a\n",
        """
        import mine
        mine.f(1)
        mine.f(1, 2, 3, flag=True, depth=4)
        """,
    )
    plain, full = (values(call) for call in result.process.calls("mine.f"))
    assert plain["a"] == 1 and plain.get("flag", False) is False
    assert full == {"a": 1, "arg1": 2, "arg2": 3, "flag": True, "depth": 4}


def test_a_constant_stays_what_it_is_however_many_strings_there_are():
    result = recorded_user(
        "def load(path, how):\n    pass\n",
        """
        import mine
        how = "as " + "is"[:2]
        for index in range(70_000):
            mine.load("%d.jpg" % index, how + "")
        """,
    )
    calls = [values(call) for call in result.process.calls("mine.load")]
    assert {call["how"] for call in calls} == {"as is"}
    assert calls[0]["path"] == "0.jpg" and calls[-1]["path"] != "69999.jpg"


def test_a_class_of_the_users_dies_as_it_would():
    script = Script(
        """
        import gc, weakref
        def use():
            class Net(torch.nn.Module):
                def forward(self, x):
                    return x
            Net()(torch.ones(1))
            return weakref.ref(Net)
        gone = use()
        gc.collect()
        print(gone() is None)
        """
    )
    assert script.recorded().stdout == script.plain().stdout == "True\n"


def test_a_module_with_a_proxy_in_it():
    """What a proxy stands for is not there yet: asking it anything raises."""
    mine = """
class Proxy:
    def __getattr__(self, name):
        raise RuntimeError("too early")
    @property
    def __class__(self):
        raise RuntimeError("too early")
current = Proxy()
def f(a):
    return a
"""
    result = recorded_user(mine, "import mine\nmine.f(1)\n")
    assert result.stderr == "" and len(result.process.calls("mine.f")) == 1


def test_a_warning_at_import_is_about_the_line_that_imports():
    mine = "import warnings\nwarnings.warn('old', DeprecationWarning, stacklevel=2)\n"
    script = Script("import mine\n")
    (script.root / "mine.py").write_text(mine)
    recorded, plain = script.recorded(TOCSIN_MODULES="mine"), script.plain()
    assert "train.py" in plain.stderr and recorded.stderr == plain.stderr


def test_a_daemon_thread_at_the_end():
    result = recorded_user(
        "def f(a):\n    return a\n",
        """
        import threading, time
        import mine
        def work():
            with torch.autocast("cpu", dtype=torch.bfloat16):
                while True:
                    mine.f(1)
        threading.Thread(target=work, daemon=True).start()
        time.sleep(0.2)
        """,
    )
    assert result.stderr == "" and result.process.calls("mine.f")
