"""The patch engine on plain Python functions and builtins; needs no torch, runs on CPython 3.10 to
3.13."""

import copy
import gc
import inspect
import pickle
import sys
import threading
import traceback
import types
import warnings
import weakref

import pytest

from tocsin import _core

ON_3_11 = sys.version_info[:2] == (3, 11)


def plain(a, b=2):
    """Add."""
    return a + b


def variadic(a, b=2, *args, c, d=4, **kwargs):
    return a, b, args, c, d, kwargs


def positional_only(a, /, b, *, c=3):
    return a, b, c


def only_keywords(**kwargs):
    return kwargs


def only_args(*args):
    return args


def fails(value):
    raise ValueError(value)


def outer():
    return 1


def inner():
    return 2


def caller_name():
    return sys._getframe(1).f_code.co_name


def warns():
    warnings.warn("look", stacklevel=2)


def recursive(n):
    return 0 if n == 0 else 1 + recursive(n - 1)


def captures_argument(n):
    return [(lambda: n + i)() for i in range(3)]


def make_closure():
    base = 3

    def closure(x):
        def inner():
            return x + base

        return inner

    return closure


def many():
    names = [f"p{i}" for i in range(200)]
    scope = {}
    exec(f"def many_parameters({', '.join(names)}):\n    return p0 + p199\n", scope)
    return scope["many_parameters"]


def generator():
    yield 1


async def coroutine():
    return 1


class Base:
    def method(self, x):
        return "base", x


class Derived(Base):
    def method(self, x):
        return super().method(x), __class__.__name__

    @staticmethod
    def static(x=1):
        return x

    @classmethod
    def of_class(cls, x):
        return cls.__name__, x

    def __call__(self, x):
        return x


@pytest.fixture
def hook():
    """hook(callable) -> index; everything is unhooked and silent again afterwards."""
    indices = []

    def make(target, name="name", role="user", flags=1):
        indices.append(_core.hook(target, name, role, flags))
        return indices[-1]

    _core.counts()
    _core.count(True)
    yield make
    _core.count(False)
    _core.counts()
    for index in indices:
        _core.unhook(index)


def calls(name="name"):
    return _core.counts().get(name, (0, 0))


# ---- the call reaches the function unchanged ------------------------------------------------


CALLS = [
    (plain, (1,), {}),
    (plain, (), {"b": 3, "a": 1}),
    (variadic, (1,), {"c": 3}),
    (variadic, (1, 2, 3, 4), {"c": 5, "z": 6, "y": 7}),
    (variadic, tuple(range(60)), {"c": 0, **{f"k{i}": i for i in range(40)}}),
    (positional_only, (1, 2), {}),
    (positional_only, (1,), {"b": 2, "c": 9}),
    (only_keywords, (), {}),
    (only_keywords, (), {"a": 1, "self": 2}),
    (only_args, (), {}),
    (only_args, tuple(range(30)), {}),
    (captures_argument, (4,), {}),
]


@pytest.mark.parametrize("function, args, kwargs", CALLS)
def test_arguments(hook, function, args, kwargs):
    expected = function(*args, **kwargs)
    hook(function)
    assert function(*args, **kwargs) == expected
    assert calls() == (1, 0)


def test_many_parameters(hook):
    function = many()
    hook(function)
    assert function(*range(200)) == 199
    assert calls() == (1, 0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: plain(),
        lambda: plain(1, 2, 3),
        lambda: plain(1, q=2),
        lambda: variadic(1),
        lambda: positional_only(a=1, b=2),
    ],
)
def test_binding_errors_are_the_same(hook, call):
    with pytest.raises(TypeError) as before:
        call()
    for function in (plain, variadic, positional_only):
        hook(function)
    with pytest.raises(TypeError) as after:
        call()
    assert str(after.value) == str(before.value)


def test_methods(hook):
    def call():
        one = Derived()
        return one.method(1), Derived.static(), one.static(2), Derived.of_class(3), one(4)

    before = call()
    for name in ("method", "__call__"):
        hook(vars(Derived)[name], name)
    for name in ("static", "of_class"):
        hook(vars(Derived)[name].__func__, name)
    assert call() == before
    assert _core.counts() == {
        "method": (1, 0),
        "__call__": (1, 0),
        "static": (2, 0),
        "of_class": (1, 0),
    }


