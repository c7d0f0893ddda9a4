"""The chain of versions of a kind, its declaration, and the conversion of payloads along it. Pure."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from headway.base import Steps, answer_problem, finished, reason_text, repr_text
from headway.errors import DeclarationError, PayloadError
from headway.protobuf import Payload, decoding, encoding
from headway.resource import UNIT_KINDS, AnyMessage, Kind, Registry, ResourceType, pb, redact_payloads, with_payload

Older = TypeVar("Older", bound=Payload)
Newer = TypeVar("Newer", bound=Payload)
Type = ResourceType[Any]
Function = Callable[[Any], Any]

_FORM = "app.converter(TEAM_V1, TEAM_V2, up=up, down=down), with `def up(old: TeamV1) -> TeamV2`"


class BadConversion(Exception):
    """A converter raised, or returned something other than a valid payload of its version.

    The cause is its exception, or the PayloadError of the result.

    Attributes:
        source: the version that the converter was given.
        wanted: the version that it should have returned.
    """

    def __init__(self, message: str, source: Type, wanted: Type) -> None:
        super().__init__(message)
        self.source = source
        self.wanted = wanted


class Step(NamedTuple):
    """A converter pair between two adjacent versions."""

    older: Type
    newer: Type
    up: Function
    down: Function


class VersionChain:
    """The versions of one kind that converters connect, from the oldest to the newest.

    Attributes:
        types: the versions, oldest first.
        steps: the converters between them, in the same order.
        storage: the version in which resources of the kind are stored.
        named: the storage version that the program declared, or None if it declared none: then it is the newest.
    """

    def __init__(self, steps: tuple[Step, ...], named: Type | None = None) -> None:
        self.steps = steps
        self.named = named
        self.types = (steps[0].older, *(step.newer for step in steps))
        self.storage = named or self.types[-1]
        self._places = {type.name.version: place for place, type in enumerate(self.types)}

    def __contains__(self, version: str) -> bool:
        return version in self._places

    def type_of(self, version: str) -> Type:
        """Return the type of a version that is in the chain."""
        return self.types[self._places[version]]

    def newer(self, one: Type, other: Type) -> Type:
        """Return the newer of two versions of the chain."""
        return max(one, other, key=lambda each: self._places[each.name.version])

    def extended(self, step: Step) -> VersionChain:
        """Return the chain, extended by a step at either end. Raises DeclarationError if the step fits neither end."""
        older, newer = step.older.name, step.newer.name
        if older.version in self._places and newer.version in self._places:
            raise DeclarationError(
                f"a converter from {older} to {newer}: {self} already connects them; declare only one path "
                "between two versions"
            )
        if older.version not in self._places and newer.version not in self._places:
            raise DeclarationError(
                f"a converter from {older} to {newer}: neither is in {self}, the converters of this kind so far; "
                "first declare a converter that connects one of them"
            )
        if step.older is self.types[-1]:
            return VersionChain((*self.steps, step), self.named)
        if step.newer is self.types[0]:
            return VersionChain((step, *self.steps), self.named)
        raise DeclarationError(
            f"a converter from {older} to {newer}: the versions of a kind must form one chain, so far {self}; "
            f"start at {self.types[-1].name}, or end at {self.types[0].name}"
        )

    def storing(self, type: Type) -> VersionChain:
        """Return the chain with this storage version."""
        return VersionChain(self.steps, type)

    def converted(self, payload: Any, version: str, wanted: str) -> Any:
        """Convert a payload from one version to another, without changing ``payload``.

        Raises BadConversion. Its texts have no secrets of the payloads on the way.
        """
        return finished(self.converting(payload, version, wanted))

    def converting(self, payload: Any, version: str, wanted: str) -> Steps[Any]:
        """Convert a payload like `converted`, in steps. Each call of a converter is one step."""
        made, _ = yield from self._walked(payload, version, wanted)
        return made

    def packing(self, payload: Any, version: str, wanted: str) -> Steps[AnyMessage]:
        """Return a payload in another version, in the form that a resource carries. Like `converting`."""
        made, encoded = yield from self._walked(payload, version, wanted)
        type = self.type_of(wanted)
        if encoded is None:
            return (yield from packing(type, made))
        return AnyMessage(type_url=type.type_url, value=encoded)

    def _walked(self, payload: Any, version: str, wanted: str) -> Steps[tuple[Any, bytes | None]]:
        """Return a payload in another version, and its encoding if a converter has made it."""
        here, there, passed, encoded = self._places[version], self._places[wanted], [payload], None
        try:
            while here < there:
                encoded = yield from _called(self.steps[here], "up", passed)
                here += 1
            while here > there:
                here -= 1
                encoded = yield from _called(self.steps[here], "down", passed)
        except BadConversion as error:
            # A secret of one version may be in an ordinary field of the next one.
            redact_payloads(error, passed)
            raise
        return passed[-1], encoded

    def payload_of(self, resource: pb.Resource) -> Steps[Any]:
        """Return the payload of a stored resource, in its stored version. Raises PayloadError."""
        type = self.type_of(resource.id.type.group_version)  # type: ignore[union-attr]  # stored ids are whole
        return decoding(type.payload, b"" if resource.data is None else resource.data.value)

    def declare_in(self, registry: Registry) -> None:
        """Declare the converters and the storage version in another registry, which has the types."""
        known = chain_of(registry, self.storage.kind)
        for step in self.steps:
            if known is None or step not in known.steps:
                add_converter(registry, *step)
        if self.named is not None:
            store_as(registry, self.named)

    def __str__(self) -> str:
        return " → ".join(str(type.name) for type in self.types)


def _called(step: Step, side: Literal["up", "down"], passed: list[Any]) -> Steps[bytes]:
    """Convert the last one of the payloads, append the result to them, and return its encoding."""
    up = side == "up"
    function, source, wanted = (step.up, step.older, step.newer) if up else (step.down, step.newer, step.older)
    failed = functools.partial(BadConversion, source=source, wanted=wanted)
    name = f"{side}= of {step.older.name} → {step.newer.name}"
    try:
        made = function(passed[-1])
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        # `SystemExit` in a converter must not end the server, which serves other callers too. `trio.Cancelled` cannot
        # be raised here, since a converter is a plain function and awaits nothing.
        raise failed(f"{name} raised {type(error).__name__}: {reason_text(error)}") from error
    if type(made) is not wanted.payload:
        if problem := answer_problem(made):
            raise failed(f"{name}: {problem}")
        raise failed(f"{name} returned {repr_text(made)}; return a {wanted.payload.__name__}(...)")
    passed.append(made)
    try:
        return (yield from encoding(made))
    except PayloadError as error:
        raise failed(f"{name} returned a payload that cannot be encoded: {error}") from error


def step_of(older: ResourceType[Any], newer: ResourceType[Any], up: object, down: object) -> Step:
    """Return a converter pair. Raises DeclarationError, which shows the correct form, if it is invalid."""
    between = f"a converter from {older.name} to {newer.name}"
    if older.kind != newer.kind:
        raise DeclarationError(f"{between}: both must be versions of one kind, such as staff.v1.Team and staff.v2.Team")
    if older.name == newer.name:
        raise DeclarationError(f"{between}: the versions must differ")
    if older.scope is not newer.scope:
        raise DeclarationError(f"{between}: scope {newer.scope.name} must be {older.scope.name}, like {older.name}")
    for side, function in (("up", up), ("down", down)):
        if problem := _function_problem(function):
            raise DeclarationError(f"{between}: {side}={function!r} {problem}: {_FORM}")
    return Step(older, newer, up, down)  # type: ignore[arg-type]  # checked to be callable


def _function_problem(function: object) -> str | None:
    if not callable(function):
        return "must be a function"
    called: Any = function
    while isinstance(called, functools.partial):
        called = called.func
    if not inspect.isroutine(called):
        called = type(called).__call__
    if any(
        is_other(called)
        for is_other in (inspect.iscoroutinefunction, inspect.isasyncgenfunction, inspect.isgeneratorfunction)
    ):
        return "must be a plain function, without async or yield"
    try:
        inspect.signature(function).bind(None)
    except TypeError:
        return "must take one argument, the payload"
    except ValueError:
        # A built-in function without a signature.
        pass
    return None


def in_version(resource: pb.Resource, type: Type, data: AnyMessage | None) -> pb.Resource:
    """Return a stored resource as another version of its kind, with this payload. The rest is shared with it."""
    id, made = resource.id, with_payload(resource, data)
    assert id is not None
    made.id = pb.Id(uid=id.uid, name=id.name, type=type.message, tenancy=id.tenancy)
    return made


def packing(type: Type, payload: Any) -> Steps[AnyMessage]:
    """Return a payload in the form that a resource carries. Raises PayloadError if it cannot be encoded."""
    return AnyMessage(type_url=type.type_url, value=(yield from encoding(payload)))


def chains_in(registry: Registry) -> Sequence[VersionChain]:
    """Return the chains of all kinds of a registry that have converters."""
    return list(registry.declared.values())


def chain_of(registry: Registry, kind: Kind) -> VersionChain | None:
    """Return the versions of a kind that converters connect, or None if the kind has no converters."""
    return registry.declared.get(kind)


def chain_with(registry: Registry, type: Type) -> VersionChain | None:
    """Return the versions that converters connect with this one, or None if it has no converters."""
    chain = chain_of(registry, type.kind)
    return chain if chain is not None and type.name.version in chain else None


def add_converter(registry: Registry, older: Type, newer: Type, up: object, down: object) -> None:
    """Declare a converter pair between two registered versions of a kind.

    Raises:
        DeclarationError: The pair is invalid, or doesn't extend the chain of the kind's other converters.
    """
    step = step_of(older, newer, up, down)
    for type in (step.older, step.newer):
        _check_own(registry, type, f"a converter from {step.older.name} to {step.newer.name}")
    kind = step.older.kind
    if kind in UNIT_KINDS:
        raise DeclarationError(
            f"a converter from {step.older.name} to {step.newer.name}: versions of {step.older.name.kind} need "
            "no converters, since there is nothing to convert"
        )
    chain = chain_of(registry, kind)
    registry.declared[kind] = VersionChain((step,)) if chain is None else chain.extended(step)


def store_as(registry: Registry, type: Type) -> None:
    """Make this type the storage version of its kind.

    Raises:
        DeclarationError: No converter is declared for the version, or the kind has another storage version.
    """
    _check_own(registry, type, f"store_as({type.name})")
    chain = chain_with(registry, type)
    if chain is None:
        raise DeclarationError(
            f"store_as({type.name}): no converter is declared for this version; declare converters first"
        )
    if chain.named is not None and chain.named is not type:
        raise DeclarationError(
            f"store_as({type.name}): the storage version is already {chain.named.name}; a kind has only one"
        )
    registry.declared[type.kind] = chain.storing(type)


def _check_own(registry: Registry, type: Type, what: str) -> None:
    if registry.find(type.name) is not type:
        raise DeclarationError(f"{what}: {type.name} is not registered in this app: declare it with app.type(...)")
