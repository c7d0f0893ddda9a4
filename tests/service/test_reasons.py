"""The reason of a refusal, which reaches the caller with the status and the message over every kind of channel."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from grpclib.const import Status

from headway.api import Reason
from headway.client import client_error
from headway.errors import FailedPrecondition, Fenced, HeadwayError, WriteRejected
from headway.resource import AnyMessage
from headway.rpc import Services, open_channel, open_forwarder, open_server
from headway.service import LeaseService, ResourceService
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, Interrupted, refused
from tests.helpers.declared import a_note, registry
from tests.helpers.service_errors import failed
from tests.service.conftest import reached

URL = "type.googleapis.com/headway.refusal.v1.Refusal"


@asynccontextmanager
async def forwarded() -> AsyncIterator[Calls]:
    """Yield a caller whose calls a forwarder passes to a server."""
    backend = MemoryBackend()
    services = Services(ResourceService(backend, registry()), LeaseService(backend))
    async with (
        open_server(services, ["127.0.0.1:0"]) as server,
        open_forwarder(server.addresses, ["127.0.0.1:0"]) as forwarder,
        open_channel(forwarder.addresses) as channel,
    ):
        yield Calls(backend, registry(), channel=channel)


@pytest.mark.parametrize("how", ["in process", "network", "forwarder"])
async def test_reason_is_the_same_by_every_way(how: str) -> None:
    """A client raises the same error with the same message, which does not contain the reason."""
    async with forwarded() if how == "forwarder" else reached(how, MemoryBackend()) as calls:
        old = (await calls.raise_fence()).fence
        await calls.raise_fence()
        call = calls.write(a_note(), fence=old)
        said = await refused(call, Status.FAILED_PRECONDITION, reason=Reason.FENCED)
        assert said.startswith("the fence of painter is at ")
        with pytest.raises(HeadwayError) as caught:
            await calls.write(a_note(), fence=old)
        error = client_error(caught.value, write=True)
        assert (type(error), str(error)) == (Fenced, said)


async def test_long_message_fits_with_its_details_into_the_trailers() -> None:
    """The message is sent twice, and each character may take many bytes. The connection survives that."""

    async def fail() -> None:
        raise WriteRejected("\N{BUG}" * 5000)

    backend = Interrupted(MemoryBackend())
    async with reached("network", backend) as calls:
        backend.before_commit.append(fail)
        said = await refused(calls.write(a_note()), Status.UNAVAILABLE, "\N{BUG}…", reason=Reason.WRITE_REJECTED)
        assert len(said) < 1000
        await calls.write(a_note())


@pytest.mark.parametrize(
    "detail",
    [
        AnyMessage(type_url="type.googleapis.com/other.Detail", value=b"\x08\x01"),
        AnyMessage(type_url=URL, value=b"\x08\x63"),
        AnyMessage(type_url=URL, value=b"\xff"),
        AnyMessage(type_url=URL),
    ],
    ids=["of another service", "of a newer server", "broken", "empty"],
)
def test_unknown_detail_leaves_the_status(detail: AnyMessage) -> None:
    """A client handles the refusal like a refusal without a reason."""
    error = failed(Status.FAILED_PRECONDITION, "not now", [detail])
    assert type(client_error(error, write=True)) is FailedPrecondition