def test_closure(hook):
    closure = make_closure()
    cells = closure.__closure__
    hook(closure)
    assert closure(2)() == 5
    assert closure.__closure__ is cells
    assert calls() == (1, 0)


def test_hooking_a_running_function(hook):
    def outer():
        hook(outer)
        return "first"

    assert outer() == "first"
    assert calls() == (0, 0)


def test_unhooking_a_running_function(hook):
    def outer():
        _core.unhook(index)
        return "done"

    index = hook(outer)
    assert outer() == "done"
    assert outer() == "done"


def test_defaults_changed_after_hooking(hook):
    def function(a, b=2, *, c=3):
        return a, b, c

    hook(function)
    function.__defaults__ = (7,)
    function.__kwdefaults__ = {"c": 8}
    assert function(1) == (1, 7, 8)


# ---- the function looks the same ------------------------------------------------------------


def test_identity_and_attributes(hook):
    function = plain
    reference = weakref.ref(plain)
    before = (
        hash(plain),
        str(inspect.signature(plain)),
        inspect.getsource(plain),
        plain.__doc__,
        plain.__defaults__,
        dict(vars(plain)),
        plain.__code__.co_name,
        plain.__code__.co_firstlineno,
        plain.__code__.co_flags,
    )
    hook(plain)
    after = (
        hash(plain),
        str(inspect.signature(plain)),
        inspect.getsource(plain),
        plain.__doc__,
        plain.__defaults__,
        dict(vars(plain)),
        plain.__code__.co_name,
        plain.__code__.co_firstlineno,
        plain.__code__.co_flags,
    )
    assert after == before
    assert plain is function and reference() is plain
    assert type(plain) is types.FunctionType and inspect.isfunction(plain)
    assert pickle.loads(pickle.dumps(plain)) is plain
    assert copy.deepcopy(plain) is plain


def test_unhook_restores_exactly():
    code = plain.__code__
    index = _core.hook(plain, "name", "user", 1)
    _core.unhook(index)
    assert plain.__code__ is code
    assert _core.hook(plain, "other", "user", 1) == index  # the same callable: the same hook
    _core.unhook(index)
    assert plain.__code__ is code
    assert plain(1) == 3


def test_unhook_leaves_foreign_code_alone(hook):
    def function():
        return 1

    def other():
        return 2

    index = hook(function)
    function.__code__ = other.__code__
    assert function() == 2
    _core.unhook(index)
    assert function() == 2
    _core.hook(function, "name", "user", 1)
    assert function() == 2
    assert calls()[0] >= 1
    _core.unhook(index)
    assert function.__code__ is other.__code__


def test_frames_and_warnings_name_the_caller(hook):
    hook(caller_name)
    hook(warns)
    assert caller_name() == "test_frames_and_warnings_name_the_caller"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warns()
        line = inspect.currentframe().f_lineno - 1
    assert (caught[0].lineno, caught[0].filename) == (line, __file__)


def test_tracing_is_balanced(hook):
    hook(plain)
    events = []

    def profiler(frame, event, _):
        if frame.f_code.co_name == "plain":
            events.append(event)

    sys.setprofile(profiler)
    plain(1)
    sys.setprofile(None)
    assert events.count("call") == events.count("return") >= 1


def test_line_events_are_the_same(hook):
    def lines():
        seen = []

        def tracer(frame, event, _):
            if frame.f_code.co_name == "captures_argument" and event == "line":
                seen.append(frame.f_lineno)
            return tracer

        sys.settrace(tracer)
        captures_argument(1)
        sys.settrace(None)
        return seen

    before = lines()
    hook(captures_argument)
    assert lines() == before


# ---- exceptions and recursion ---------------------------------------------------------------


