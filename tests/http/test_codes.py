"""Every path, method, parameter and code, as a table of requests over real HTTP."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from headway import api
from headway.errors import CommitRefused
from headway.http import RequestLimits
from headway.quotas import QUOTA, Quota, rule_of
from tests.helpers.service_errors import an_error, reason_of
from tests.http.kit import CORE, PARTITION_PATH, TEAM, TEAMS, Member, Rank, Team, serving

SITES, SECRETS = "/api/staff/v1/site", "/api/vault/v1/secret"


class Row(NamedTuple):
    method: str
    path: str
    code: int
    says: str = ""
    body: Any = None


ADA = {"data": {"members": [{"login": "ada", "rank": "SENIOR"}], "budget": "7"}}
STORED = {"id": {"type": {"group": "staff", "groupVersion": "v1", "kind": "Team"}, "name": "core"}}
ULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
READY = {"observedGeneration": ULID, "conditions": [{"type": "Ready", "state": "STATE_TRUE"}]}

ROWS = [
    # --- one resource ---
    Row("GET", CORE, 200, '"login":"ada"'),
    Row("GET", f"{CORE}?consistent", 200),
    Row("GET", f"{CORE}?consistent=false", 200),
    Row("GET", f"{CORE}?consistent=maybe", 400, "consistent='maybe' must be true or false"),
    Row("GET", f"{CORE}?partition=default&namespace=default", 200),
    Row("GET", f"{CORE}?ns=default&namespace=default", 200),
    Row("GET", f"{CORE}?ns=other", 404, "Team other/core not found"),
    Row("GET", f"{CORE}?ns=a&namespace=b", 400, "contradict each other"),
    Row("GET", f"{CORE}?ns=A", 400, "'A' is not a valid name"),
    Row("GET", f"{CORE}?uid={ULID}", 404),
    Row("GET", f"{CORE}?nmespace=a", 400, "unknown parameter 'nmespace'; did you mean 'namespace'"),
    Row("GET", f"{CORE}?ns=a&ns=b", 400, "given more than once"),
    Row("GET", f"{CORE}?%ff", 400, "the query cannot be read"),
    Row("GET", f"{CORE}?version=999", 400, "unknown parameter 'version'"),
    Row("GET", f"{TEAMS}/missing", 404, "Team missing not found"),
    Row("GET", f"{TEAMS}/UPPER", 400, "is not a valid name"),
    Row("GET", f"{SITES}/berlin?partition=default", 400, "the type is cluster-scoped"),
    Row("GET", f"{SECRETS}/key?namespace=default", 400, "the type is partition-scoped"),
    Row("GET", f"{PARTITION_PATH}/none", 404),
    # --- paths and methods ---
    Row("GET", "/", 404, "not found: the paths are /api/"),
    Row("GET", "/api/staff/v1", 404),
    Row("GET", f"{CORE}/", 404),
    Row("GET", f"{CORE}/status", 404),
    Row("GET", "/api/staff/v1/tem/core", 404, "no type is registered at this path; did you mean '/api/staff/v1/team'?"),
    Row("GET", "/api/staff/v2/team/core", 404),
    Row("GET", "/api/staff/v1/Team/core", 404),
    Row("GET", "/api/staff/v1/team/a%2Fb", 400, "'a%2Fb' is not a valid name"),
    Row("GET", "/api/staff/v1%2fteam/core", 404),
    Row("GET", "/api/staff/v1/team%2fcore", 404),
    Row("GET", "/api/staff%2fv1/team/core", 404),
    Row("GET", "/api%2fstaff/v1/team/core", 404),
    Row("GET", "/api/%73taff/v1/team/core", 404),
    Row("GET", "/api/staff/v1/team/%63ore", 400, "'%63ore' is not a valid name"),
    Row("PUT", f"{CORE}/status%2fmine", 404, "", READY),
    Row("POST", CORE, 405, "POST is not allowed here: use GET, PUT, PATCH, DELETE"),
    Row("OPTIONS", CORE, 405),
    Row("HEAD", CORE, 200),
    Row("HEAD", f"{TEAMS}/missing", 404),
    Row("HEAD", TEAMS, 200),
    Row("HEAD", f"{TEAMS}?watch", 200),
    Row("HEAD", "/api/openapi.json", 200),
    Row("HEAD", f"{CORE}/status/mine", 405),
    Row("POST", TEAMS, 405, "use GET"),
    Row("DELETE", TEAMS, 405),
    Row("GET", f"{CORE}/status/mine", 405, "use PUT"),
    Row("PUT", "/api/openapi.json", 405),
    # --- writes ---
    Row("PUT", CORE, 200, '"budget":"7"', ADA),
    Row("PUT", CORE, 200, '"budget":"8"', {"data": {"budget": 8}}),
    Row("PUT", CORE, 200, "", {}),
    Row("PUT", f"{TEAMS}/new", 200, "", {**STORED, "id": {**STORED["id"], "name": "new"}}),
    Row("PUT", f"{CORE}?version=999", 409, "not 999; read it again", ADA),
    Row("PUT", CORE, 409, "not 999; read it again", {**ADA, "version": "999"}),
    Row("PUT", f"{CORE}?version=999", 400, "keep one", {**ADA, "version": "2"}),
    Row("PUT", f"{CORE}?uid={ULID}", 409, '"reason":"WRONG_UID"', ADA),
    Row("PUT", f"{CORE}?version=", 400, "version is empty", ADA),
    Row("PUT", f"{CORE}?uid=", 400, "uid is empty", ADA),
    Row("PUT", f"{CORE}?name_prefix=a", 400, "unknown parameter", ADA),
    Row("PUT", f"{TEAMS}/x?namespace=none", 400, "namespace 'none' not found", ADA),
    Row("PUT", CORE, 400, "expected 'core' as in the request, got 'docs'", {"id": {**STORED["id"], "name": "docs"}}),
    Row(
        "PUT", CORE, 400, "expected staff.v1.Team as in the request", {"id": {"type": "staff.v1.Site", "name": "core"}}
    ),
    Row("PUT", CORE, 400, "body:1:11: data.membrs: Team has no field 'membrs'", {"data": {"membrs": 1}}),
    Row("PUT", CORE, 400, "JUNIOR", {"data": {"members": [{"rank": "BOSS"}]}}),
    Row("PUT", CORE, 400, "a document has no field 'dta'", {"dta": {}}),
    Row("PUT", CORE, 400, "owner", {"owner": {"type": "staff.v1.Team", "name": "docs"}}),
    Row("PUT", CORE, 400, "must be one JSON object", b"[{}]"),
    Row("PUT", CORE, 400, "must be one JSON object", b""),
    Row("PUT", CORE, 400, "body:1:2", b"{x"),
    Row("PUT", CORE, 400, "not UTF-8", b"\xff"),
    Row("PUT", CORE, 413, "values", {"data": {"members": [{}] * 20_000}}),
    Row("PUT", CORE, 413, "bytes at most", b" " * 100_001),
    Row("PUT", f"{SITES}/berlin", 200, '"city":"Berlin"', {"data": {"city": "Berlin"}}),
    Row("PUT", f"{SITES}/berlin", 400, "city 'nowhere' does not exist", {"data": {"city": "nowhere"}}),
    Row("PUT", f"{SITES}/berlin", 500, "the validate hook of staff.v1.Site failed", {"data": {"city": "broken"}}),
    # --- statuses ---
    Row("PUT", f"{CORE}/status/mine", 200, '"mine":{"observedGeneration"', READY),
    Row("PUT", f"{CORE}/status/example.com%2Fmine", 200, '"example.com/mine":{"observedGeneration"', READY),
    Row("PUT", f"{CORE}/status/%ff", 400, "key '%ff' is not encoded UTF-8", READY),
    Row("PUT", f"{CORE}/status/mine?version=999", 409, "not 999", READY),
    Row("PUT", f"{CORE}/status/mine?uid={ULID}", 404, "", READY),
    Row("PUT", f"{CORE}/status/mine?uid=", 400, "uid is empty", READY),
    Row("PUT", f"{TEAMS}/missing/status/mine", 404, "", READY),
    Row("PUT", f"{CORE}/status/mine", 400, "observed_generation", {"conditions": []}),
    Row("PUT", f"{CORE}/status/mine", 400, "Status has no field 'x'", {"x": 1}),
    Row("PUT", f"{CORE}/status/mine", 400, "conditions[0].type is required", {**READY, "conditions": [{}]}),
    # --- merges ---
    Row("PATCH", CORE, 200, '"note":"x"', {"data": {"note": "x"}}),
    Row("PATCH", f"{TEAMS}/missing", 404, "", {"data": {}}),
    Row("PATCH", f"{CORE}?version=999", 409, "not 999", {"data": {}}),
    Row("PATCH", CORE, 409, "not 999", {"version": "999"}),
    Row("PATCH", f"{CORE}?version=", 400, "version is empty", {"data": {}}),
    Row("PATCH", CORE, 400, "status cannot be patched", {"status": {}}),
    Row("PATCH", CORE, 400, "no field 'nte'", {"data": {"nte": 1}}),
    Row("PATCH", CORE, 400, "must be one JSON object", b"[]"),
    # --- deletions ---
    Row("DELETE", f"{TEAMS}/missing", 204),
    Row("DELETE", f"{CORE}?version=999", 409, "not 999"),
    Row("DELETE", f"{CORE}?version=", 400, "version is empty"),
    Row("DELETE", f"{CORE}?uid=", 400, "uid is empty"),
    Row("DELETE", f"{CORE}?uid={ULID}", 204),
    Row("DELETE", CORE, 204),
    # --- lists ---
    Row("GET", TEAMS, 200, '"name":"core"'),
    Row("GET", f"{TEAMS}?name_prefix=x", 200, '{"resources":[],"position":'),
    Row("GET", f"{TEAMS}?name_prefix=X", 400, "must be lower case"),
    Row("GET", f"{TEAMS}?partition=*&ns=*&consistent", 200, '"name":"core"'),
    Row("GET", f"{TEAMS}?filter=tier=gold", 200, '"resources":[]'),
    Row("GET", f"{TEAMS}?filter=!", 400, "filter '!': '!' is not a valid term: use key=value"),
    Row("GET", f"{TEAMS}?filter=a=b,", 400, "\"filter 'a=b,': '' is not a valid term"),
    Row("GET", f"{TEAMS}?watch&filter=a=b,", 400, "\"filter 'a=b,' has an empty entry: use key=value, with commas"),
    Row("GET", f"{TEAMS}?page_size=1", 200, '"nextPageToken"'),
    Row("GET", f"{TEAMS}?page_size=x", 400, "page_size='x' must be a whole number"),
    Row("GET", f"{TEAMS}?page_size=1000000", 400, "from 0 to 100000"),
    Row("GET", f"{TEAMS}?page_token=x", 400, "page_token 'x' is invalid"),
    Row("GET", f"{TEAMS}?uid=x", 400, "unknown parameter 'uid'"),
    Row("GET", f"{TEAMS}?resume_after=x", 400, "unknown parameter 'resume_after'"),
    Row("GET", f"{TEAMS}?watch=false", 200, '"resources"'),
    Row("GET", f"{TEAMS}?watch&page_size=1", 400, "unknown parameter 'page_size'"),
    Row("GET", f"{TEAMS}?watch&resume_after=x", 400, "position 'x' is invalid"),
    Row("GET", f"{TEAMS}?watch&ns=X", 400, "'X' is not a valid name"),
]


@pytest.mark.parametrize("part", range(4))
async def test_each_request_has_its_code_and_says_why(part: int) -> None:
    """Each row begins with the same two resources."""
    wrong: list[str] = []
    async with serving(limits=RequestLimits(body_size=100_000)) as api:
        for row in ROWS[part::4]:
            core = Team(members=[Member(login="ada", rank=Rank.SENIOR)])
            await api.client.apply(TEAM.new("core", core))
            await api.client.apply(TEAM.new("docs", Team()))
            content = row.body if isinstance(row.body, bytes | None) else json.dumps(row.body).encode()
            answer = await api.http.request(row.method, row.path, content=content)
            assert row.method != "HEAD" or not answer.content
            text = answer.text.replace('\\"', '"')
            if answer.status_code != row.code or row.says not in text:
                wrong.append(f"{row.method} {row.path}: {answer.status_code} {answer.text}")
            if answer.status_code >= 400 and row.method != "HEAD":
                assert {"code", "message"} <= answer.json().keys()
        assert [str(error) for _, error in api.failures if "broken" not in str(error)] == []
    assert wrong == []


@pytest.mark.parametrize("row", api.ROWS, ids=lambda row: row.error.__name__)
async def test_error_of_the_service_has_its_code(row: api.Row) -> None:
    """The answer has the code, the status, the reason and the message of the error's row."""
    error = an_error(row)
    async with serving(fails=error) as server:
        answer = await server.http.get(CORE)

    found = reason_of(error)
    reason = {} if found is None else {"reason": found.name}
    assert (answer.status_code, answer.json()) == (row.http, {"code": row.code.name, "message": "because", **reason})
    assert ("retry-after" in answer.headers) is (answer.status_code in (429, 503))


