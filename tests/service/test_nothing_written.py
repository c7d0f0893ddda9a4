"""Failed writes: over a network, too, the error says whether anything was written."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
import trio
from grpclib.const import Status

from headway.client import Client
from headway.errors import HeadwayError, OutcomeUnknown, StoreUnusable, Unavailable, WriteRejected
from headway.resource import Hooks, Resource, ResourceType
from headway.storage import EtcdBackend, MemoryBackend
from tests.helpers.calls import Interrupted
from tests.helpers.declared import NOTE, Note, registry
from tests.helpers.fake_etcd import serving_etcd
from tests.helpers.heard_writes import Heard
from tests.service.conftest import reached
from tests.storage.etcd_kit import failing

SAID: list[tuple[HeadwayError, type[HeadwayError]]] = [
    (Unavailable("there is no leader"), Unavailable),
    (StoreUnusable("it is closed"), Unavailable),
    (WriteRejected("the disk is full"), WriteRejected),
    (OutcomeUnknown("it may have happened"), OutcomeUnknown),
]
VERBS: dict[str, Callable[[Client, Resource[Note]], Awaitable[object]]] = {
    "write": lambda client, _: client.write(NOTE.new("two")),
    "update": lambda client, one: client.write(one),
    "write_status": lambda client, one: client.write_status(one, "mine", []),
    "delete": lambda client, one: client.delete(one),
}


@pytest.mark.parametrize(("error", "expected"), SAID, ids=lambda each: type(each).__name__)
@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("how", ["in process", "network"])
async def test_failed_write_reports_whether_anything_was_written(
    how: str, verb: str, error: HeadwayError, expected: type[HeadwayError]
) -> None:
    """Only a write that may have been stored has an unknown outcome, which a run would have to resolve."""

    async def fail() -> None:
        await trio.lowlevel.checkpoint()
        raise error

    backend = Interrupted(MemoryBackend())
    async with reached(how, backend) as calls:
        client = Client(calls.channel, registry())
        one = await client.write(NOTE.new("one"))
        one.metadata["changed"] = "yes"
        backend.before_commit.append(fail)
        with pytest.raises(HeadwayError, match=str(error)) as caught:
            await VERBS[verb](client, one)
        assert type(caught.value) is expected
        # An error that is its own cause would be garbage, with all that its frames hold.
        assert error.__cause__ is None


def _raise(resource: Resource[Note]) -> None:
    raise AttributeError(f"a mistake, seen at {resource.id.name}")


def _garble(resource: Resource[Note]) -> None:
    resource.metadata["count"] = 5  # type: ignore[assignment]  # the mistake


@pytest.mark.parametrize(
    "hooks", [Hooks(mutate=_raise), Hooks(validate=_raise), Hooks(mutate=_garble)], ids=["mutate", "validate", "garble"]
)
@pytest.mark.parametrize("how", ["in process", "network"])
async def test_failing_hook_leaves_no_unknown_outcome(how: str, hooks: Hooks[Note]) -> None:
    """Hooks run before the store is asked, so a run has no write to resolve."""
    broken = ResourceType("tests", "v1", "Broken", Note, hooks=hooks)
    known, heard = registry(), Heard()
    known.register(broken)
    async with reached(how, MemoryBackend(), types=known) as calls:
        client = Client(calls.channel, known, heard)
        for call in (client.write, client.create, client.apply, client.validate):
            with pytest.raises(Unavailable, match=r"^INTERNAL: ") as caught:
                await call(broken.new("one"))
            assert "mistake" not in str(caught.value), "the caller must not get the exception's text"
        assert (len(heard.unknowns), calls.revision, len(calls.unexpected)) == (0, 0, 4)


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (Status.UNAVAILABLE, "etcdserver: no leader", Unavailable),
        (Status.UNAVAILABLE, "etcdserver: request timed out", OutcomeUnknown),
    ],
)
async def test_etcd_write_that_has_not_begun_leaves_no_unknown_outcome(
    status: Status, said: str, expected: type[HeadwayError]
) -> None:
    """This holds for a client that writes over a network through an engine on etcd, too."""
    async with (
        serving_etcd() as (fake, endpoint),
        EtcdBackend(f"etcd://{endpoint}/staff") as store,
        reached("network", store) as calls,
    ):
        fake.on_txn = failing(status, said)
        with pytest.raises(HeadwayError, match=said) as caught:
            await Client(calls.channel, registry()).write(NOTE.new("one"))
        assert type(caught.value) is expected
