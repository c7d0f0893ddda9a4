"""A version of another package that lacks a private name is refused, with the versions that work."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import outcome
import pytest
import trio
from hypercorn.trio.worker_context import WorkerContext
from trio._core import _traps

from headway.base import PYTHON, TRIO, PrivateNames, check_private_names
from headway.base._thread_calls import _check_trio
from headway.observe import open_pages
from headway.rpc._private_names import check_network

GRPCLIB = PrivateNames("grpclib", {"grpclib.protocol:Connection.ack": "self stream_id size"})


def refused(package: str, name: str, parameters: str | None = None) -> str:
    with pytest.raises(ImportError) as caught:
        check_private_names(GRPCLIB, PrivateNames(package, {name: parameters}))
    return str(caught.value)


def test_existing_names_pass() -> None:
    """A function is checked by its leading parameters, and anything else by its name."""
    names = {"grpclib.protocol:Connection.ack": "self stream_id ...", "grpclib.protocol:Connection": None}
    check_private_names(GRPCLIB, PrivateNames("grpclib", names))


def test_missing_name_is_refused_with_the_versions_that_work() -> None:
    """The versions come from pyproject.toml."""
    message = refused("grpclib", "grpclib.protocol:Connection.forget.it")
    assert message.startswith(f"grpclib {version('grpclib')} does not work with Headway: ")
    assert "grpclib.protocol.Connection.forget.it not found; " in message
    assert message.endswith("; pip install 'grpclib<0.5,>=0.4.8' works, with Python 3.11, 3.12 and 3.13")


@pytest.mark.parametrize("package", ["h2", "trio-asyncio", "hypercorn"])
def test_every_package_has_versions_that_work(package: str) -> None:
    """Packages of extras are included."""
    assert f"pip install '{package}" in refused(package, "h2.connection:nothing")


def test_other_parameters_are_refused() -> None:
    """The package would not call our override correctly."""
    message = refused("grpclib", "grpclib.protocol:Connection.ack", "self stream_id size padding")
    assert "Connection.ack takes (self, stream_id, size), expected (self, stream_id, size, padding); " in message


def test_python_without_a_name_is_refused_with_those_that_work() -> None:
    """The names of the standard library come with Python itself."""
    message = refused(PYTHON, "asyncio.sslproto:SSLProtocol._gone")
    assert message.startswith(f"Python {sys.version.split()[0]} does not work with Headway: asyncio.sslproto.")
    assert message.endswith("; Python 3.11, 3.12 and 3.13 work")


def test_module_that_cannot_be_imported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For example, trio-asyncio 0.16 on Python 3.14 lacks a class that it extends."""
    (tmp_path / "too_old.py").write_text("import asyncio\nclass Watcher(asyncio.GoneChildWatcher): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    message = refused("trio-asyncio", "too_old:Watcher")
    assert "too_old cannot be imported: module 'asyncio' has no attribute 'GoneChildWatcher'; " in message


async def test_trio_asks_and_is_answered_as_those_who_pass_it_on_expect() -> None:
    """`ThreadCalls` and `Running` send its messages and its answers by hand."""
    turn = trio.lowlevel.cancel_shielded_checkpoint()  # noqa: ASYNC105
    assert turn.send(None) is _traps.CancelShieldedCheckpoint
    with pytest.raises(StopIteration):
        turn.send(outcome.Value(None))
    waiting = trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)  # noqa: ASYNC105
    assert isinstance(waiting.send(None), _traps.WaitTaskRescheduled)
    with pytest.raises(ValueError, match="of the loop"):
        waiting.send(outcome.Error(ValueError("of the loop")))


async def test_task_is_registered_once_it_asks_to_wait_for_a_file() -> None:
    """`ThreadCalls` then waits by another request, and is woken all the same."""
    ended, end = os.pipe()
    waiting = trio.lowlevel.wait_readable(ended)  # noqa: ASYNC105
    waiting.send(None)
    os.write(end, b"x")
    with trio.fail_after(5):
        await trio.lowlevel.wait_task_rescheduled(lambda _: trio.lowlevel.Abort.FAILED)
    waiting.close()
    for each in (ended, end):
        os.close(each)


@pytest.mark.parametrize("name", TRIO.names)
def test_trio_without_a_name_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before a thread is called, and before the network is used."""
    monkeypatch.delattr(_traps, name.partition(":")[2])
    for check in (_check_trio, check_network):
        check.cache_clear()
        with pytest.raises(ImportError, match=rf"trio .*{name.partition(':')[2]} not found; pip install 'trio"):
            check()


def test_network_packages_are_checked_before_they_are_loaded() -> None:
    """A module may need a name during its import, such as a class that it extends."""
    program = "import grpclib.protocol, headway.rpc; del grpclib.protocol.EventsProcessor; headway.rpc.open_server"
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "ImportError: grpclib " in ended.stderr
    assert "grpclib.protocol.EventsProcessor.__init__ not found" in ended.stderr


async def test_hypercorn_is_checked_before_pages_are_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerContext, "__init__", lambda _: None)
    with pytest.raises(ImportError, match=r"hypercorn .*WorkerContext\.__init__ takes \(_\), expected"):
        async with open_pages("127.0.0.1:0", list):
            pass
