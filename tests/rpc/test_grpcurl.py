"""grpcurl, which knows the schema only from reflection, lists, describes, calls and writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from tests.helpers.go_programs import need_go_program

RESOURCES = ("headway.resource.v1.ResourceService", "hashicorp.consul.resource.ResourceService")


@headway.message(name="staff.v1.Team")
class Team:
    members: list[str] = field(1)


@headway.message(name="staff.v1.Vault")
class Vault:
    code: str = field(1)


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
VAULT = app.type("staff", "v1", "Vault", Vault)
TEAM_ID = {"type": {"group": "staff", "groupVersion": "v1", "kind": "Team"}, "name": "core"}
DATA = {"@type": "type.googleapis.com/staff.v1.Team", "members": ["ada"]}


class Curl:
    """A grpcurl for one address, with an optional token."""

    def __init__(self, where: str, token: str = "") -> None:
        self._begin = [str(need_go_program("grpcurl")), "-plaintext", "-max-time", "20"]
        self._begin += ["-H", f"x-consul-token: {token}"] if token else []
        self._where = where

    async def __call__(self, *words: str, given: Any = None) -> subprocess.CompletedProcess[bytes]:
        data = [] if given is None else ["-d", json.dumps(given)]
        with trio.fail_after(30):
            return await trio.run_process(
                [*self._begin, *data, self._where, *words], capture_stdout=True, capture_stderr=True, check=False
            )

    async def output(self, *words: str, given: Any = None) -> str:
        done = await self(*words, given=given)
        assert not done.returncode, done.stderr
        return done.stdout.decode()

    async def answer(self, *words: str, given: Any = None) -> Any:
        return json.loads(await self.output(*words, given=given))


@asynccontextmanager
async def serving(access: Authorizer | None = None) -> AsyncIterator[str]:
    need_go_program("grpcurl")
    async with headway.open_engine(
        "memory:", app, network=headway.Network(["127.0.0.1:0"], access=access, insecure=access is None)
    ) as engine:
        yield engine.addresses[0]


async def test_grpcurl_writes_and_reads_a_payload_under_both_names() -> None:
    """Its data is JSON with the payload's own fields."""
    async with serving() as where:
        curl = Curl(where)
        for number, service in enumerate(RESOURCES):
            id = {**TEAM_ID, "name": f"team-{number}"}
            written = await curl.answer(f"{service}/Write", given={"resource": {"id": id, "data": DATA}})
            assert written["resource"]["data"] == DATA
            read = await curl.answer(f"{service}/Read", given={"id": id})
            assert read["resource"]["data"] == DATA
        wrong = await curl(f"{RESOURCES[0]}/Write", given={"resource": {"id": TEAM_ID, "data": {**DATA, "membres": 1}}})
        assert b"membres" in wrong.stderr


async def test_grpcurl_finds_and_describes_every_service() -> None:
    """Health and reflection are among them. Health is also called."""
    async with serving() as where:
        curl = Curl(where)
        services = (await curl.output("list")).split()
        standard = {"grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection"}
        assert {*RESOURCES, *standard, "grpc.reflection.v1alpha.ServerReflection"} <= set(services)
        # grpcurl refuses to describe a service whose files are incomplete.
        described = await curl.output("describe")
        assert all(f"{service} is a service" in described for service in services)
        for service in ("", *services):
            reply = await curl.answer("grpc.health.v1.Health/Check", given={"service": service})
            assert reply == {"status": "SERVING"}, service
        unknown = await curl("grpc.health.v1.Health/Check", given={"service": "nobody"})
        assert b"Code: NotFound" in unknown.stderr
        asked = {"list_services": ""}
        listed = await curl.answer("grpc.reflection.v1.ServerReflection/ServerReflectionInfo", given=asked)
        assert {each["name"] for each in listed["listServicesResponse"]["service"]} == set(services)


async def test_payload_is_described_only_to_callers_with_rights_to_its_type() -> None:
    """For other callers it is unknown, both by its name and by its file name."""
    rule = Rule(verbs=["read", "write"], type="staff.v1.Team", partition="*", namespace="*")
    text, token = new_token(["teams"])
    access = Authorizer(Access([Policy("teams", [rule])], [token]))
    async with serving(access) as where:
        bearer, stranger = Curl(where, text), Curl(where)
        written = await bearer.answer(f"{RESOURCES[0]}/Write", given={"resource": {"id": TEAM_ID, "data": DATA}})
        assert written["resource"]["data"] == DATA
        assert "repeated string members = 1" in await bearer.output("describe", "staff.v1.Team")
        answers: set[str] = set()
        for curl, name in ((bearer, "Vault"), (stranger, "Vault"), (stranger, "Team"), (stranger, "Nothing")):
            done = await curl("describe", f"staff.v1.{name}")
            assert done.returncode
            by_file = await curl.answer(
                "grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
                given={"file_by_filename": f"payloads/staff.v1.{name}.proto"},
            )
            answers.add(done.stderr.decode().replace(name, "NAME"))
            assert by_file["errorResponse"]["errorCode"] == 5
        assert len(answers) == 1
        # A health probe has no token.
        reply = await stranger.answer("grpc.health.v1.Health/Check", given={"service": RESOURCES[0]})
        assert reply == {"status": "SERVING"}
        refused = await Curl(where, "no-token")("list")
        assert b"Unauthenticated" in refused.stderr
