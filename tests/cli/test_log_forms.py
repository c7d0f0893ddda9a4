"""`headway serve --log`: the lines of a failing reconcile, for programs and for people."""

from __future__ import annotations

import json
import signal

import pytest
import trio

import headway
from tests.cli import failing
from tests.cli.conftest import Started

SECONDS = 40
SERVE = ("serve", "tests.cli.failing:app", "--listen", "127.0.0.1:0")


async def _write(where: str) -> None:
    with trio.fail_after(SECONDS):
        async with headway.connect(where, failing.app) as client:
            await client.write(failing.THING.new("one"))


def test_json_log_has_one_object_a_line_with_the_key_and_the_attempt(start: Started) -> None:
    """The announcement of the address is a line of the log as well. Nothing else is on standard output."""
    process = start(*SERVE, "--log", "json")
    assert process.stdout is not None
    announced = json.loads(process.stdout.readline())
    assert announced["level"] == "info"
    assert announced["event"].startswith("listening on ")
    trio.run(_write, announced["event"].removeprefix("listening on "))
    failed = [json.loads(process.stdout.readline()) for _ in range(2)]
    process.send_signal(signal.SIGINT)
    rest, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert [each["event"] for each in failed] == ["ReconcileFailed"] * 2
    assert [(each["controller"], each["key"], each["attempt"]) for each in failed] == [
        ("things", "default/default/one", 1),
        ("things", "default/default/one", 2),
    ]
    assert failed[0]["error"] == "LookupError: nothing is found here"
    assert failed[0]["timestamp"].endswith("Z")
    assert all(isinstance(json.loads(line), dict) for line in rest.splitlines())


@pytest.mark.wide
def test_pretty_log_is_text_without_colors_in_a_pipe(start: Started) -> None:
    process = start(*SERVE, "--log", "pretty")
    assert process.stdout is not None
    announced = process.stdout.readline()
    trio.run(_write, announced.removeprefix("listening on ").strip())
    line = process.stdout.readline()
    assert "ReconcileFailed" in line
    assert "key=default/default/one" in line
    assert "\x1b[" not in line
