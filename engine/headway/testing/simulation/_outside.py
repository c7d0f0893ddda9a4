"""What is outside the store: an object of the user's, whose async methods are steps when a process calls them."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from grpclib.const import Status

from headway.testing.simulation._link import RECONCILE

if TYPE_CHECKING:
    from headway.testing.simulation._process import Process


class OutsideUnreachable(ConnectionError):
    """A call of the world outside got no answer. It may have been done."""


class Outside:
    """A process' way to the world outside. Its attributes are those of the object that the world was given."""

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
