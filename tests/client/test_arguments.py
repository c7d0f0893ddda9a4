"""Wrong arguments of the client's methods, which are refused before the call by an error that names them."""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

import headway
from headway.client import Client, LeaseClient
from headway.controller import App
from headway.engine import connect, open_workers
from headway.errors import InvalidArgument
from headway.resource import pb
from tests.helpers.calls import Calls
from tests.helpers.declared import NOTE, Note

Call = Callable[[Client], Awaitable[object]]
Leases = Callable[[LeaseClient], Awaitable[object]]

FENCE = pb.Fence(controller="staff/teams", term=1)


async def _first_page(client: Client, **arguments: Any) -> None:
    async for _ in client.pages(NOTE, **arguments):
        return


async def _watched(client: Client, **arguments: Any) -> None:
    async with client.watch(NOTE, **arguments):
        pass


HALF = "caf\udce9"  # as os.fsdecode() returns it for a name of a file in Latin-1


async def _with(client: Client, **fields: Any) -> None:
    """Write a status with one condition of these fields."""
    await client.write_status(NOTE.new("core"), "teams", [headway.Condition(**{"type": "Ready", **fields})])


async def _noted(client: Client, key: str, value: str) -> None:
    note = NOTE.new("core")
    note.metadata[key] = value
    await client.write(note)


def _wrong(given: Any) -> Any:
    """Return the value without its class, so that the type checker accepts it as any argument."""
    return given


SEARCH = "must be a string, such as 'default', or '*' for any, not "
READING: list[tuple[str, Call]] = [
    ("id must be a name or an id, such as 'core' or resource.id, not None", lambda c: c.read(NOTE, _wrong(None))),
    ("id must be a name or an id, such as 'core' or resource.id, not 3", lambda c: c.get(NOTE, _wrong(3))),
    ("id must be a name or an id", lambda c: c.get(NOTE, _wrong(NOTE.new("core")))),
    ("id must be a name or an id", lambda c: headway.until(c, NOTE, _wrong(None), lambda _: True)),
    ("id must be a name or an id", lambda c: headway.until_gone(c, NOTE, _wrong(3))),
    (
        "min_revision must be a whole number >= 0, such as event.revision or int(resource.version), not '5'",
        lambda c: c.read(NOTE, "core", min_revision=_wrong("5")),
    ),
    ("min_revision must be a whole number", lambda c: c.read(NOTE, "core", min_revision=_wrong(None))),
    ("min_revision must be a whole number", lambda c: c.read(NOTE, "core", min_revision=-1)),
    ("min_revision must be a whole number", lambda c: c.list(NOTE, min_revision=_wrong("5"))),
    (f"partition {SEARCH}3", lambda c: c.list(NOTE, partition=_wrong(3))),
    (f"namespace {SEARCH}None", lambda c: _first_page(c, namespace=None)),
    (f"namespace {SEARCH}3", lambda c: _watched(c, namespace=3)),
    ("name_prefix must be a string, such as 'team-', not None", lambda c: c.list(NOTE, name_prefix=_wrong(None))),
    ("name_prefix must be a string, such as 'team-', not 3", lambda c: _watched(c, name_prefix=3)),
    ("filter must be a string, such as 'color=red, size!=big', not 3", lambda c: c.list(NOTE, filter=_wrong(3))),
    ("filter must be a string", lambda c: _first_page(c, filter={"color": "red"})),
    ("size must be a whole number from 1 to 100000, such as size=500, not 'x'", lambda c: _first_page(c, size="x")),
    ("size must be a whole number from 1 to 100000, such as size=500, not None", lambda c: _first_page(c, size=None)),
    ("size must be a whole number from 1 to 100000, such as size=500, not 0", lambda c: _first_page(c, size=0)),
    (
        "size must be a whole number from 1 to 100000, such as size=500, not 100001",
        lambda c: _first_page(c, size=100_001),
    ),
    (
        "resume_after must be a Position, such as progress.position (a revision alone doesn't name its store), not 5",
        lambda c: _watched(c, resume_after=5),
    ),
    ("resume_after must be a Position", lambda c: _watched(c, resume_after=NOTE.new("core"))),
    (
        "owner must be a resource or an id, such as team, or team.id with its uid, not 'core'",
        lambda c: c.list_by_owner(_wrong("core")),
    ),
]
WRITING: list[tuple[str, Call]] = [
    ("expected a resource, as made by TYPE.new(name, data), got None", lambda c: c.apply_over(None, _wrong(None))),
    ("expected a resource", lambda c: c.apply_over(_wrong("core"), NOTE.new("core"))),
    (
        "version must be a string, such as resource.version, not 3",
        lambda c: c.delete(NOTE.new("core"), version=_wrong(3)),
    ),
    ("version must be a string", lambda c: c.delete(NOTE.id("core"), version=_wrong(None))),
    (
        "version '' is not the version of a stored",
        lambda c: c.delete(NOTE.id("core"), version=NOTE.new("core").version),
    ),
    ("condition 'Ready': state 'True' must be a headway.ConditionState", lambda c: _with(c, state="True")),
    ("condition 'Ready': state 2 must be a headway.ConditionState, such as", lambda c: _with(c, state=2)),
    ("condition 'Ready': state None must be a headway.ConditionState", lambda c: _with(c, state=None)),
    ("condition 'Ready': state False must be a headway.ConditionState", lambda c: _with(c, state=False)),
    ("condition 5: type must be a string, such as 'Ready', not 5", lambda c: _with(c, type=5)),
    ("condition 'Ready': reason must be a string, such as 'PortTaken', not 5", lambda c: _with(c, reason=5)),
    ("condition 'Ready': message must be a string, such as str(error)", lambda c: _with(c, message=LookupError("x"))),
    ("condition 'Ready': message must be a string", lambda c: _with(c, message=None)),
    ("condition 'Ready': resource 'x' must be a reference, such as", lambda c: _with(c, resource="x")),
    ("condition 'Ready': resource <ResourceType", lambda c: _with(c, resource=NOTE)),
    (
        "condition 'Ready': resource: Reference.name",
        lambda c: _with(c, resource=pb.Reference(name=_wrong(5))),
    ),
    (f"condition {HALF!r}: type {HALF!r} has half of a surrogate pair", lambda c: _with(c, type=HALF)),
    (f"condition 'Ready': reason {HALF!r} has half of a surrogate pair", lambda c: _with(c, reason=HALF)),
    (f"condition 'Ready': message {HALF!r} has half of a surrogate pair", lambda c: _with(c, message=HALF)),
    (f"metadata key {HALF!r} has half of a surrogate pair", lambda c: _noted(c, HALF, "x")),
    (f"metadata['path'] {HALF!r} has half of a surrogate pair", lambda c: _noted(c, "path", HALF)),
    (
        "key must be a string, such as the controller's name, not 3",
        lambda c: c.write_status(NOTE.new("core"), _wrong(3), []),
    ),
    (
        "observed_generation must be a string, such as resource.generation, not 3",
        lambda c: c.write_status(NOTE.new("core"), "teams", [], observed_generation=_wrong(3)),
    ),
]


