"""The base of immutable records that are many, and cheap to declare. Pure.

A frozen dataclass has six functions compiled when it is declared, which every start of a program pays for. A record
has one, and is as quick to make.
"""

from __future__ import annotations

from typing import Any, NoReturn, dataclass_transform


@dataclass_transform(frozen_default=True, field_specifiers=())
class Record:
    """Has the fields that its class is annotated with, with defaults or without; `vars` gives them.

    It is made as a dataclass is, and equals one of the same class whose fields are equal. A class that extends a
    record has none but its own fields.
    """

    def __init_subclass__(cls) -> None:
        fields = tuple(cls.__annotations__)
        arguments = ", ".join(f"{each}=cls.{each}" if each in vars(cls) else each for each in fields)
        # Into the dictionary, because `__setattr__` refuses.
        body = "; ".join(["known = self.__dict__", *(f"known[{each!r}] = {each}" for each in fields)])
        made: dict[str, Any] = {"cls": cls}
        exec(f"def __init__(self, {arguments}): {body}", made)
        type.__setattr__(cls, "__init__", made["__init__"])
        type.__setattr__(cls, "__match_args__", fields)

    def __eq__(self, other: object) -> bool:
        return vars(self) == vars(other) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash((type(self), *vars(self).values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in vars(self).items())})"

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} can't be set: a {type(self).__name__} doesn't change")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} can't be deleted: a {type(self).__name__} doesn't change")
