"""Convert the betterproto2 metadata of a message class into a plan for the codec compiler."""

import keyword
from collections.abc import Callable, Iterable
from dataclasses import fields as fields_of
from dataclasses import is_dataclass
from enum import IntEnum
from typing import Any, Literal, NamedTuple, cast

import betterproto2

from headway.errors import DeclarationError
from headway.protobuf._wire import FIXED_FORMATS, VARINT_KINDS

MessageClass = type[betterproto2.Message]
Shape = Literal["single", "optional", "repeated", "map"]

_KINDS = VARINT_KINDS | FIXED_FORMATS.keys() | {"string", "bytes", "message"}


NO_DATACLASS = "remove @dataclass: @headway.message alone makes a class a message, with its __init__ and __repr__"


class UnsupportedClassError(Exception):
    """The class has features that only betterproto2 itself can encode."""


class EnumValues(dict[int, Any]):
    """The members of an enum by number. A number without a member is passed to the enum's class."""

    def __init__(self, enum: Callable[[int], Any], members: dict[int, Any]) -> None:
        super().__init__(members)
        self._enum = enum

    def __missing__(self, value: int) -> Any:
        return self._enum(value)


class Value(NamedTuple):
    """The type of an element of a field: its kind and, for a message or an enum, its class."""

    kind: str
    message: MessageClass | None = None
    wrapped: bool = False
    enum: EnumValues | None = None


class FieldPlan(NamedTuple):
    """The plan of one field."""

    name: str
    number: int
    shape: Shape
    value: Value
    key: Value | None
    # Makes the value of an unset field that is empty instead of absent.
    make_default: Callable[[], Any] | None
    # The other fields of its oneof.
    rivals: tuple[str, ...]


class ClassPlan(NamedTuple):
    """The plan of one message class, with its fields in the order of their numbers."""

    cls: MessageClass
    fields: tuple[FieldPlan, ...]
    # In the order of the constructor, so that the instances' dicts share their keys.
    names: tuple[str, ...]

    def maker(self, own: int) -> str:
        """Return the expression that makes an instance in the generated code, which then sets every field."""
        if self.cls.__post_init__ is betterproto2.Message.__post_init__:
            # Skip the constructor, which would only set the fields twice.
            return f"new(class_{own})"
        return f"class_{own}()"

    def messages(self) -> list[MessageClass]:
        """Return the message classes that the fields hold."""
        return [plan.value.message for plan in self.fields if plan.value.message is not None]


class Globals(NamedTuple):
    """The globals of the code that is generated together for several classes.

    Attributes:
        objects: the objects by name. The functions of each class are named by its number, such as ``decode_0``.
        number: the number of each class.
        flat: the classes whose messages are small: they hold no lists, no maps, and only such messages.
        stepwise: True for functions that are generators, with a step after some values. Their names are ``decoding_0``
            and ``encoding_0``, and they call the others for small values.
    """

    objects: dict[str, Any]
    number: dict[type, int]
    flat: frozenset[type] = frozenset()
    stepwise: bool = False


def redecorated_problem(cls: type[Any]) -> str | None:
    """Return the problem of a message class that was decorated with `dataclass` once more, or None.

    The second decorator replaces the methods, with a `__repr__` that shows secrets, and loses the numbers.
    """
    made = fields_of(cls) if is_dataclass(cls) else ()
    return None if all("betterproto" in each.metadata for each in made) else f"{cls.__qualname__}: {NO_DATACLASS}"


def metadata_of(cls: type[Any]) -> betterproto2.ProtoClassMetadata:
    """Return the betterproto2 metadata of a class.

    Raises:
        DeclarationError: if the class was decorated with `dataclass` once more.
    """
    if "_betterproto_meta" not in vars(cls) and (problem := redecorated_problem(cls)):
        raise DeclarationError(problem)
    # Cast, because the type of betterproto2's classproperty allows no access.
    metadata: betterproto2.ProtoClassMetadata = cast("Any", cls)._betterproto
    return metadata


def elements(value: Any) -> Iterable[Any]:
    """Return the elements of a list, the values of a map, or the single value of any other field."""
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else [value]


