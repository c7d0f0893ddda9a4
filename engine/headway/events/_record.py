"""The base class of events, and the function that receives them. No I/O.

`Record` is cheap at import time. A frozen dataclass compiles six functions when it is declared, which slows every start
of a program. A record compiles one, when the first is created, and further ones are created as fast.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=())
class Record:
    """A record with the annotated fields of its class, with or without defaults. `vars` returns them.

    It is created like a dataclass, and equals a record of the same class with equal fields. A subclass of a record has
    only its own fields.
    """

    def __init_subclass__(cls) -> None:
        type.__setattr__(cls, "__match_args__", tuple(cls.__annotations__))
        type.__setattr__(cls, "__init__", Record.__init__)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        cls = type(self)
        fields = tuple(cls.__annotations__)
        arguments = ", ".join(f"{each}=cls.{each}" if each in vars(cls) else each for each in fields)
        # Write to the dictionary, because `__setattr__` raises.
        body = "; ".join(["known = self.__dict__", *(f"known[{each!r}] = {each}" for each in fields)])
        made: dict[str, Any] = {"cls": cls}
        exec(f"def __init__(self, {arguments}): {body}", made)
        type.__setattr__(cls, "__init__", made["__init__"])
        made["__init__"](self, *args, **kwargs)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"cannot set {name}: a {type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"cannot delete {name}: a {type(self).__name__} is immutable")


Report = Callable[[object], None]
"""A function that is called with every event. `LoopBlocked` and `ShutdownBlocked` come from a thread of their own.

If its attribute ``failures_only`` is true, the engine may leave out the `Reconciled` events of successful reconciles.
That saves the cost of making such an event for each of them.
"""


def ignore(event: object) -> None:
    """Discard an event."""


def receives_successes(report: Report) -> bool:
    """Return True if a report wants the `Reconciled` events of successful reconciles as well."""
    return report is not ignore and not getattr(report, "failures_only", False)
