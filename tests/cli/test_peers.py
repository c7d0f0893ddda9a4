"""Clients of grpcio against a running `headway serve`, with two sets of definitions.

One set is generated from our schema. The other is generated from definitions that were written by hand and have only
Consul's names. All methods are called with both.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import trustme
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from headway.protobuf import encode
from tests.cli.conftest import Started, address_of, interrupt, starting
from tests.cli.served import ACCOUNT, TEAM, Account, Team
from tests.helpers.secret_files import write_secret

ROOT = Path(__file__).parents[2]
SOURCES = {
    "wire_test/resource.proto": ROOT / "schema/headway/resource/v1/resource.proto",
    "origin_test/resource.proto": Path(__file__).with_name("origin.proto"),
}
SERVICES = {
    "wire_test": "headway.resource.v1.ResourceService",
    "origin_test": "hashicorp.consul.resource.ResourceService",
}
SERVE = ("serve", "tests.cli.served:app", "--listen", "127.0.0.1:0")
SECONDS = 20


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Return a folder with the code that grpcio generates for both."""
    folder = tmp_path_factory.mktemp("peers")
    for name, source in SOURCES.items():
        # Both need other package names, because `headway` is the package under test.
        (folder / "protos" / name).parent.mkdir(parents=True)
        (folder / "protos" / name).write_text(source.read_text())
    made = [f"-I{folder}/protos", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *made, *SOURCES], check=True)
    sys.path.insert(0, str(folder))
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of a server that several tests share. The names of a test begin with its own prefix."""
    with starting(tmp_path_factory.mktemp("served")) as start:
        yield address_of(start(*SERVE))


class Peer(NamedTuple):
    """A client with one set of definitions."""

    pb2: Any
    stub: Any
    service: str

    def id(self, type: Any, name: str, uid: str = "") -> Any:
        pb2 = self.pb2
        of = pb2.Type(group=type.name.group, group_version=type.name.version, kind=type.name.kind)
        return pb2.ID(name=name, uid=uid, type=of, tenancy=pb2.Tenancy(partition="default", namespace="default"))

    def resource(self, type: Any, name: str, payload: Any, owner: Any = None) -> Any:
        made = self.pb2.Resource(id=self.id(type, name), owner=owner)
        made.data.type_url, made.data.value = type.type_url, encode(payload)
        return made

    def write(self, resource: Any) -> Any:
        return self.stub.Write(self.pb2.WriteRequest(resource=resource), timeout=SECONDS).resource

    def watch(self, type: Any, prefix: str = "") -> Any:
        everywhere = self.pb2.Tenancy(partition="*", namespace="*")
        of = self.id(type, "x").type
        request = self.pb2.WatchListRequest(type=of, tenancy=everywhere, name_prefix=prefix)
        return self.stub.WatchList(request, timeout=SECONDS)


def peer(channel: grpc.Channel, package: str) -> Peer:
    """Return a client with these definitions on a channel."""
    pb2 = importlib.import_module(f"{package}.resource_pb2")
    stub = importlib.import_module(f"{package}.resource_pb2_grpc").ResourceServiceStub(channel)
    return Peer(pb2, stub, SERVICES[package])


@pytest.fixture(params=SERVICES)
def package(request: pytest.FixtureRequest, generated: Path) -> str:
    _ = generated
    name: str = request.param
    return name


def refused(call: Any, request: Any, timeout: float = SECONDS) -> tuple[grpc.StatusCode, str]:
    """Make a call that is refused, and return its status."""
    with pytest.raises(grpc.RpcError) as caught:
        call(request, timeout=timeout)
    return caught.value.code(), caught.value.details()


def test_every_method_works(served: str, package: str) -> None:
    """The methods are Read, Write, WriteStatus, List, ListByOwner, Delete and MutateAndValidate."""
    with grpc.insecure_channel(served) as channel:
        it = peer(channel, package)
        pb2, stub = it.pb2, it.stub
        boss, ada, grace = (f"methods-{package[:4]}-{name}" for name in ("boss", "ada", "grace"))
        # No controller watches accounts, so no other writer changes these.
        owner = it.write(it.resource(ACCOUNT, boss, Account(login="boss")))
        written = it.write(it.resource(ACCOUNT, ada, Account(login="ada"), owner=owner.id))
        assert written.id.uid
        assert written.generation
        assert written.owner == owner.id
        read = stub.Read(pb2.ReadRequest(id=it.id(ACCOUNT, ada)), timeout=SECONDS).resource
        assert read.SerializeToString(deterministic=True) == written.SerializeToString(deterministic=True)

        condition = pb2.Condition(type="Ready", state=1, reason="Asked")
        status = pb2.Status(observed_generation=read.generation, conditions=[condition])
        request = pb2.WriteStatusRequest(id=read.id, key="peer", status=status)
        changed = stub.WriteStatus(request, timeout=SECONDS).resource
        assert changed.status["peer"].conditions[0].reason == "Asked"
        assert changed.status["peer"].HasField("updated_at")
        assert (changed.generation, changed.version == read.version) == (read.generation, False)

        tenancy = pb2.Tenancy(partition="*", namespace="*")
        listed = stub.List(pb2.ListRequest(type=read.id.type, tenancy=tenancy, name_prefix=ada[:-2]), timeout=SECONDS)
        assert [each.id.name for each in listed.resources] == [ada]
        owned = stub.ListByOwner(pb2.ListByOwnerRequest(owner=owner.id), timeout=SECONDS)
        assert [each.id.name for each in owned.resources] == [ada]
        draft = it.resource(ACCOUNT, grace, Account(login="grace"))
        made = stub.MutateAndValidate(pb2.MutateAndValidateRequest(resource=draft), timeout=SECONDS).resource
        assert made.data == draft.data
        stub.Delete(pb2.DeleteRequest(id=read.id, version=changed.version), timeout=SECONDS)
        code, _ = refused(stub.Read, pb2.ReadRequest(id=it.id(ACCOUNT, ada)))
        assert code is grpc.StatusCode.NOT_FOUND


def test_watch_delivers_a_snapshot_its_end_and_then_changes(served: str, package: str) -> None:
    """The status that a controller writes is a change as well."""
    with grpc.insecure_channel(served) as channel:
        it = peer(channel, package)
        prefix = f"watch-{package[:4]}-"
        one, two = f"{prefix}one", f"{prefix}two"
        for name in (one, two):
            it.write(it.resource(ACCOUNT, name, Account(login=name)))
        received: list[tuple[str, str]] = []
        for event in it.watch(ACCOUNT, prefix):
            kind = event.WhichOneof("event")
            if kind == "end_of_snapshot":
                assert sorted(received) == [("upsert", one), ("upsert", two)]
                it.stub.Delete(it.pb2.DeleteRequest(id=it.id(ACCOUNT, one)), timeout=SECONDS)
            # A client that doesn't know bookmarks sees an empty event.
            elif kind in ("upsert", "delete"):
                received.append((kind, getattr(event, kind).resource.id.name))
                if kind == "delete":
                    break
        assert received[-1] == ("delete", one)

        it.write(it.resource(TEAM, f"{prefix}core", Team()))
        for event in it.watch(TEAM, prefix):
            if event.WhichOneof("event") == "upsert" and event.upsert.resource.status:
                assert event.upsert.resource.status["teams"].conditions[0].type == "Staffed"
                break


@pytest.mark.usefixtures("generated")
@pytest.mark.wide
def test_client_connects_by_tls(start: Started, tmp_path: Path) -> None:
    """The client trusts the authority of the server's certificate."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1", "localhost")
    write_secret(tmp_path / "server.pem", certificate.private_key_and_cert_chain_pem.bytes())
    server = start(*SERVE, "--tls-certificate", "server.pem")
    credentials = grpc.ssl_channel_credentials(authority.cert_pem.bytes())
    with grpc.secure_channel(address_of(server), credentials) as channel:
        for package in SERVICES:
            it = peer(channel, package)
            assert it.write(it.resource(ACCOUNT, package[:4], Account())).id.name == package[:4]
            event = next(it.watch(ACCOUNT, package[:4]))
            assert event.upsert.resource.id.name == package[:4]


@pytest.mark.wide
def test_health_and_reflection_answer_grpcios_clients(start: Started) -> None:
    """Every service is serving, and is described under its name."""
    server = start(*SERVE)
    with grpc.insecure_channel(address_of(server)) as channel:
        health = health_pb2_grpc.HealthStub(channel)
        for service in ("", *SERVICES.values()):
            reply = health.Check(health_pb2.HealthCheckRequest(service=service), timeout=SECONDS)
            assert reply.status == health_pb2.HealthCheckResponse.SERVING
        code, _ = refused(health.Check, health_pb2.HealthCheckRequest(service="nobody"))
        assert code is grpc.StatusCode.NOT_FOUND
        database = ProtoReflectionDescriptorDatabase(channel)
        assert set(SERVICES.values()) <= set(database.get_services())
        pool = DescriptorPool(database)
        for service in SERVICES.values():
            described = pool.FindServiceByName(service)
            assert {"Read", "WatchList", "MutateAndValidate"} <= {method.name for method in described.methods}
        assert pool.FindMessageTypeByName("headway.resource.v1.Resource").fields_by_name["data"].number == 7
    assert interrupt(server) == (0, "", "")