@pytest.mark.parametrize(("says", "call"), [*READING, *WRITING])
async def test_wrong_argument_is_refused_before_the_call(client: Client, calls: Calls, says: str, call: Call) -> None:
    """The error of a server would look like a failure of the server, and callers would retry the call."""
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        await call(client)
    assert calls.revision == 0


TERM = "term must be a whole number >= 1, such as the `term` of acquire()'s answer, not "
LEASES: list[tuple[str, Leases]] = [
    ("ttl must be a number of seconds from 1 to 3600, not '5'", lambda c: c.acquire("s", "w", ttl=_wrong("5"))),
    ("ttl must be a number of seconds from 1 to 3600, not 0.5", lambda c: c.acquire("s", "w", ttl=0.5)),
    ("ttl must be a number of seconds from 1 to 3600, not True", lambda c: c.acquire("s", "w", ttl=True)),
    ("wait must be a number of seconds from 0 to 20, not 21", lambda c: c.acquire("s", "w", 5, wait=21)),
    ("wait must be a number of seconds from 0 to 20, not None", lambda c: c.acquire("s", "w", 5, wait=_wrong(None))),
    ("patience must be a number of seconds >= 0, not '5'", lambda c: c.acquire("s", "w", 5, patience=_wrong("5"))),
    ("attempt must be a string", lambda c: c.acquire("s", "w", 5, attempt=_wrong(3))),
    ("name must be a string, such as 'staff/reports', not 3", lambda c: c.acquire(_wrong(3), "w", 5)),
    ("holder must be a string, such as 'web-1', not None", lambda c: c.acquire("s", _wrong(None), 5)),
    (f"{TERM}'3'", lambda c: c.keep_alive("s", "w", _wrong("3"))),
    (f"{TERM}1.5", lambda c: c.keep_alive("s", "w", _wrong(1.5))),
    (f"{TERM}None", lambda c: c.release("s", "w", _wrong(None))),
    ("holder must be a string", lambda c: c.release("s", _wrong(3), 1)),
    ("timeout must be a number of seconds >= 0, not '3'", lambda c: c.keep_alive("s", "w", 1, timeout=_wrong("3"))),
    ("timeout must be a number of seconds >= 0, not -1", lambda c: c.release("s", "w", 1, timeout=-1)),
    ("name_prefix must be a string, such as 'staff/', not 3", lambda c: c.list(_wrong(3))),
    ("controller must be a string, such as 'staff/teams', not 3", lambda c: c.raise_fence(_wrong(3), "")),
    ("member must be a string", lambda c: c.raise_fence("c", _wrong(None))),
    ("term must be a whole number >= 0", lambda c: c.raise_fence("c", "", term=_wrong("3"))),
    ("number must be a whole number >= 0", lambda c: c.raise_fence("c", "", number=_wrong(1.5))),
    (
        "fence must be a Fence, such as the `fence` of raise_fence()'s answer, not",
        lambda c: c.record_checkpoint(_wrong(None), 1),
    ),
    ("revision must be a whole number >= 0", lambda c: c.record_checkpoint(FENCE, _wrong("1"))),
]


