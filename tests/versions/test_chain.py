"""Converters: their declaration, chains of them, and converters that fail."""

from __future__ import annotations

import functools
from typing import Any, cast

import pytest

from headway.controller import App
from headway.engine import combine_apps
from headway.errors import DeclarationError
from headway.resource import (
    NAMESPACE,
    ResourceType,
    Scope,
)
from headway.versions import BadConversion, VersionChain, add_converter, chain_of, store_as
from tests.helpers.versions import (
    ALONE,
    V1,
    V2,
    V3,
    Crew,
    Roster,
    down,
    down_again,
    up,
    up_again,
    versions,
    without_converters,
)

OTHER = ResourceType("tests", "v2", "Club", Roster)
WIDE = ResourceType("wide", "v2", "Team", Roster, scope=Scope.CLUSTER)
NARROW = ResourceType("wide", "v1", "Team", Roster)
UNITS = ResourceType("tenancy", "v2beta1", "Namespace", Roster, scope=Scope.PARTITION)


async def asynchronous(old: Any) -> Any:
    return old


class Called:
    async def __call__(self, old: Any) -> Any:
        return old


def lazy(old: Any) -> Any:
    yield old


WRONG: list[tuple[Any, Any, Any, Any, str]] = [
    (Roster, V2, up, down, "older must be a resource type from app.type(...), not <class"),
    (V1, OTHER, up, down, "both must be versions of one kind"),
    (V1, V1, up, down, "the versions must differ"),
    (NARROW, WIDE, up, down, "scope CLUSTER must be NAMESPACE, like wide.v1.Team"),
    (V1, V2, None, down, "up=None must be a function"),
    (V1, V2, up, asynchronous, "must be a plain function, without async or yield"),
    (V1, V2, up, functools.partial(asynchronous), "must be a plain function, without async or yield"),
    (V1, V2, Called(), down, "must be a plain function, without async or yield"),
    (V1, V2, lazy, down, "must be a plain function, without async or yield"),
    (V1, V2, lambda: Crew(), down, "must take one argument, the payload"),
    (V1, ResourceType("tests", "v8", "Team", Crew), up, down, "tests.v8.Team is not registered in this app"),
    (NAMESPACE, UNITS, up, down, "versions of Namespace need no converters"),
]


@pytest.mark.parametrize(("older", "newer", "upward", "downward", "text"), WRONG)
def test_invalid_converter_fails_at_its_declaration(
    older: Any, newer: Any, upward: Any, downward: Any, text: str
) -> None:
    app = App("tests")
    for type in (V1, V2, UNITS):
        app.registry.register(type)
    with pytest.raises(DeclarationError) as caught:
        app.converter(older, newer, up=upward, down=downward)
    assert text in str(caught.value)


def test_converters_form_one_chain_in_any_order_of_declaration() -> None:
    """The storage version is the newest. A step may be added at the front."""
    known = without_converters()
    add_converter(known, V2, V3, up_again, down_again)
    add_converter(known, V1, V2, up, down)
    chain = chain_of(known, V1.kind)
    assert chain is not None
    assert (chain.types, chain.storage) == ((V1, V2, V3), V3)
    store_as(known, V1)
    store_as(known, V1)
    again = chain_of(known, V1.kind)
    assert again is not None
    assert again.storage is V1


@pytest.mark.parametrize(
    ("older", "newer", "text"),
    [
        (V1, V3, "already connects them; declare only one path"),
        (V2, V1, "already connects them; declare only one path"),
        (V2, ALONE, "start at tests.v3.Team, or end at tests.v1.Team"),
        (ALONE, V2, "start at tests.v3.Team, or end at tests.v1.Team"),
        (ALONE, ResourceType("tests", "v10", "Team", Roster), "first declare a converter that connects one of them"),
    ],
)
def test_second_path_and_branch_are_refused(older: Any, newer: Any, text: str) -> None:
    known = versions()
    if newer.name not in known:
        known.register(newer)
    with pytest.raises(DeclarationError) as caught:
        add_converter(known, older, newer, up, down)
    assert text in str(caught.value)


def test_storage_version_needs_a_converter_and_a_single_declaration() -> None:
    known = versions(V2)
    for type, text in (
        (ALONE, "no converter is declared for this version"),
        (OTHER, "tests.v2.Club is not registered in this app"),
        (V3, "the storage version is already tests.v2.Team"),
    ):
        with pytest.raises(DeclarationError) as caught:
            store_as(known, type)
        assert text in str(caught.value)
    with pytest.raises(DeclarationError, match=r"app\.store_as\(\): type must be a resource type from app\.type"):
        App("tests").store_as("v1")  # type: ignore[arg-type]  # what is tested


def test_apps_that_share_types_share_their_converters() -> None:
    """Each may declare a part of the chain, or the same one. Two storage versions conflict."""
    first, second = App("first"), App("second")
    for app in (first, second):
        for type in (V1, V2, V3):
            app.registry.register(type)
        app.converter(V2, V3, up=up_again, down=down_again)
    second.converter(V1, V2, up=up, down=down)
    second.store_as(V1)
    chain = chain_of(combine_apps([first, second])[0], V1.kind)
    assert chain is not None
    assert (chain.types, chain.storage) == ((V1, V2, V3), V1)
    first.store_as(V2)
    with pytest.raises(DeclarationError, match=r"the storage version is already tests\.v2\.Team"):
        combine_apps([first, second])


async def later(old: Any) -> Any:
    return old


def ends(_: Any) -> Any:
    raise SystemExit(3)


def silent(_: Any) -> Any:
    raise LookupError


def interrupted(_: Any) -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("upward", "text"),
    [
        (ends, r"up= of tests\.v1\.Team → tests\.v2\.Team raised SystemExit: 3$"),
        (silent, r"raised LookupError: LookupError was raised without a message at test_chain\.py:\d+$"),
        (
            lambda _: Crew(color=cast("Any", 7)),
            r"returned a payload that cannot be encoded: Crew\.color has the invalid",
        ),
        (lambda old: later(old), "which nothing awaits: it must be a plain function, and call no async one"),
        (lambda old: lazy(old), "which nothing iterates: it must return its result, without a `yield`"),
    ],
)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_every_failure_of_a_converter_is_a_failed_conversion(upward: Any, text: str) -> None:
    chain = a_chain(upward)
    with pytest.raises(BadConversion, match=text):
        chain.converted(Roster(), "v1", "v2")


def test_keyboard_interrupt_propagates_through_a_converter() -> None:
    with pytest.raises(KeyboardInterrupt):
        a_chain(interrupted).converted(Roster(), "v1", "v2")


def a_chain(upward: Any) -> VersionChain:
    known = without_converters()
    add_converter(known, V1, V2, upward, down)
    chain = chain_of(known, V1.kind)
    assert chain is not None
    return chain