def plan_class(cls: MessageClass) -> ClassPlan:
    """Return the plan of a class. Raises UnsupportedClassError if it differs from what betterproto2 generates."""
    _refuse_odd(cls)
    metadata = metadata_of(cls)
    fields = [_plan_field(cls, name, metadata.meta_by_field_name[name]) for name in metadata.sorted_field_names]
    return ClassPlan(cls, tuple(fields), tuple(metadata.meta_by_field_name))


def _refuse_odd(cls: MessageClass) -> None:
    base = betterproto2.Message
    own_ways = ("__bytes__", "parse", "load", "__setattr__", "__getattribute__", "__getattr__")
    for name in own_ways:
        ours, theirs = getattr(cls, name, None), getattr(base, name, None)
        if getattr(ours, "__func__", ours) is not getattr(theirs, "__func__", theirs):
            raise UnsupportedClassError(f"{cls.__name__} overrides {name}")
    if hasattr(cls, "__pydantic_core_schema__"):
        raise UnsupportedClassError(f"{cls.__name__} is validated by pydantic")


def _plan_field(cls: MessageClass, name: str, meta: betterproto2.FieldMetadata) -> FieldPlan:
    if not name.isidentifier() or keyword.iskeyword(name):
        raise UnsupportedClassError(f"{cls.__name__} has a field whose name is not valid in Python: {name!r}")
    shape = _shape(meta)
    held = metadata_of(cls).cls_by_field[f"{name}.value" if shape == "map" else name]
    key = None
    value = meta
    if meta.map_meta is not None:
        key, value = _value(cls, meta.map_meta[0], held), meta.map_meta[1]
    rivals: tuple[str, ...] = ()
    if meta.group:
        arms = metadata_of(cls).oneof_field_by_group[meta.group]
        rivals = tuple(sorted(arm.name for arm in arms if arm.name != name))
    return FieldPlan(
        name=name,
        number=meta.number,
        shape=shape,
        value=_value(cls, value, held),
        key=key,
        make_default=_make_default(cls, name, meta, shape),
        rivals=rivals,
    )


def _shape(meta: betterproto2.FieldMetadata) -> Shape:
    if meta.map_meta is not None:
        return "map"
    if meta.repeated:
        return "repeated"
    return "optional" if meta.optional or meta.group else "single"


def _value(cls: MessageClass, meta: betterproto2.FieldMetadata, held: Any) -> Value:
    if meta.proto_type not in _KINDS:
        raise UnsupportedClassError(f"{cls.__name__} has a field of kind {meta.proto_type}")
    if meta.proto_type == "message":
        message = meta.unwrap() if meta.unwrap else held
        if not (isinstance(message, type) and issubclass(message, betterproto2.Message)):
            raise UnsupportedClassError(f"{cls.__name__} holds {message!r} as a message")
        return Value("message", message=message, wrapped=meta.unwrap is not None)
    if meta.proto_type == "enum":
        return Value("enum", enum=_enum_values(cls, held))
    return Value(meta.proto_type)


def _enum_values(cls: MessageClass, held: Any) -> EnumValues:
    # A declared message has a `PlainEnum` here for an IntEnum that is not a betterproto2.Enum.
    enum = getattr(held, "plain_enum", held)
    if not (isinstance(enum, type) and issubclass(enum, IntEnum)):
        raise UnsupportedClassError(f"{cls.__name__} holds {held!r} as an enum")
    return EnumValues(held, {int(member): member for member in enum.__members__.values()})


def _make_default(
    cls: MessageClass, name: str, meta: betterproto2.FieldMetadata, shape: Shape
) -> Callable[[], Any] | None:
    make: Callable[[], Any] = metadata_of(cls).default_gen[name]
    if shape in ("repeated", "map"):
        return None
    if make() is None:
        return None
    # The encoder omits empty values as defaults, so every default must be empty.
    if shape == "optional" or (meta.proto_type != "message" and make()):
        raise UnsupportedClassError(f"{cls.__name__}.{name} has a non-empty default")
    return make
