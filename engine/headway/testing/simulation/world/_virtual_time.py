"""The modules `time` and `datetime` as the program's own modules see them: with the clocks of a simulated run.

Outside of a run, and in threads that are not the run's, they are the machine's. So it does no harm to keep them.
"""

from __future__ import annotations

import datetime as _datetime
import time as _time
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

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


class _Module(ModuleType):
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
    "time": _Module(_time, {each.__name__: each for each in _FUNCTIONS}),
    "datetime": _Module(_datetime, {"datetime": VirtualDatetime, "date": VirtualDate}),
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
