"""What a caller with few rights, or with none, learns over HTTP: no more than over gRPC."""

from __future__ import annotations

from typing import Any

import pytest

from headway.access import Rule
from tests.http.kit import CORE, SECRET, TEAM, Site, Team, allowing, bearing, serving

INVALID = {"authorization": "Bearer hw_0000000000000000_" + "0" * 64}
EVERYTHING = Rule(verbs=["*"], type="*", partition="*", namespace="*")


def rule(*verbs: str, type: str = "staff.v1.Team") -> Rule:
    return Rule(verbs=list(verbs), type=type, partition="*", namespace="*")


@pytest.mark.parametrize(
    ("method", "rest", "headers"),
    [
        ("GET", "?misspelled=1", {}),
        ("GET", "?page_size=x", {}),
        ("GET", "?watch=x", {}),
        ("GET", "/core?ns=a&namespace=b", {}),
        ("PATCH", "/core", {"content-type": "text/plain"}),
        ("PUT", "/core?misspelled=1", {}),
    ],
)
async def test_invalid_token_learns_of_no_type_by_other_mistakes(method: str, rest: str, headers: Any) -> None:
    """A registered type and an unregistered one get the same answer."""
    access, _, _ = allowing(caller=[EVERYTHING])
    async with serving(access) as api:
        answers = []
        for kind in ("team", "nosuch"):
            path = f"/api/staff/v1/{kind}{rest}"
            answer = await api.http.request(method, path, headers={**INVALID, **headers})
            answers.append((answer.status_code, answer.text))
        assert answers[0] == answers[1]
        assert answers[0][0] == 401


@pytest.mark.parametrize("member", ["type", "owner"])
async def test_writer_of_one_type_learns_of_no_other_by_a_document(member: str) -> None:
    """A name close to a hidden type, its whole name, and its kind get the answer of a type that does not exist."""
    access, texts, _ = allowing(caller=[rule("*")])
    async with serving(access) as api:

        async def put(type: str) -> str:
            body = {"type": type} if member == "type" else {"owner": {"type": type, "name": "x"}}
            answer = await api.http.put(CORE, json=body, headers=bearing(texts["caller"]))
            assert answer.status_code == 400
            return str(answer.json()["message"]).replace(type, "NAME")

        assert "ecret" not in await put("vault.v1.Secrt")
        assert await put("vault.v1.Secret") == await put("vault.v1.Secrat")
        assert await put("Secret") == await put("Secrat")
        assert "did you mean 'staff.v1.Team'" in await put("staff.v1.Tem")


async def test_merge_of_a_resource_with_a_hidden_owner_is_denied_as_over_grpc() -> None:
    """The caller sees the owner of what they may read, so the answer need not pretend that its type does not exist."""
    access, texts, _ = allowing(caller=[rule("*")])
    async with serving(access) as api:
        key = await api.client.apply(SECRET.new("key", Site(city="Berlin")))
        await api.client.apply(TEAM.new("core", Team(note="x"), owner=key))
        answer = await api.http.patch(CORE, json={"data": {"note": "y"}}, headers=bearing(texts["caller"]))
        says = "permission denied: none of your rules covers type vault.v1.Secret"
        assert (answer.status_code, answer.json()["message"]) == (403, says)


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/api/staff/v1/Team/core", "no type is registered at this path; did you mean '/api/staff/v1/team'?"),
        ("/api/staff/v1/teams", "did you mean '/api/staff/v1/team'?"),
        ("/api/staff/v2/team", "did you mean '/api/staff/v1/team'?"),
        ("/api/vault/v1/secrt", "did you mean '/api/vault/v1/secret'?"),
    ],
)
async def test_path_of_no_type_names_the_one_that_was_meant(path: str, says: str) -> None:
    """Team is registered, so it would be wrong to say that it is not: a path has the kind in lower case."""
    async with serving() as api:
        answer = await api.http.get(path)
        assert (answer.status_code, says in answer.json()["message"]) == (404, True), answer.text


async def test_path_of_no_type_does_not_name_a_hidden_type() -> None:
    access, texts, _ = allowing(caller=[rule("*"), rule("read", type="vault.v1.Secrt")])
    async with serving(access) as api:
        answer = await api.http.get("/api/vault/v1/Secrt", headers=bearing(texts["caller"]))
        assert (answer.status_code, "secret" in answer.text) == (404, False), answer.text
