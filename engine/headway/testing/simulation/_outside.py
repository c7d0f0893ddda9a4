"""The outside world of a process: an object of the user, whose async methods are steps."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from grpclib.const import Status

from headway.testing.simulation._link import RECONCILE

if TYPE_CHECKING:
    from headway.testing.simulation._process import Process


class OutsideUnreachable(ConnectionError):
    """A call to the outside world got no answer. It may have taken effect."""


class Outside:
    """A process's access to the outside world. It has the attributes of the object that the world was given."""

    def __init__(self, real: object, process: Process) -> None:
        self._real = real
        self._process = process

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        process = self._process
        if not inspect.iscoroutinefunction(found):
            if process.killed:
                raise OutsideUnreachable("the process has been killed")
            return found

        async def call(*arguments: Any, **named: Any) -> Any:
            link, reconcile = process.link, RECONCILE.get()
            text = ", ".join([*map(repr, arguments), *(f"{each}={value!r}" for each, value in named.items())])
            if reconcile is None:
                link.note(f"calls outside.{name}({text})")
                return await link.beside(lambda: found(*arguments, **named))
            kind, key = ("", ""), ("", "", "")
            return await link.step(
                reconcile,
                f"call outside.{name}({text})",
                kind,
                key,
                lambda: found(*arguments, **named),
                write=True,
                unreachable=_unreachable,
            )

        return call


def _unreachable(_: Status, text: str) -> BaseException:
    return OutsideUnreachable(text)
