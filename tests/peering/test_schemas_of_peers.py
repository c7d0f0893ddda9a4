"""Two programs that peer and declare a type differently: what would be misread is not copied."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from headway._gen.headway.peering import v1 as wire
from headway.peering import PeerLimits, Role
from headway.peering.stream import Copying, Schemas, _schemas
from headway.protobuf import encode, field, message
from headway.resource import Registry, ResourceType, describe, types_pb
from headway.storage import MemoryBackend
from tests.helpers.resources import ACCOUNT, Account
from tests.peering.link_kit import Pair, Side, eventually, open_side
from tests.peering.stream_kit import OTHERS, TEAMS, Importing, Origin, Stream, originals


@message
class Led:
    lead: str = field(1)
    budget: int = field(2)


@message
class Noted:
    lead: str = field(1)
    budget: int = field(2)
    notes: str = field(3)


@message
class Colored:
    color: str = field(1)
    budget: int = field(2)


@message
class Nested:
    left: Nested | None = field(1)
    right: Nested | None = field(2)


LED, NOTED, COLORED, NESTED = (ResourceType[Any]("staff", "v1", "Team", each) for each in (Led, Noted, Colored, Nested))
MISREAD = (
    "staff.v1.Team in default/*: its schema differs here: staff.v1.Team.color (field 1): expected the name 'lead' as "
    "the exporting side has it, got 'color'; if it is the same field, declare "
    "@headway.message(renamed={1: 'lead'}) for Team; otherwise use a new number, such as field(3)"
)


class Stores:
    """Two stores that peer, which outlive the programs on them."""

    def __init__(self) -> None:
        self.exporting, self.importing = MemoryBackend(), MemoryBackend()

    @asynccontextmanager
    async def run(self, exporting: ResourceType[Any], importing: ResourceType[Any]) -> AsyncIterator[Pair]:
        """Run a program on each store, which declares the type like this, and connect them."""
        async with (
            open_side(
                "west", Role.ACCEPTS, exporting, ACCOUNT, registry=(exporting, ACCOUNT), store=self.exporting
            ) as a,
            open_side("east", Role.DIALS, registry=(importing, ACCOUNT), store=self.importing) as b,
            trio.open_nursery() as nursery,
        ):
            pair = Pair(a, b, nursery)
            pair.connect()
            yield pair
            nursery.cancel_scope.cancel()


async def wait_for_copies(side: Side, type: ResourceType[Any], wanted: dict[str, Any]) -> None:
    """Wait until the importing side has these copies."""

    async def copies() -> dict[str, Any]:
        return {each.name: each.data for each in await side.host.client.list(type, partition="peer-east")}

    await eventually(copies, wanted)


async def wait_for_refusal(pair: Pair) -> None:
    """Wait until both sides know that the importing one would misread the type."""

    async def refused() -> object:
        here, there = pair.b.entry.progress, pair.a.entry.progress
        return (here and here.exports_refused, there and there.refusals)

    await eventually(refused, ((MISREAD,), (MISREAD,)))


@pytest.mark.parametrize(("exporting", "importing"), [(LED, NOTED), (NOTED, LED)])
async def test_field_that_only_one_side_has_is_free(
    exporting: ResourceType[Any], importing: ResourceType[Any], autojump_clock: MockClock
) -> None:
    async with Stores().run(exporting, importing) as pair:
        await pair.a.host.client.create(exporting.new("core", exporting.payload(lead="ada", budget=3)))
        await wait_for_copies(pair.b, importing, {"core": importing.payload(lead="ada", budget=3)})
        assert pair.b.entry.progress is not None
        assert pair.b.entry.progress.exports_refused == ()


async def test_misread_type_is_refused_on_both_sides_and_others_are_copied(autojump_clock: MockClock) -> None:
    async with Stores().run(LED, COLORED) as pair:
        await pair.a.host.client.create(LED.new("core", Led(lead="ada", budget=3)))
        await pair.a.host.client.create(ACCOUNT.new("x", Account(login="ada")))
        await wait_for_refusal(pair)
        await wait_for_copies(pair.b, ACCOUNT, {"x": Account(login="ada")})
        await wait_for_copies(pair.b, COLORED, {})
        assert pair.a.ends == pair.b.ends == []


@pytest.mark.parametrize("upgraded", [LED, NOTED])
async def test_copies_stay_while_a_type_does_not_fit_and_follow_once_the_importing_side_fits(
    upgraded: ResourceType[Any], autojump_clock: MockClock
) -> None:
    stores = Stores()
    async with stores.run(LED, LED) as pair:
        await pair.a.host.client.create(LED.new("core", Led(lead="ada")))
        await wait_for_copies(pair.b, LED, {"core": Led(lead="ada")})
    async with stores.run(LED, COLORED) as pair:
        await pair.a.host.client.apply(LED.new("core", Led(lead="ben")))
        await wait_for_refusal(pair)
        # A snapshot of the other exports is complete, and has removed nothing.
        await pair.a.host.client.create(ACCOUNT.new("x", Account(login="ada")))
        await wait_for_copies(pair.b, ACCOUNT, {"x": Account(login="ada")})
        await wait_for_copies(pair.b, COLORED, {"core": Colored(color="ada")})
    async with stores.run(LED, upgraded) as pair:
        await wait_for_copies(pair.b, upgraded, {"core": upgraded.payload(lead="ben")})
        await wait_for_copies(pair.b, ACCOUNT, {"x": Account(login="ada")})


async def test_copies_stay_while_a_type_does_not_fit_and_follow_once_the_exporting_side_fits(
    autojump_clock: MockClock,
) -> None:
    stores = Stores()
    async with stores.run(COLORED, COLORED) as pair:
        await pair.a.host.client.create(COLORED.new("core", Colored(color="red")))
        await wait_for_copies(pair.b, COLORED, {"core": Colored(color="red")})
    async with stores.run(LED, COLORED) as pair:
        await pair.a.host.client.apply(LED.new("core", Led(lead="ada")))
        await wait_for_refusal(pair)
        await wait_for_copies(pair.b, COLORED, {"core": Colored(color="red")})
    async with stores.run(COLORED, COLORED) as pair:
        await pair.a.host.client.apply(COLORED.new("core", Colored(color="blue")))
        await wait_for_copies(pair.b, COLORED, {"core": Colored(color="blue")})
        assert pair.b.entry.progress is not None
        assert pair.b.entry.progress.exports_refused == ()


# --- what a peer may send ---


def schemas_of(*types: ResourceType[Any]) -> Schemas:
    """Return the schemas of a program with these types."""
    registry = Registry()
    for type in types:
        registry.register(type)
    return Schemas(registry)


def schema(description: bytes | types_pb.ListResponse, like: ResourceType[Any] = LED) -> wire.TypeSchema:
    """Return a schema with this description."""
    data = description if isinstance(description, bytes) else encode(description)
    return wire.TypeSchema(type=like.name.message(), description=data)


def test_type_of_a_former_peer_without_a_schema_is_copied(origin: Origin, store: Importing) -> None:
    stream = Stream(origin, store, compare=schemas_of(COLORED).problem)
    stream.run()
    assert stream.receiver.problems == {}
    assert store.copies == originals(origin.now)


def changed(**fields: Any) -> types_pb.ListResponse:
    """Return a description whose first field has these attributes."""
    found = describe([LED])
    for name, value in fields.items():
        setattr(found.messages[0].fields[0], name, value)
    return found


def without_messages() -> types_pb.ListResponse:
    found = describe([LED])
    found.messages = []
    return found


INVALID: dict[str, tuple[bytes | types_pb.ListResponse, str]] = {
    "no bytes": (b"", "got 0 types"),
    "no message": (b"\xff\xff", "not a valid ListResponse"),
    "another type": (describe([ACCOUNT]), "expected a description of staff.v1.Team alone"),
    "two types": (describe([LED, ACCOUNT]), "expected a description of staff.v1.Team alone, got 2 types"),
    "no such message": (without_messages(), "can't be read: list index out of range"),
    "an unknown kind": (
        changed(kind="two\nlines"),
        r"expected two\nlines as the exporting side has it, got string",
    ),
    "an unknown shape": (changed(shape=types_pb.Shape(99)), "as the exporting side has it, got string"),
    "an endless name": (changed(name="x" * 60_000), "expected the name 'xxx"),
}


@pytest.mark.parametrize("name", INVALID)
def test_invalid_schema_refuses_its_type_alone(origin: Origin, store: Importing, name: str) -> None:
    description, problem = INVALID[name]
    stream = Stream(
        origin,
        store,
        exports=(TEAMS, OTHERS),
        schemas=[schema(description)],
        compare=schemas_of(LED, ACCOUNT).problem,
    )
    stream.run()
    assert stream.receiver.problems.keys() == {TEAMS}
    assert problem in stream.receiver.problems[TEAMS]
    assert stream.receiver.problems[TEAMS].isprintable()
    assert len(stream.receiver.problems[TEAMS]) <= 1000
    assert stream.receiver.copying is Copying.CURRENT
    assert store.copies == {}


def test_schema_that_is_nested_without_end_is_refused() -> None:
    """Each message of it is another one, so no pair of messages has been compared before."""
    found = describe([NESTED])
    found.messages = [
        types_pb.Message(
            fields=[
                types_pb.Field(name="left", number=1, shape=types_pb.Shape.OPTIONAL, kind="message", held=place + 1)
            ]
        )
        for place in range(1200)
    ]
    why = schemas_of(NESTED).problem(NESTED.name, encode(found))
    assert why is not None
    assert "can't be read" in why


def test_schema_that_is_sent_again_is_not_compared_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer may send its exports very often."""
    schemas, other = schemas_of(LED), encode(describe([COLORED]))
    why = schemas.problem(LED.name, other)
    assert why is not None

    def compared(*_: object, **__: object) -> list[object]:
        raise AssertionError("it was compared again")

    monkeypatch.setattr(_schemas, "differences", compared)
    assert schemas.problem(LED.name, other) == why
    with pytest.raises(AssertionError):
        schemas.problem(LED.name, encode(describe([NOTED])))


