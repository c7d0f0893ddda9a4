"""The clocks of a simulated run as the program's own modules see them: in place of what they import of the real ones.

Trio, Headway, the standard library and installed packages keep the real clocks. Outside of a run, and in threads that
are not the run's, the clocks given here are the machine's too, so it does no harm to keep them.
"""

from __future__ import annotations

import builtins
import datetime as _datetime
import functools
import inspect
import os
import site
import sys
import sysconfig
import threading
import time as _time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

from headway.controller import App
from headway.testing.simulation.world._clocks import clocks_here

_BILLION = 1_000_000_000


def time() -> float:
    """Return the seconds since 1970."""
    clocks = clocks_here()
    return _time.time() if clocks is None else clocks.wall() / _BILLION


def time_ns() -> int:
    """Return the nanoseconds since 1970."""
    clocks = clocks_here()
    return _time.time_ns() if clocks is None else clocks.wall()


def monotonic() -> float:
    """Return the seconds of a clock that never goes back."""
    clocks = clocks_here()
    return _time.monotonic() if clocks is None else clocks.monotonic() / _BILLION


def monotonic_ns() -> int:
    """Return the nanoseconds of a clock that never goes back."""
    clocks = clocks_here()
    return _time.monotonic_ns() if clocks is None else clocks.monotonic()


def perf_counter() -> float:
    """Return the seconds of a clock for measurements."""
    clocks = clocks_here()
    return _time.perf_counter() if clocks is None else clocks.monotonic() / _BILLION


def perf_counter_ns() -> int:
    """Return the nanoseconds of a clock for measurements."""
    clocks = clocks_here()
    return _time.perf_counter_ns() if clocks is None else clocks.monotonic()


def sleep(seconds: float) -> None:
    """Block the thread. In a run, virtual time passes instead."""
    clocks = clocks_here()
    if clocks is None:
        _time.sleep(seconds)
    else:
        clocks.block(seconds)


def gmtime(seconds: float | None = None) -> _time.struct_time:
    """Return the parts of a time in UTC."""
    return _time.gmtime(time() if seconds is None else seconds)


def localtime(seconds: float | None = None) -> _time.struct_time:
    """Return the parts of a time in the local zone."""
    return _time.localtime(time() if seconds is None else seconds)


def ctime(seconds: float | None = None) -> str:
    """Return a time as text."""
    return _time.ctime(time() if seconds is None else seconds)


def asctime(parts: Any = None) -> str:
    """Return a time as text."""
    return _time.asctime(localtime() if parts is None else parts)


def strftime(format: str, parts: Any = None) -> str:
    """Return a time in a format."""
    return _time.strftime(format, localtime() if parts is None else parts)


_FUNCTIONS: tuple[Callable[..., Any], ...] = (
    time,
    time_ns,
    monotonic,
    monotonic_ns,
    perf_counter,
    perf_counter_ns,
    sleep,
    gmtime,
    localtime,
    ctime,
    asctime,
    strftime,
)


def _local() -> _datetime.datetime:
    return _datetime.datetime.fromtimestamp(time(), _datetime.UTC).astimezone()


class _Same(type):
    """The type of a class that stands for another one: equal to it, with the same instances and subclasses."""

    real: type

    def __new__(cls, name: str, bases: tuple[type, ...], names: dict[str, Any]) -> Any:
        """Declare a class. One that derives from such a class derives from the real one instead."""
        if any(isinstance(each, _Same) for each in bases):
            return type(name, tuple(each.real if isinstance(each, _Same) else each for each in bases), names)
        return super().__new__(cls, name, bases, names)

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.real)

    def __subclasscheck__(cls, subclass: type) -> bool:
        return issubclass(subclass, cls.real)

    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.real

    def __hash__(cls) -> int:
        return hash(cls.real)


class VirtualDate(_datetime.date, metaclass=_Same):
    """`datetime.date`, with the clock of a run. It creates real dates."""

    real = _datetime.date

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Create a real date."""
        return cls.real(*given, **named)

    @classmethod
    def today(cls) -> Any:
        """Return the current date in the local zone."""
        return _local().date()


class VirtualDatetime(_datetime.datetime, metaclass=_Same):
    """`datetime.datetime`, with the clock of a run. It creates real times."""

    real = _datetime.datetime

    def __new__(cls, *given: Any, **named: Any) -> Any:
        """Create a real time."""
        return cls.real(*given, **named)

    @classmethod
    def now(cls, tz: _datetime.tzinfo | None = None) -> Any:
        """Return the current time."""
        return _datetime.datetime.fromtimestamp(time(), tz)

    @classmethod
    def utcnow(cls) -> Any:
        """Return the current time in UTC, without a zone."""
        return _datetime.datetime.fromtimestamp(time(), _datetime.UTC).replace(tzinfo=None)

    @classmethod
    def today(cls) -> Any:
        """Return the current time in the local zone, without a zone."""
        return _local().replace(tzinfo=None)


class _VirtualModule(ModuleType):
    """A module with other members. The rest of them is the real module's."""

    def __init__(self, real: ModuleType, members: Mapping[str, Any]) -> None:
        super().__init__(real.__name__, real.__doc__)
        self.__dict__.update(members)
        self._real = real

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def __dir__(self) -> list[str]:
        return dir(self._real)


