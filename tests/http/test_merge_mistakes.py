"""Mistakes in a merge are never ignored, and a merge never reaches another incarnation."""

from __future__ import annotations

from typing import Any

import pytest

import headway
from headway import field
from headway.resource import ResourceType
from tests.http.kit import CORE, TEAM, Member, Rank, Team, serving

ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
STORED = Team(members=[Member(login="ada", rank=Rank.SENIOR)], note="x", budget=7, labels={"a": "1"})


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"data": {"nte": None}}, "data.nte: Team has no field 'nte'; did you mean 'note'?"),
        ({"data": {"nte": "y"}}, "data.nte: Team has no field 'nte'; did you mean 'note'?"),
        ({"dta": None}, "dta: a document has no field 'dta'"),
        ({"version": 999}, "version: 999 is read as a whole number, not text; quote it"),
        ({"version": None}, "version: null means no value; write text, or leave it out"),
        ({"id": {"uid": None}}, "id.uid: null means no value; write text, or leave it out"),
        ({"data": {"budget": "y"}}, "data.budget: 'y' is text"),
        ({"status": None}, "status cannot be patched"),
        # A key that could not be set cannot be removed, either.
        ({"data": {"shifts": {"01": None}}}, "data.shifts.01: as a key, '01' must be '1', as it is stored"),
        ({"data": {"shifts": {"01": "y"}}}, "data.shifts.01: as a key, '01' must be '1', as it is stored"),
        ({"data": {"shifts": {"x": None}}}, "data.shifts.x: as a key, 'x' is"),
        ({"data": {"shifts": {"+2": None}}}, "as a key, '+2' must be '2', as it is stored"),
        ({"data": {"open": {"True": None}}}, "data.open.True: as a key"),
        ({"data": {"open": {"true": {"lgin": None}}}}, "data.open.true.lgin: Member has no field"),
    ],
)
async def test_mistake_is_refused_by_the_path_of_its_member(changes: Any, says: str) -> None:
    """The place in the merged document would be of no use: the caller has not written it."""
    async with serving() as api:
        before = await api.client.apply(TEAM.new("core", STORED))
        answer = await api.http.patch(CORE, json=changes)
        assert (answer.status_code, says in answer.json()["message"]) == (400, True)
        assert (await api.client.read(TEAM, "core")).version == before.version


@pytest.mark.parametrize(("stored", "added"), [(12_000, 0), (7_000, 7_000)])
async def test_resource_of_too_many_values_is_not_merged(stored: int, added: int) -> None:
    """Neither is a resource that would have too many. Reading so large a document would hold the loop for seconds."""
    async with serving() as api:
        labels = {f"key-{number}": "" for number in range(stored)}
        before = await api.client.apply(TEAM.new("core", Team(note="x", labels=labels)))
        more = {f"more-{number}": "" for number in range(added)}
        answer = await api.http.patch(CORE, json={"data": {"note": "y", "labels": more}})
        assert (answer.status_code, answer.json()["code"]) == (413, "RESOURCE_EXHAUSTED")
        assert "a PATCH is limited to 12000; write it over gRPC" in answer.json()["message"]
        assert await api.client.read(TEAM, "core") == before
        assert (await api.http.get(CORE)).status_code == 200


@pytest.mark.parametrize("where", ["id", "document", "query"])
async def test_merge_with_the_uid_of_another_incarnation_changes_nothing(where: str) -> None:
    async with serving() as api:
        before = await api.client.apply(TEAM.new("core", STORED))
        uids: dict[str, dict[str, Any]] = {"id": {"id": {"uid": ULID}}, "document": {"uid": ULID}, "query": {}}
        path = f"{CORE}?uid={ULID}" if where == "query" else CORE
        answer = await api.http.patch(path, json={**uids[where], "data": {"note": "y"}})
        assert answer.status_code in (404, 409)
        assert await api.client.read(TEAM, "core") == before
        mine = await api.http.patch(CORE, json={"id": {"uid": before.id.uid}, "data": {"note": "y"}})
        assert mine.json()["data"]["note"] == "y"


async def test_document_that_was_read_can_be_merged_back() -> None:
    async with serving() as api:
        await api.client.apply(TEAM.new("core", STORED))
        read = (await api.http.get(CORE)).json()
        read["data"]["note"] = "y"
        assert (await api.http.patch(CORE, json=read)).json()["data"]["note"] == "y"


@pytest.mark.parametrize("name", ["on_call", "onCall"])
async def test_each_spelling_of_a_field_names_the_same_member(name: str) -> None:
    """Also in a nested message. A null by the other spelling would otherwise remove nothing, in silence."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(on_call=Member(login="ada", rank=Rank.SENIOR))))
        merged = (await api.http.patch(CORE, json={"data": {name: {"login": "grace"}}})).json()
        assert merged["data"] == {"onCall": {"login": "grace", "rank": "SENIOR"}}
        assert (await api.http.patch(CORE, json={"data": {name: None}})).json()["data"] == {}
        both = await api.http.patch(CORE, json={"data": {"on_call": None, "onCall": {}}})
        assert (both.status_code, "in another spelling" in both.text) == (400, True)


async def test_null_in_a_map_removes_its_entry_by_its_own_name() -> None:
    """A key of a map is not the name of a field."""
    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(labels={"on_call": "1", "onCall": "2"})))
        merged = (await api.http.patch(CORE, json={"data": {"labels": {"on_call": None, "other": None}}})).json()
        assert merged["data"] == {"labels": {"onCall": "2"}}


async def test_entry_of_a_number_or_a_boolean_is_set_and_removed() -> None:
    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(shifts={1: "a", 2: "b"}, open={True: Member(login="ada")})))
        changes = {"shifts": {"1": None, "-3": "c"}, "open": {"true": None, "false": {}}}
        merged = (await api.http.patch(CORE, json={"data": changes})).json()
        assert merged["data"] == {"shifts": {"2": "b", "-3": "c"}, "open": {"false": {}}}


@headway.message
class Reached:
    """A message whose merged form can have a problem that neither the stored form nor the changes have."""

    login: str | None = field(1, oneof="by")
    phone: str | None = field(2, oneof="by")


REACHED: ResourceType[Reached] = ResourceType("staff", "v1", "Reached", Reached)


async def test_place_of_a_problem_is_that_in_the_body() -> None:
    """The merged document is no text. What is stored in it has a path, and no place."""
    async with serving(more=[REACHED]) as api:
        await api.client.apply(TEAM.new("core", STORED))
        await api.client.apply(REACHED.new("ada", Reached(login="ada")))

        async def says(path: str, body: str) -> str:
            answer = await api.http.patch(path, content=body.encode())
            assert answer.status_code == 400
            return str(answer.json()["message"])

        assert (await says(CORE, '{"data": {\n "budget": "y"}}')).startswith("body:2:12: data.budget: 'y' is text")
        lists = await says(CORE, '{"data": {"members": [{"login": "ada"},\n{"login": 7}]}}')
        assert lists.startswith("body:2:11: data.members[1].login: 7 is read as a whole number")
        assert (await says("/api/staff/v1/reached/ada", '{"data":\n {"phone": "1"}}')) == (
            "body:2:3: data.phone: only one of by can be set, and login is set at a place outside of this text: "
            "keep one of them"
        )
        shape = await says(CORE, '{"metadata":\n"x"}')
        assert shape.startswith("body:2:1: metadata: expected a map, got 'x'")
