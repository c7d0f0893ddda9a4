"""An older and a newer program of one type. The newer one has more fields in every message."""

from __future__ import annotations

from typing import Any

import headway
from headway.protobuf import field, message
from headway.storage import MemoryBackend


@message
class OldPart:
    name: str = field(1)


@message
class NewPart:
    name: str = field(1)
    extra: str = field(2)


@message
class Old:
    title: str = field(1)
    part: OldPart | None = field(2)
    always: OldPart = field(3)
    parts: list[OldPart] = field(4)
    named: dict[str, OldPart] = field(5)
    token: str = field(6, secret=True)
    mail: str | None = field(7, oneof="way")
    phone: str | None = field(8, oneof="way")


@message
class New:
    title: str = field(1)
    part: NewPart | None = field(2)
    always: NewPart = field(3)
    parts: list[NewPart] = field(4)
    named: dict[str, NewPart] = field(5)
    token: str = field(6, secret=True)
    mail: str | None = field(7, oneof="way")
    phone: str | None = field(8, oneof="way")
    pager: str | None = field(9, oneof="way")
    extra: str = field(10)
    key: str = field(11, secret=True)


def program(
    payload: type[Any], hooks: headway.Hooks[Any] | None = None
) -> tuple[headway.App, headway.ResourceType[Any]]:
    """Return an app whose type ``Team`` has this payload, and the type."""
    app = headway.App("staff")
    return app, app.type("staff", "v1", "Team", payload, hooks=hooks or headway.Hooks())


def whole() -> New:
    """Return a message with a field that the older program does not know in every message that it holds."""
    return New(
        title="Core",
        part=NewPart(name="a", extra="A"),
        always=NewPart(name="b", extra="B"),
        parts=[NewPart(name="c", extra="C"), NewPart(name="d", extra="D")],
        named={"x": NewPart(name="e", extra="E")},
        token="hunter22",
        extra="F",
        key="swordfish",
    )


def known(new: New) -> Old:
    """Return a message as the older program makes it, without any field that it does not know."""
    return Old(
        title=new.title,
        part=None if new.part is None else OldPart(name=new.part.name),
        always=OldPart(name=new.always.name),
        parts=[OldPart(name=each.name) for each in new.parts],
        named={key: OldPart(name=each.name) for key, each in new.named.items()},
        token=new.token,
        mail=new.mail,
        phone=new.phone,
    )


def drop_unknown(resource: headway.Resource[Any]) -> None:
    """Make a new payload, with a default for the title: a mutate hook of the older program."""
    resource.data = known(resource.data)
    resource.data.title = resource.data.title or "Core"


async def write_whole(store: MemoryBackend) -> None:
    """Write ``whole()`` by the newer program, into a store that the older one has opened before: it is an upgrade."""
    older, _ = program(Old)
    async with headway.open_engine(store, older):
        pass
    newer, team = program(New)
    async with headway.open_engine(store, newer) as engine:
        await engine.client.write(team.new("core", whole()))


async def read_whole(store: MemoryBackend) -> New:
    """Return what the newer program reads."""
    newer, team = program(New)
    async with headway.open_engine(store, newer) as engine:
        read: New = (await engine.client.read(team, "core")).data
        return read