MODULES: Mapping[str, ModuleType] = {
    "time": _VirtualModule(_time, {each.__name__: each for each in _FUNCTIONS}),
    "datetime": _VirtualModule(_datetime, {"datetime": VirtualDatetime, "date": VirtualDate}),
}
"""The modules that the program imports in a run, by name."""

_CLASSES = {_datetime.datetime: VirtualDatetime, _datetime.date: VirtualDate}
_STANDS_FOR: Mapping[Any, Any] = {
    **{getattr(_time, each.__name__): each for each in _FUNCTIONS},
    _datetime.datetime.now: VirtualDatetime.now,
    _datetime.datetime.utcnow: VirtualDatetime.utcnow,
    _datetime.datetime.today: VirtualDatetime.today,
    _datetime.date.today: VirtualDate.today,
}
_BUILTIN = type(_time.time)


def virtual(value: Any) -> Any:
    """Return what stands for a function, class or module of the real clocks in a run, or None for anything else."""
    kind = type(value)
    if kind is _BUILTIN:
        return _STANDS_FOR.get(value)
    if kind is type:
        return next((each for real, each in _CLASSES.items() if value is real), None)
    if kind is ModuleType and value.__name__ in MODULES:
        return MODULES[value.__name__]
    return None


_NEVER = frozenset(("headway", "trio", "outcome", "hypothesis", "pytest", "_pytest", "pluggy"))
"""The packages that are never the program's own, wherever they are."""
_DEEP = 4
"""How many functions within functions are looked into."""


def _libraries() -> tuple[str, ...]:
    paths = [sysconfig.get_path(each) for each in ("stdlib", "platstdlib", "purelib", "platlib")]
    paths += [*site.getsitepackages(), site.getusersitepackages()]
    return tuple(sorted({os.path.realpath(each) + os.sep for each in paths if each}))


_LIBRARIES = _libraries()


class _Place:
    """A place that holds something of a real clock: it is replaced during runs."""

    def __init__(self, real: Any, put: Callable[[Any], None], get: Callable[[], Any]) -> None:
        self._real = real
        self._put = put
        self._get = get
        self._in_run = _in_run(real)

    def replace(self) -> None:
        """Put what is used in a run, unless the place has changed."""
        if self._get() is self._real:
            self._put(self._in_run)

    def restore(self) -> None:
        """Put back the earlier value, unless the place has changed."""
        if self._get() is self._in_run:
            self._put(self._real)


def _in_run(real: Any) -> Any:
    """Return what a value is replaced by, or None."""
    if isinstance(real, functools.partial):
        made = virtual(real.func)
        return None if made is None else functools.partial(made, *real.args, **real.keywords)
    if isinstance(real, staticmethod):
        made = virtual(real.__func__)
        return None if made is None else staticmethod(made)
    return virtual(real)


class _Module:
    """The places of one namespace, and its size when they were looked for."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.size = len(vars(module))
        self.places = list(_of_namespace(vars(module)))


class _Program:
    """The program's own modules, and the places in them. They are looked for once, and again if a module has grown."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _Module] = {}
        # The names of modules that are not the program's own.
        self._others: set[str] = set()
        self._roots: set[str] = set()
        # The runs in progress, which may be nested, and the places that are replaced until the last one has ended.
        self._runs = 0
        self._replaced: list[_Place] = []
        self._import: Any = None

    def begin(self, functions: Iterable[object]) -> None:
        """Replace the places of all modules of the program. ``functions`` are some that belong to it."""
        with self._lock:
            found = list(_with_inner(functions))
            roots = {_root(each.__globals__) for each in found} - _NEVER
            if not roots <= self._roots:
                self._roots |= roots
                self._others = set()
            places = [place for each in found for place in _of_function(each)]
            # A program may put other objects among the modules.
            modules: list[tuple[str, object]] = [*sys.modules.items()]
            for name, module in modules:
                if name in self._others:
                    continue
                if isinstance(module, ModuleType) and self._is_own(name, getattr(module, "__file__", None)):
                    places += self._of_module(name, module)
                else:
                    self._others.add(name)
            # Code that runs by exec() has a namespace without a module.
            namespaces = {id(each.__globals__): each.__globals__ for each in found}
            for namespace in namespaces.values():
                name = str(namespace.get("__name__"))
                is_module = getattr(sys.modules.get(name), "__dict__", None) is namespace
                if not is_module and self._is_own_namespace(namespace):
                    places += _of_namespace(namespace)
            for place in places:
                place.replace()
            self._replaced += places
            self._runs += 1
            if self._runs == 1:
                self._import, builtins.__import__ = builtins.__import__, self._import_in_run

    def end(self) -> None:
        """Put everything back when the last run ends."""
        with self._lock:
            self._runs -= 1
            if not self._runs:
                builtins.__import__ = self._import
                for place in reversed(self._replaced):
                    place.restore()
                self._replaced = []

    def _of_module(self, name: str, module: ModuleType) -> list[_Place]:
        known = self._known.get(name)
        if known is None or known.module is not module or known.size != len(vars(module)):
            known = self._known[name] = _Module(module)
        return known.places

    def _is_own(self, name: str, file: object) -> bool:
        root = name.partition(".")[0]
        if root in _NEVER or root in sys.stdlib_module_names:
            return False
        if root in self._roots:
            return True
        return not isinstance(file, str) or not os.path.realpath(file).startswith(_LIBRARIES)

    def _is_own_namespace(self, namespace: Mapping[str, Any]) -> bool:
        return self._is_own(str(namespace.get("__name__")), namespace.get("__file__"))

    def _import_in_run(
        self,
        name: str,
        globals: Mapping[str, Any] | None = None,
        locals: Mapping[str, Any] | None = None,
        fromlist: Any = (),
        level: int = 0,
    ) -> Any:
        """Import a module as ``import`` does. The program's own modules get the clocks of the run."""
        if name in MODULES and globals is not None and clocks_here() is not None and self._is_own_namespace(globals):
            return MODULES[name]
        return self._import(name, globals, locals, fromlist, level)