def test_exception(hook):
    def frames():
        try:
            fails("x")
        except ValueError as error:
            assert error.__context__ is None
            extracted = traceback.extract_tb(error.__traceback__)
            return str(error), [(f.name, f.lineno) for f in extracted]

    before = frames()
    hook(fails)
    assert frames() == before
    assert calls() == (1, 1)


def test_exception_in_flight_is_kept(hook):
    hook(plain)
    try:
        raise KeyError("outer")
    except KeyError:
        assert plain(1) == 3
        assert isinstance(sys.exc_info()[1], KeyError)


def depth_reached():
    depth = 0
    for n in range(100, 1200, 5):
        try:
            recursive(n)
        except RecursionError:
            break
        depth = n
    return depth


def test_recursion_limit_is_where_it_was(hook):
    before = depth_reached()
    hook(recursive)
    assert depth_reached() == before


def test_deep_recursion_raises_instead_of_crashing(hook):
    hook(recursive)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        with pytest.raises(RecursionError):
            recursive(500_000)
    finally:
        sys.setrecursionlimit(limit)
    assert recursive(10) == 10


def test_deep_recursion_in_a_thread(hook):
    hook(recursive)
    outcome = []

    def work():
        try:
            recursive(500_000)
        except RecursionError:
            outcome.append("raised")

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1_000_000)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
    assert outcome == ["raised"]


# ---- what cannot be hooked ------------------------------------------------------------------


@pytest.mark.parametrize(
    "target",
    [generator, coroutine, len, list.append, print, int, object(), Derived(), 5],
)
def test_refused(target):
    count = len(_core.hooks())
    with pytest.raises(TypeError):
        _core.hook(target, "name", "user", 1)
    assert len(_core.hooks()) == count


def test_bad_arguments():
    with pytest.raises(ValueError, match="no such role: nonsense"):
        _core.hook(plain, "name", "nonsense", 1)
    with pytest.raises(IndexError):
        _core.unhook(10**6)
    with pytest.raises(TypeError):
        _core.unhook("0")


# ---- builtins -------------------------------------------------------------------------------


def test_builtin(hook):
    import time

    target = time.strftime  # METH_VARARGS

    def seen():
        year = target("%Y", (2026, 1, 2, 3, 4, 5, 0, 1, 0))
        return year, hash(target), target.__name__, repr(target)

    before = seen()
    hook(target)
    assert seen() == before
    assert time.strftime is target
    assert calls() == (1, 0)
    with pytest.raises(TypeError):
        target()
    assert calls() == (1, 1)


def test_builtin_star_call_and_map(hook):
    import time

    hook(time.strftime)
    arguments = ("%Y", (2026, 1, 2, 3, 4, 5, 0, 1, 0))
    assert time.strftime(*arguments) == "2026"
    assert list(map(time.strftime, [arguments[0]], [arguments[1]])) == ["2026"]
    assert calls() == (2, 0)


def test_builtin_with_keywords(hook):
    target = __import__  # METH_VARARGS | METH_KEYWORDS up to 3.11
    try:
        hook(target)
    except TypeError:
        pytest.skip("__import__ has another calling convention here")
    assert target("json", fromlist=["loads"]).__name__ == "json"
    assert calls()[0] >= 1


def test_descriptor(hook):
    target = str.format  # a METH_VARARGS | METH_KEYWORDS method descriptor
    hook(target)
    results = []
    # Not in an assert: pytest would take the bound method out first, and those are not seen.
    results.append("{}".format(1))  # noqa: UP032
    results.append(str.format("{}{a}", 2, a=3))
    assert results == ["1", "23"]
    assert calls() == (2, 0)


# ---- observing ------------------------------------------------------------------------------


def test_hold_pause_and_off(hook):
    hook(plain)
    held = _core.hold()
    assert held is False
    plain(1)
    assert _core.hold() is True
    _core.release(False)
    assert calls() == (0, 0)
    _core.pause()
    _core.pause()
    plain(1)
    _core.resume()
    plain(1)
    _core.resume()
    assert calls() == (0, 0)
    plain(1)
    assert calls() == (1, 0)
    _core.count(False)
    plain(1)
    assert calls() == (0, 0)