def test_codes_are_those_of_consul_and_of_the_guide() -> None:
    expected = {
        "INVALID_ARGUMENT": 400,
        "UNAUTHENTICATED": 401,
        "PERMISSION_DENIED": 403,
        "NOT_FOUND": 404,
        "ABORTED": 409,
        "ALREADY_EXISTS": 409,
        "FAILED_PRECONDITION": 409,
        "OUT_OF_RANGE": 410,
        "DATA_LOSS": 410,
        "RESOURCE_EXHAUSTED": 429,
        "UNAVAILABLE": 503,
        "DEADLINE_EXCEEDED": 504,
    }
    for row in api.ROWS:
        assert row.http == (403 if row.error is CommitRefused else expected.get(row.code.name, 500)), row


async def test_document_that_was_read_can_be_written_back() -> None:
    """It contains the id, the version and the statuses."""
    async with serving() as api:
        await api.http.put(CORE, json=ADA)
        await api.http.put(f"{CORE}/status/mine", json=READY)
        read = (await api.http.get(CORE)).json()
        written = await api.http.put(CORE, json=read)
        assert written.status_code == 200
        assert written.json()["status"] == read["status"]
        # The version of the first read is no longer the stored one.
        assert (await api.http.put(CORE, json=read)).status_code == 409