_PROGRAM = _Program()


@contextmanager
def own_clocks(*owners: object) -> Iterator[None]:
    """Give the program's own modules the clocks of a run while the block runs.

    Args:
        owners: apps, functions and classes of the program. Their packages are the program's own even if they are
            installed. So is every module that is not an installed one.
    """
    _PROGRAM.begin(each for owner in owners for each in _functions_of(owner))
    try:
        yield
    finally:
        _PROGRAM.end()


def _root(namespace: Mapping[str, Any]) -> str:
    return str(namespace.get("__name__")).partition(".")[0]


def _functions_of(owner: object) -> Iterator[object]:
    if isinstance(owner, App):
        for definition in owner.controllers.values():
            yield from (definition.reconcile, definition.initialiser, definition.on_start, definition.on_stop)
            yield from definition.sources.values()
            # Daemons and timers keep the program's functions.
            if inspect.ismethod(definition.reconcile):
                yield from vars(definition.reconcile.__self__).values()
    elif isinstance(owner, type):
        yield from vars(owner).values()
    else:
        yield owner


def _with_inner(functions: Iterable[object]) -> Iterator[FunctionType]:
    """Yield these functions and those that they close over."""
    seen: set[int] = set()
    left = [(each, 0) for each in functions]
    while left:
        value, depth = left.pop()
        while isinstance(value, functools.partial | staticmethod | classmethod) or inspect.ismethod(value):
            value = value.func if isinstance(value, functools.partial) else value.__func__
        if not isinstance(value, FunctionType) or id(value) in seen or _root(value.__globals__) in _NEVER:
            continue
        seen.add(id(value))
        yield value
        if depth < _DEEP:
            left += [(_content(cell), depth + 1) for cell in value.__closure__ or ()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


def _of_namespace(namespace: dict[str, Any]) -> Iterator[_Place]:
    """Yield the places of a module: its names, and what its functions and classes have bound."""
    name = namespace.get("__name__")
    for key, value in list(namespace.items()):
        if isinstance(value, FunctionType):
            if value.__globals__ is namespace:
                yield from _of_function(value)
        elif isinstance(value, type) and value.__module__ == name:
            yield from _of_class(value)
        elif _in_run(value) is not None:
            yield _Place(value, functools.partial(namespace.__setitem__, key), functools.partial(namespace.get, key))


def _of_class(owner: type) -> Iterator[_Place]:
    for key, value in list(vars(owner).items()):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, property):
            function = function.fget
        if isinstance(function, FunctionType):
            yield from _of_function(function)
        elif _in_run(value) is not None:
            yield _Place(value, functools.partial(setattr, owner, key), functools.partial(vars(owner).get, key))
        elif isinstance(value, type) and value.__qualname__.startswith(f"{owner.__qualname__}."):
            yield from _of_class(value)


def _of_function(function: FunctionType) -> Iterator[_Place]:
    """Yield what a function has bound: its defaults, and the variables that it closes over."""
    for cell in function.__closure__ or ():
        content = _content(cell)
        if _in_run(content) is not None:
            yield _Place(content, functools.partial(setattr, cell, "cell_contents"), functools.partial(_content, cell))
    for at, value in enumerate(function.__defaults__ or ()):
        if _in_run(value) is not None:
            yield _Place(
                value, functools.partial(_put_default, function, at), functools.partial(_default, function, at)
            )
    named = function.__kwdefaults__ or {}
    for key, value in named.items():
        if _in_run(value) is not None:
            yield _Place(value, functools.partial(named.__setitem__, key), functools.partial(named.get, key))


def _default(function: FunctionType, at: int) -> Any:
    return (function.__defaults__ or ())[at]


def _put_default(function: FunctionType, at: int, value: Any) -> None:
    defaults = list(function.__defaults__ or ())
    defaults[at] = value
    function.__defaults__ = tuple(defaults)