@pytest.mark.parametrize("most", ["schema_size", "schemas_size"])
def test_schema_that_is_too_large_is_refused_and_never_compared(origin: Origin, store: Importing, most: str) -> None:
    size = len(encode(describe([LED])))
    compared: list[object] = []

    def compare(*given: object) -> None:
        compared.append(given)

    for less, refused in ((0, set()), (1, {TEAMS})):
        limits = PeerLimits(batch=2, **{most: size - less})
        stream = Stream(origin, store, limits=limits, schemas=[schema(describe([LED]))], compare=compare)
        stream.run()
        assert stream.receiver.problems.keys() == refused
        assert len(compared) == 1
    limit = f"at most {size - 1} are accepted" if most == "schema_size" else f"have more than {size - 1} bytes"
    assert limit in stream.receiver.problems[TEAMS]


def test_exporting_side_sends_the_schemas_that_a_peer_accepts() -> None:
    schemas = schemas_of(LED, ACCOUNT)
    account, led = (encode(describe([each])) for each in (ACCOUNT, LED))
    both = [schema(account, ACCOUNT), schema(led)]
    exports = [TEAMS, TEAMS._replace(partition="west"), OTHERS]
    assert schemas.describe(exports, PeerLimits()) == both
    assert schemas.describe(exports, PeerLimits(schemas_size=len(account) + len(led))) == both
    assert schemas.describe(exports, PeerLimits(schemas_size=len(account) + len(led) - 1)) == both[:1]
    assert schemas.describe(exports, PeerLimits(schema_size=min(len(account), len(led)) - 1)) == []