def test_resume_without_pause_is_harmless(hook):
    hook(plain)
    _core.resume()
    plain(1)
    _core.pause()
    plain(1)
    _core.resume()
    assert calls() == (1, 0)


def test_hold_is_per_thread(hook):
    hook(plain)
    _core.hold()
    thread = threading.Thread(target=plain, args=(1,))
    thread.start()
    thread.join()
    _core.release(False)
    assert calls() == (1, 0)


def test_outermost(hook):
    def outer(n):
        return recursion(n)

    def recursion(n):
        return n if n == 0 else outer(n - 1)

    hook(outer, "outer", "mode", 1 | _core.OUTERMOST)
    hook(recursion, "recursion", "mode", 1 | _core.OUTERMOST)
    outer(3)
    recursion(2)
    assert _core.counts() == {"outer": (1, 0), "recursion": (1, 0)}


def test_outermost_self(hook):
    class Stepper:
        def step(self, other=None):
            return other.step() if other else None

    class Wrapper(Stepper):
        def step(self, other=None):
            return super().step(other)

    flags = _core.ARGUMENTS | _core.METHOD | _core.OUTERMOST_SELF
    hook(Stepper.step, "base", "optimizer.step", flags)
    hook(Wrapper.step, "wrapper", "optimizer.step", flags)
    Wrapper().step()
    assert _core.counts() == {"wrapper": (1, 0)}
    Wrapper().step(Stepper())
    assert _core.counts() == {"wrapper": (1, 0), "base": (1, 0)}


def test_hold_flag(hook):
    def tracer(n):
        if n < 0:
            raise ValueError
        return plain(n)

    hook(tracer, "tracer", "", _core.HOLD)
    hook(plain)
    assert tracer(1) == 3
    with pytest.raises(ValueError):
        tracer(-1)
    plain(1)
    assert _core.counts() == {"name": (1, 0)}


def test_outermost_after_exception(hook):
    def failing():
        raise ValueError

    hook(failing, "failing", "mode", 1 | _core.OUTERMOST)
    for _ in range(2):
        with pytest.raises(ValueError):
            failing()
    assert _core.counts() == {"failing": (2, 2)}


def test_threads(hook):
    hook(plain)
    workers = [threading.Thread(target=lambda: [plain(i) for i in range(2000)]) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert calls() == (8000, 0)


def test_many_hooks_grow_the_table(hook):
    functions = []
    for i in range(1500):
        scope = {}
        exec(f"def f{i}(x): return x + {i}", scope)
        functions.append(scope[f"f{i}"])
    for i, function in enumerate(functions):
        hook(function, f"f{i}")
    assert [function(1) for function in functions] == [i + 1 for i in range(1500)]
    assert len(_core.counts()) == 1500


def test_no_reference_is_leaked(hook):
    hook(variadic)
    value = object()
    before = sys.getrefcount(value)
    for _ in range(100):
        variadic(value, value, value, c=value, z=value)
    gc.collect()
    assert sys.getrefcount(value) == before


def test_original(hook):
    def function(a, b=1):
        return a + b

    code = function.__code__
    hook(function)
    original = _core.original(function)
    assert original.__code__ is code
    assert (original is function) == (not ON_3_11)
    function.__defaults__ = (5,)
    assert _core.original(function).__defaults__ == (5,)
    assert _core.original(len) is len
    assert _core.original(plain) is plain


@pytest.mark.skipif(not ON_3_11, reason="hooking runs Python code on 3.11 only")
def test_hooking_while_hooking(monkeypatch):
    """Another thread may hook while the first is still making its gate."""
    from tocsin import gate

    made, make_body = [], gate.make_body

    def make_body_slowly(function):
        if function is outer:
            made.append(_core.hook(inner, "inner", "", 0))
        return make_body(function)

    monkeypatch.setattr(gate, "make_body", make_body_slowly)
    index = _core.hook(outer, "outer", "", 0)
    names = {i: name for i, name, *_ in _core.hooks()}
    assert names[index] == "outer" and names[made[0]] == "inner"
    assert (outer(), inner()) == (1, 2)
    _core.unhook(index)
    _core.unhook(made[0])