async def test_put_keeps_finalizers_that_it_does_not_name() -> None:
    """A client that writes what it wants does not end the hold of another program."""
    async with serving() as api:
        await api.http.put(CORE, json={"metadata": {"finalizers": "staff/desk", "tier": "gold"}})
        assert (await api.http.put(CORE, json={})).json()["metadata"] == {"finalizers": "staff/desk"}
        assert "metadata" not in (await api.http.patch(CORE, json={"metadata": {"finalizers": None}})).json()


@pytest.mark.parametrize("header", ["If-Match", "If-None-Match", "If-Unmodified-Since"])
async def test_condition_of_http_is_refused_for_a_change(header: str) -> None:
    """Otherwise a client that sends one would replace what another one has written, and believe that it had not."""
    async with serving() as api:
        await api.http.put(CORE, json=ADA)
        before, headers = (await api.http.get(CORE)).json(), {header: "*"}
        for method, path in (("PUT", CORE), ("PATCH", CORE), ("DELETE", CORE), ("PUT", f"{CORE}/status/mine")):
            refused = await api.http.request(method, path, content=b"{}", headers=headers)
            assert refused.status_code == 400
            assert f"the header {header.lower()} is not supported" in refused.json()["message"]
        assert (await api.http.get(CORE, headers=headers)).json() == before