@pytest.mark.parametrize(("says", "call"), LEASES)
async def test_wrong_argument_about_a_lease_is_refused(client: Client, says: str, call: Leases) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        await call(client.leases)
    assert await client.leases.list() == []


@pytest.mark.parametrize(
    ("condition", "options", "says"),
    [
        ("", {}, "condition '' must be the type of a condition, such as 'Ready'"),
        (headway.Condition("Ready"), {}, "condition must be a string, such as 'Ready', not Condition"),
        ("Ready", {"state": True}, "state must be a headway.ConditionState, such as FALSE, not True"),
        (
            "Ready",
            {"state": "TRUE"},
            "state must be a headway.ConditionState, such as FALSE, not 'TRUE'",
        ),
        ("Ready", {"key": 3}, "key must be a string, such as 'staff/teams', not 3"),
    ],
)
async def test_condition_that_can_never_hold_is_refused(
    client: Client, condition: Any, options: dict[str, Any], says: str
) -> None:
    """The wait would never end."""
    with trio.fail_after(5), pytest.raises(InvalidArgument, match=re.escape(says)):
        await headway.until_condition(client, NOTE, "core", condition, **options)


NONE = "expected at least one address, such as '127.0.0.1:9000', but got none: an engine has one if it is opened with "
ENDPOINTS: list[tuple[str, Any]] = [
    (NONE + "network=headway.Network(['127.0.0.1:9000'], ...)", []),
    (NONE, ()),
    ("expected addresses, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], got None", None),
    ("expected addresses, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], got 9000", 9000),
    ("expected addresses, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], got [9000]", [9000]),
]


@pytest.mark.parametrize(("says", "endpoints"), ENDPOINTS)
async def test_connect_refuses_endpoints_that_are_not_addresses(says: str, endpoints: Any) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        async with connect(endpoints):
            pytest.fail("the connection was opened")


@pytest.mark.parametrize("timeout", [0, -1, "5", None, True, math.nan])
async def test_connect_refuses_a_timeout_that_no_call_can_meet(timeout: Any) -> None:
    """With a timeout of 0, each call would fail as if the server had not answered."""
    with pytest.raises(InvalidArgument, match=re.escape(f"timeout must be > 0 seconds, not {timeout!r}")):
        async with connect("127.0.0.1:9", timeout=timeout):
            pytest.fail("the connection was opened")


TOKEN_FORM = (
    "token must be a string, as printed by `headway token new`, or '' for none, or a function that returns it, such as "
    "headway.rpc.token_file('token'), not "
)
CONNECTING: list[tuple[str, dict[str, Any]]] = [
    (f"{TOKEN_FORM}a value of class int", {"token": 3}),
    (f"{TOKEN_FORM}a value of class bytes", {"token": b"hw_secret"}),
    (f"{TOKEN_FORM}None", {"token": None}),
    ("invalid token: it must be one line of ASCII characters", {"token": "hw_1\nx"}),
    ("invalid token: it must be one line of ASCII characters", {"token": "hw_é"}),
    ("tls must be a TLS context, such as headway.rpc.client_tls(...), not True", {"tls": True}),
    ("server_name must be a string, such as 'engine.example.com', not 3", {"server_name": 3}),
    ("insecure must be True or False, not 'no'", {"insecure": "no"}),
]


@pytest.mark.parametrize("door", [connect, open_workers])
@pytest.mark.parametrize(("says", "given"), CONNECTING)
async def test_wrong_argument_of_a_connection_is_refused_before_the_block(
    says: str, given: dict[str, Any], door: Any
) -> None:
    """Workers would otherwise repeat a call that can never succeed. The error never shows a token."""
    with pytest.raises(InvalidArgument, match=re.escape(says)) as caught:
        async with door("127.0.0.1:9", **given):
            pytest.fail("the connection was opened")
    assert "hw_" not in str(caught.value)


@pytest.mark.parametrize("given", [3, None, object(), App])
async def test_workers_refuse_endpoints_that_are_neither_addresses_nor_a_channel(given: Any) -> None:
    says = "expected the addresses of engines, such as '127.0.0.1:9000' or ['unix:/path/to/socket'], or a channel"
    with pytest.raises(InvalidArgument, match=re.escape(says)):
        async with open_workers(given):
            pytest.fail("the workers were started")


async def test_values_at_the_bounds_are_accepted(client: Client) -> None:
    """A number of seconds may be a float, and an id may be of any version of the kind."""
    await client.write(NOTE.new("core", Note(text="hello")))
    assert (await client.read(NOTE, NOTE.id("core"), min_revision=1)).name == "core"
    assert len([page async for page in client.pages(NOTE, size=100_000)]) == 1
    for ttl in (1, 3600.0):
        term = (await client.leases.acquire("s", "w", ttl)).term
    await client.leases.keep_alive("s", "w", term, timeout=math.inf)
    async with connect("127.0.0.1:9", timeout=math.inf):
        pass
