"""What a forked child must not keep of its parent: locks, listening ports and connections.

A fork copies every descriptor. A child of `multiprocessing` would keep a store locked, and a port taken, for as long as
it runs, even after its parent has ended. A peer would not see that the parent has closed its connection.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

H = TypeVar("H")

# A fork copies the whole process, and Python calls functions after it that cannot be taken back. So this is the state
# of the process, and of no engine. It keeps nothing alive.
_HELD: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


class _HasDescriptor(Protocol):
    def fileno(self) -> int: ...


def in_forked_child(held: H, act: Callable[[H], object]) -> None:
    """Call ``act(held)`` in each child that is forked while ``held`` exists, before Python continues there.

    The function must neither wait nor raise. Children that run another program (`subprocess`) are not affected, because
    Python's descriptors are closed in them.
    """
    _HELD[held] = act


def silence_in_forked_child(held: _HasDescriptor) -> None:
    """Replace the descriptor of a socket by one that leads nowhere, in each child that is forked while it exists.

    It is not closed: its number would be given to another file, which the garbage collector of the child would close.
    """
    in_forked_child(held, _silence)


def _silence(held: _HasDescriptor) -> None:
    descriptor = held.fileno()
    if descriptor < 0:
        return
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
    except OSError:
        # Every number is taken. So this one is the next that is given out.
        os.close(descriptor)
        with suppress(OSError):
            os.open(os.devnull, os.O_RDWR)
        return
    os.dup2(nowhere, descriptor, inheritable=False)
    os.close(nowhere)


def _forked() -> None:
    for held, act in list(_HELD.items()):
        act(held)
    _HELD.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
