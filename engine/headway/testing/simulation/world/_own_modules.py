"""Gives the program's own modules the clocks of a simulated run, by replacing what they import of the real ones.

Trio, Headway, the standard library and installed packages keep the real clocks.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, FunctionType, ModuleType
from typing import Any

from headway.controller import App
from headway.testing.simulation.world._clocks import clocks_here
from headway.testing.simulation.world._virtual_time import MODULES, virtual

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
