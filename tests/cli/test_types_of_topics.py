"""`headway types` lists the topics of a server, and `headway watch` follows them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

import headway
from headway import field
from headway.access import Access, Authorizer, Policy, Rule, new_token
from tests.cli.terminal import Terminal


@headway.message(name="paid.v1.Rate")
class Rate:
    cents: int = field(1)


@headway.message
class Wrong:
    cents: str = field(1)


@headway.message(name="paid.v1.Team")
class Team:
    note: str = field(1)


app = headway.App("paid")
TEAM = app.type("paid", "v1", "Team", Team)
RATES = app.topic("rates", Rate, snapshot=lambda _: {"EUR": Rate(cents=108)}, wildcard=True)
RAW = app.topic("raw", snapshot=lambda _: {})
app.topic("team", Rate, snapshot=lambda _: {})
wrong = headway.App("wrong")
wrong.topic("rates", Wrong, snapshot=lambda _: {})
TOKEN, ENTRY = new_token(["readers"])


@pytest.fixture
async def engine() -> AsyncIterator[headway.Engine]:
    """Return a server of the app. Its token may read the subjects of one topic, and nothing else."""
    rates = Rule(verbs=["watch", "read"], type="internal.v1.Topic", partition="", namespace="", name_prefix="rates/")
    anything = Rule(verbs=["view"], type="*", partition="*", namespace="*")
    access = Authorizer(Access([Policy("readers", [rates]), Policy("anonymous", [anything])], [ENTRY]))
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
        yield engine


@pytest.fixture
async def paid(terminal: Terminal, engine: headway.Engine) -> Terminal:
    """Return a terminal with the server."""
    return Terminal(engine.addresses[0], terminal.nursery)


async def test_types_lists_the_topics_of_the_server(paid: Terminal) -> None:
    """JSON has them with their messages."""
    lines = (await paid("types")).stdout.splitlines()
    assert lines[lines.index("") + 1 :] == [
        "TOPIC  WILDCARD  PAYLOAD",
        "rates  yes       paid.v1.Rate",
        "raw    no        google.protobuf.BytesValue",
        "team   no        paid.v1.Rate",
    ]
    described = json.loads((await paid("types", "-o", "json")).stdout)
    rates, raw, _ = described["topics"]
    assert described["messages"][rates["message"]]["fullName"] == "paid.v1.Rate"
    assert "message" not in raw


async def test_types_shows_the_fields_of_a_topic(paid: Terminal) -> None:
    """A type of the same name comes first. A topic without a message has no fields."""
    shown = [line.split() for line in (await paid("types", "rates")).stdout.splitlines()]
    assert shown == [["MESSAGE", "FIELD", "KIND"], ["Rate", "cents", "int64"]]
    assert (await paid("types", "team")).stdout.splitlines()[1].split() == ["Team", "note", "string"]
    assert len((await paid("types", "raw")).stdout.splitlines()) == 1
    assert "type 'rate' not found" in (await paid("types", "rate")).stderr


async def test_watch_follows_a_topic_beside_a_type(paid: Terminal, engine: headway.Engine) -> None:
    """In JSON each event is one line, and in YAML a document. Bytes are base64."""
    lines = paid.start("watch", "paid.v1.Team,rates,raw/a")
    documents = paid.start("watch", "rates/EUR", "-o", "json")
    assert await lines.out.line() == 'rates            found    EUR                              {"cents": "108"}\n'
    first = json.loads(await documents.out.line())
    assert first == {"event": "found", "topic": "rates", "subject": "EUR", "data": {"cents": "108"}}
    RATES.publish({"CHF": Rate(cents=112)})
    assert (await lines.out.line()).split() == ["rates", "sent", "CHF", '{"cents":', '"112"}']
    RATES.publish({"EUR": Rate(cents=109)})
    assert (await lines.out.line()).split()[:3] == ["rates", "sent", "EUR"]
    assert json.loads(await documents.out.line())["data"] == {"cents": "109"}
    RAW.publish({"a": b"\x00\x1b"})
    assert (await lines.out.line()).split() == ["raw", "sent", "a", '"ABs="']
    await engine.client.create(TEAM.new("core", Team()))
    assert (await lines.out.line()).split()[:3] == ["Team", "stored", "default/default/core"]
    yaml = paid.start("watch", "rates/EUR", "-o", "yaml")
    said = [await yaml.out.line() for _ in range(5)]
    assert said == ["--- # found\n", "topic: rates\n", "subject: EUR\n", "data:\n", "  cents: '108'\n"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["raw"], "topic raw has no wildcard: name one of its subjects, such as raw/EUR"),
        (["rates/"], "rates/ has no subject"),
        (["rates", "-n", "x"], "rates is a topic, which has no --partition, --namespace or --prefix"),
        (["rats"], "type 'rats' not found"),
        (["paid.v1.Team,rats/EUR"], "type 'rats/EUR' not found"),
    ],
)
async def test_watch_of_a_wrong_topic_is_a_mistake_of_usage(paid: Terminal, arguments: list[str], error: str) -> None:
    done = await paid("watch", *arguments)
    assert done.returncode == 2
    assert error in done.stderr
