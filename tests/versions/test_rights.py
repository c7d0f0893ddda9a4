"""Rights on one version of a kind. Every verb checks them in the version that the caller names."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib.const import Status

from headway.resource import AnyMessage, Resource, ResourceId, TypeName
from headway.service import Decision
from headway.storage import MemoryBackend
from tests.helpers.calls import Calls, refused
from tests.helpers.declared import ULID, a_status, an_id, id_of, uid_of
from tests.helpers.versions import ALONE, V1, V2, V3, a_team, crew, data_of, roster, versions, without_converters
from tests.service.test_discretion import WriteOnly


class OneVersion:
    """An authorizer that allows everything in one version of the kind, and nothing in the others."""

    def __init__(self, version: str) -> None:
        self._version = version

    def may_know(self, type: TypeName) -> bool:
        return type.version == self._version

    def may_read(self, id: ResourceId, resource: Resource[Any] | None) -> Decision:  # noqa: ARG002 - the protocol's
        return Decision.ALLOWED if id.type.version == self._version else Decision.DENIED

    def may_write(self, id: ResourceId, resource: Resource[Any] | None) -> bool:  # noqa: ARG002 - likewise
        return id.type.version == self._version

    def may_delete(self, id: ResourceId) -> bool:
        return id.type.version == self._version

    def may_take_lease(self, name: str) -> bool:  # noqa: ARG002 - likewise
        return True

    def may_list(self, type: TypeName, partition: str, namespace: str) -> bool:  # noqa: ARG002 - likewise
        return type.version == self._version


@pytest.mark.parametrize("former", [False, True])
async def test_every_verb_serves_a_caller_without_rights_on_the_stored_version(*, former: bool) -> None:
    """The resource was stored by a program without converters, or by this program in its storage version."""
    backend = MemoryBackend()
    writer = Calls(backend, without_converters() if former else versions())
    await writer.write(a_team(V1, roster("ada")))
    calls = Calls(backend, versions(), OneVersion("v2"))
    read = (await calls.read(an_id("one", V2))).resource
    written = (await calls.write_status(id_of(read), a_status())).resource
    assert data_of(written, V2) == crew(("ada", ""))
    assert written is not None
    assert "mine" in written.status
    garbage = a_team(V2, crew(), version="999")
    garbage.data = AnyMessage(type_url=V2.type_url, value=b"\xff")
    await refused(calls.write(garbage), Status.ABORTED, "is stored at version", "read it again")
    changed = await calls.stored(a_team(V2, crew(("ada", "lead"))))
    again = (await calls.write_status(id_of(changed), a_status("7" + ULID[1:]))).resource
    assert data_of(again, V2) == crew(("ada", "lead"))
    await calls.delete(an_id("one", V2))
    assert calls.unexpected == []


async def test_status_in_an_unconvertible_version_requires_the_right_to_read_it() -> None:
    """Without a converter between the two versions, other callers get the same answer as for another incarnation."""
    backend = MemoryBackend()
    stored = await Calls(backend, versions()).stored(a_team(ALONE, roster("ada")))
    blind = Calls(backend, versions(), OneVersion("v2"))
    for uid in (uid_of(stored), ULID):
        call = blind.write_status(an_id("one", V2, uid=uid), a_status())
        await refused(call, Status.NOT_FOUND, f"with uid {uid} not found")


async def test_status_by_a_caller_without_read_permission_is_stored_and_the_rest_redacted() -> None:
    """The stored version of the kind may differ from the caller's."""
    backend = MemoryBackend()
    stored = await Calls(backend, versions()).stored(a_team(V3, V3.payload(room="secret")))
    blind = Calls(backend, versions(), WriteOnly("name"))
    answer = (await blind.write_status(an_id("one", V1, uid=uid_of(stored)), a_status())).resource
    assert answer is not None
    assert (list(answer.status), answer.data) == (["mine"], None)
    call = blind.write_status(an_id("one", V1, uid=uid_of(stored)), a_status(), version="999")
    assert await refused(call, Status.ABORTED) == ("Team one: the stored resource forbids it, and you may not read it")
