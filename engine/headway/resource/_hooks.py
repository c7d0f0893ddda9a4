"""Hooks of types: functions of a program that Headway calls for each write, together with Headway's own rules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from headway.base import answer_problem, checked, function_text, plain_problem, repr_text
from headway.errors import DeclarationError
from headway.protobuf import REDACTED, REDACTED_CHANGED, Payload, holds_secrets, secret_values
from headway.resource._ids import Kind, ResourceId
from headway.resource._resource import Resource

T = TypeVar("T", bound=Payload)

DEFAULT_UNIT = "default"
"""The name of the partition, and of the namespace in each partition, that exists without a resource."""

EMPTIED_FINALIZER = "headway.tenancy"
"""The finalizer that keeps a partition or namespace, while it is being deleted, until it is empty."""

UNIT_KINDS: tuple[Kind, ...] = (("tenancy", "Partition"), ("tenancy", "Namespace"))
"""The kinds of partitions and namespaces."""

_HOOKS_FORM = "headway.Hooks(mutate=fill_in, validate=check), each `def check(team: headway.Resource[Team]) -> None`"
_NEEDS_FORM = (
    "headway.Hooks(needs=rights), with `def rights(verb, team): yield headway.Need('read', SITE.id(team.data.site))`"
)


class Need(NamedTuple):
    """A right that a caller needs because of what a resource contains.

    Attributes:
        verb: ``read`` or ``write``.
        id: the id of another resource, which need not exist. Its name may be a prefix: then the right must cover every
            name that begins with it.
    """

    verb: Literal["read", "write"]
    id: ResourceId


@checked()
@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks(Generic[T]):
    """Functions that fill in defaults and validate resources of a type. They run on every Write, on a copy.

    Attributes:
        mutate: fills in defaults, in place.
        validate: raises ValueError, with a message for the caller, to reject the resource.
        needs: returns the rights that a caller over the network needs in addition to those on the resource itself,
            to ``"read"`` or to ``"write"`` it. It may get a resource that `mutate` has not completed.

    Any other exception from a hook is reported as `HandlerFailed`, and the caller gets an error that the hook failed.
    """

    mutate: Callable[[Resource[T]], None] | None = None
    validate: Callable[[Resource[T]], None] | None = None
    needs: Callable[[Literal["read", "write"], Resource[T]], Iterable[Need]] | None = None

    def __post_init__(self) -> None:
        for name, hook in (("mutate", self.mutate), ("validate", self.validate)):
            problem = None if hook is None else plain_problem(hook, 1, "a resource", why="a write waits for it")
            if problem:
                raise DeclarationError(f"the {name} hook {problem}: {_HOOKS_FORM}")
        takes, why = "a verb and a resource", "a request waits for it"
        problem = None if self.needs is None else plain_problem(self.needs, 2, takes, why=why, may_yield=True)
        if problem:
            raise DeclarationError(f"the needs hook {problem}: {_NEEDS_FORM}")


def check_answer(name: str, hook: object, resource: Resource[Any], answer: object) -> None:
    """Raise TypeError, which names a mutate or validate hook, if its result shows a mistake."""
    if answer is None:
        return
    # A coroutine or a generator shows that the hook did not run, and so has checked nothing.
    problem = answer_problem(answer)
    if problem is None:
        if name == "validate":
            # Any other value may mean that the resource is invalid: False, a text, a list of problems, an exception.
            mistaken, right = answer is not True, "refuses by raising ValueError(sentence)"
        else:
            # The result of the last call in a lambda, such as that of a `setdefault`, means nothing.
            mistaken, right = isinstance(answer, (Resource, resource.type.payload)), "changes the resource in place"
        if not mistaken:
            return
        problem = f"it returned {repr_text(answer)}: a {name} hook {right}, and returns nothing"
    raise TypeError(f"the {name} hook {function_text(hook)} of {resource.type.name}: {problem}")


def _unit_hooks(hooks: Hooks[T]) -> Hooks[T]:
    """Return hooks that run the rules of partitions and namespaces, and then the type's own."""
    mutate, validate = _in_turn(_hold_unit, hooks.mutate), _in_turn(_check_unit, hooks.validate)
    return replace(hooks, mutate=mutate, validate=validate)


def _hold_unit(unit: Resource[Any]) -> None:
    """Add the finalizer to a unit that is not being deleted, and an empty payload to a unit without one."""
    # Every write adds it, so that a unit is emptied even if it is deleted at once. Only a deletion may remove it.
    if not unit.is_deleting:
        unit.finalizers = unit.finalizers | {EMPTIED_FINALIZER}
    if unit._message.data is None:
        # Consul stores an empty payload too: its clients cannot decode a missing one.
        unit.data = unit.type.payload()


def _check_unit(unit: Resource[Any]) -> None:
    """Raise ValueError if a unit has an owner, or the name of the default unit."""
    kind = unit.type.name.kind.lower()
    if unit.name == DEFAULT_UNIT:
        raise ValueError(f"the {kind} 'default' always exists and cannot be written")
    if unit.owner is not None:
        raise ValueError(
            f"owner must be empty: a {kind} cannot have an owner, so that it is only removed by its own deletion"
        )


def _secret_hooks(payload: type[Any], hooks: Hooks[T]) -> Hooks[T]:
    """Return hooks that also refuse what stands in place of a redacted secret."""
    try:
        secrets = holds_secrets(payload)
    except DeclarationError:
        # A class that the payload contains is declared later, and may have some.
        secrets = True
    return replace(hooks, validate=_in_turn(_check_secrets, hooks.validate)) if secrets else hooks


def _check_secrets(resource: Resource[Any]) -> None:
    """Raise ValueError if a shown resource is written back, which would destroy its secrets."""
    for path, value in secret_values(resource.data).items():
        if value in (REDACTED, REDACTED.encode(), REDACTED_CHANGED, REDACTED_CHANGED.encode()):
            raise ValueError(
                f"data.{'.'.join(map(str, path))} is {REDACTED!r}, which stands in place of a secret: give the secret "
                "itself, as `headway get --show-secrets` shows it"
            )


def _in_turn(
    first: Callable[[Resource[T]], None], then: Callable[[Resource[T]], object] | None
) -> Callable[[Resource[T]], Any]:
    if then is None:
        return first

    @functools.wraps(then)
    def both(resource: Resource[T]) -> object:
        first(resource)
        # The service checks what the program's hook returned.
        return then(resource)

    return both


def with_rules_of_headway(kind: Kind, payload: type[Any], hooks: Hooks[T]) -> Hooks[T]:
    """Return the hooks of a type, after the rules of partitions, namespaces and secrets if they apply to it."""
    # All versions of a partition or namespace follow the same rules, since they have the same resources.
    return _secret_hooks(payload, hooks if kind not in UNIT_KINDS else _unit_hooks(hooks))