async def test_pages_have_every_resource_once() -> None:
    async with serving() as api:
        for number in range(5):
            await api.client.apply(TEAM.new(f"team-{number}"))
        names: list[str] = []
        token = ""
        while True:
            page = (await api.http.get(TEAMS, params={"page_size": 2, "page_token": token})).json()
            names += [each["id"]["name"] for each in page["resources"]]
            token = page.get("nextPageToken", "")
            if not token:
                break
        assert names == [f"team-{number}" for number in range(5)]


async def test_payload_that_does_not_decode_hides_no_other_resource() -> None:
    """It is left out, with the reason, and a merge refuses to replace it."""
    from headway.resource import pb

    async with serving() as api:
        await api.client.apply(TEAM.new("core", Team(budget=1)))
        await api.client.apply(TEAM.new("docs"))
        from headway.storage import Put

        stored, _ = await api.backend.read(TEAM.kind, ("default", "default", "core"))
        assert stored is not None
        assert stored.data is not None
        data = type(stored.data)(type_url=stored.data.type_url, value=b"\xff\xff")
        broken = pb.Resource(id=stored.id, generation=stored.generation, data=data)
        await api.backend.commit((Put(TEAM.kind, ("default", "default", "core"), broken, stored.version),))
        listed = (await api.http.get(TEAMS)).json()["resources"]
        assert [("undecodable" in each, "data" in each) for each in listed] == [(True, False), (False, True)]
        refused = await api.http.patch(CORE, json={"data": {"note": "x"}})
        assert (refused.status_code, "cannot be merged" in refused.text) == (409, True)


async def test_answers_are_for_programs_and_never_stored() -> None:
    """A browser must not guess another type, keep an answer, or show it in a frame."""
    async with serving() as api:
        for path in (CORE, TEAMS, "/api/openapi.json", "/other"):
            headers = (await api.http.get(path)).headers
            assert headers["content-type"] == "application/json"
            assert headers["cache-control"] == "no-store"
            assert headers["x-content-type-options"] == "nosniff"
            assert "server" not in headers


async def test_exceeded_quota_is_forbidden_and_not_to_be_repeated() -> None:
    """Clients repeat a request after 429 and 5xx, with or without a Retry-After. Here that would not help."""
    async with serving() as served:
        rule_of(served.backend)
        await served.client.write(QUOTA.new("teams", Quota(max_resources=0)))
        answer = await served.http.put(f"{TEAMS}/one-more", json=ADA)
        assert answer.status_code == 403
        assert "retry-after" not in answer.headers
        said = answer.json()
        assert (said["code"], said["reason"]) == ("RESOURCE_EXHAUSTED", "QUOTA_EXCEEDED")
        assert "quota 'teams' is exceeded: partition default may have 0 resources and has " in said["message"]
