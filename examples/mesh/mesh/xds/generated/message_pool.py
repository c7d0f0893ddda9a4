"""The pool of the generated messages, and the decorator of their classes. `generate.py` copies it to them."""

from __future__ import annotations

import dataclasses
import functools
from typing import TYPE_CHECKING, Any

import betterproto2

default_message_pool = betterproto2.MessagePool()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(**options):
        """Make a message class like `dataclasses.dataclass`, which makes ``__init__`` only at its first call.

        That takes most of the time of the declaration, and a program uses few of the messages.
        """
        return lambda cls: _declared(cls, options)


def _declared(cls: type[Any], options: dict[str, Any]) -> type[Any]:
    # Otherwise the docstring would be the signature, which also takes time.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made = dataclasses.dataclass(cls, init=False, **options)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807  # it becomes one
        fields = [(each.name, each.type, _copy(each)) for each in dataclasses.fields(made)]
        like = dataclasses.make_dataclass(cls.__name__, fields, bases=(betterproto2.Message,), **options)
        made.__init__ = like.__init__  # type: ignore[misc]  # replaced by the one that it stands for
        like.__init__(self, *args, **kwargs)

    made.__init__ = __init__  # type: ignore[misc]
    # betterproto2 asks for all hints of a class again for each of its fields.
    made._type_hints = classmethod(functools.cache(super(made, made)._type_hints.__func__))
    return made


def _copy(field: dataclasses.Field[Any]) -> Any:
    return dataclasses.field(default_factory=field.default_factory)  # type: ignore[arg-type]  # the generator gives one
