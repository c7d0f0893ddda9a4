"""The registry: types by name, each once."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

from headway.errors import DeclarationError, InvalidArgument
from headway.pauses import PAUSE
from headway.peering import PEERING
from headway.quotas import QUOTA
from headway.resource import (
    CONTROLLER_RECORD,
    EMPTIED_FINALIZER,
    EVENT,
    NAMESPACE,
    PARTITION,
    RESERVED_GROUPS,
    TOMBSTONE,
    Hooks,
    Registry,
    ResourceType,
    Scope,
    TypeName,
    is_builtin,
)
from headway.resource._builtin_types import BUILTIN_TYPES
from tests.helpers.declared import NOTE, NOTE_V2, TYPES, Memo, Note, registry

BUILTIN: list[ResourceType[Any]] = [TOMBSTONE, PARTITION, NAMESPACE, EVENT, CONTROLLER_RECORD]
ADDED: list[ResourceType[Any]] = [PAUSE, PEERING, QUOTA]
"""The types of add-ons. Their order is that of the imports."""


def test_registered_types_are_resolved_by_exact_name() -> None:
    """The registry iterates over them in the order of their registration."""
    known = registry()
    count = len(BUILTIN) + len(ADDED)
    assert list(known)[: len(BUILTIN)] == BUILTIN
    assert {*list(known)[len(BUILTIN) : count]} == {*ADDED}
    assert list(known)[count:] == TYPES
    for type in TYPES:
        assert known.resolve(type.name) is type
        assert type.name in known
    assert TypeName("tests", "v3", "Note") not in known


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (TypeName("tests", "v1", "Noet"), "type tests.v1.Noet is not registered; did you mean 'tests.v1.Note'?"),
        (TypeName("tests", "v3", "Note"), "type tests.v3.Note is not registered; did you mean 'tests.v"),
        (
            TypeName("acme", "v9", "Zebra"),
            "type acme.v9.Zebra is not registered; known: event.v1.Event, pause.v1.Pause, peering.v1.Peering, ten",
        ),
    ],
)
def test_unregistered_name_is_refused_with_a_suggestion(name: TypeName, said: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        registry().resolve(name)
    assert str(caught.value).startswith(said)
    assert "pass the app" not in str(caught.value)


def test_registry_contains_the_built_in_types() -> None:
    """Their groups are reserved. Tombstones and controller records are never suggested."""
    known = [str(each.name) for each in (*BUILTIN, *ADDED) if each not in (TOMBSTONE, CONTROLLER_RECORD)]
    listed = re.escape(", ".join(sorted(known)))
    said = rf"^type tests\.v1\.Note is not registered; known: {listed}\. No app declares a type here: pass the app, "
    with pytest.raises(InvalidArgument, match=said):
        Registry().resolve(NOTE.name)
    for group in ("internal", "tenancy", "peering"):
        with pytest.raises(DeclarationError, match=f"group '{group}' is reserved by Headway; choose another"):
            Registry().register(ResourceType(group, "v1", "Note", Note))


def test_add_on_that_is_imported_after_a_registry_is_made_adds_its_types(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program makes its app before it imports, say, `headway.pauses`."""
    known, late = registry(), ResourceType("internal", "v1", "Late", Note)
    hidden = known.of_known(lambda _: True)
    monkeypatch.setitem(BUILTIN_TYPES, late.name, late)
    assert known.resolve(late.name) is late
    assert late in [*known]
    assert late.name in known
    assert is_builtin(late)
    assert hidden.find(late.name) is None


def test_new_versions_of_partitions_and_namespaces_can_be_registered() -> None:
    """They have the scope of their kind and its rules. The rules of the type itself follow."""
    seen: list[frozenset[str]] = []
    hooks: Hooks[Note] = Hooks(mutate=lambda unit: seen.append(unit.finalizers))
    known = Registry()
    namespace = ResourceType("tenancy", "v2beta1", "Namespace", Note, scope=Scope.PARTITION, hooks=hooks)
    known.register(namespace)
    known.register(ResourceType("tenancy", "v2beta1", "Partition", Note, scope=Scope.CLUSTER))
    assert known.resolve(TypeName("tenancy", "v2beta1", "Namespace")) is namespace
    assert namespace.hooks.mutate is not None
    assert namespace.hooks.validate is not None
    namespace.hooks.mutate(unit := namespace.new("up"))
    assert seen == [unit.finalizers] == [{EMPTIED_FINALIZER}]
    with pytest.raises(ValueError, match="the namespace 'default' always exists"):
        namespace.hooks.validate(namespace.new("default"))
    with pytest.raises(DeclarationError, match=r"scope NAMESPACE must be PARTITION, like tenancy\.v1\.Namespace"):
        known.register(ResourceType("tenancy", "v3", "Namespace", Note))


def test_every_declared_type_has_a_scope() -> None:
    """Only a tombstone has none: it is in the units of its owner."""
    with pytest.raises(DeclarationError, match="scope must be CLUSTER, PARTITION or NAMESPACE"):
        Registry().register(ResourceType("tests", "v1", "Note", Note, scope=Scope.UNDEFINED))


def test_all_versions_of_a_kind_must_have_one_scope() -> None:
    """They share one name space."""
    known = Registry()
    known.register(NOTE)
    other = ResourceType("tests", "v2", "Note", Memo, scope=Scope.CLUSTER)
    said = r"type tests\.v2\.Note: scope CLUSTER must be NAMESPACE, like tests\.v1\.Note"
    with pytest.raises(DeclarationError, match=said):
        known.register(other)
    known.register(NOTE_V2)
    assert len(list(known)) == len(BUILTIN) + len(ADDED) + 2


@pytest.mark.parametrize("wrong", [Note, "tests.v1.Note", None])
def test_register_accepts_only_a_type(wrong: object) -> None:
    """A payload class or a name is refused."""
    with pytest.raises(DeclarationError, match=r"expected a headway\.ResourceType, got"):
        Registry().register(cast("Any", wrong))


def test_guide_names_every_reserved_group() -> None:
    page = (Path(__file__).parents[2] / "docs" / "guides" / "types.md").read_text()
    sentence = re.search(r"The groups (.*) are reserved for Headway\.", page)
    assert sentence is not None
    assert set(re.findall(r"`(\w+)`", sentence[1])) == RESERVED_GROUPS
