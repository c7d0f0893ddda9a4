"""Subscriptions of callers with rights: what they see, and what happens when their rights change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from grpclib.const import Status

import headway
from headway import rpc
from headway._gen.headway.subscribe import v1 as subscribe_pb
from headway.access import CHANGED, REFUSED, Access, Authorizer, Policy, Rule, new_token
from headway.errors import HeadwayError, PermissionDenied
from headway.subscribing import SUBSCRIBE, SubscribeDecoder
from headway.subscription import SnapshotComplete
from tests.helpers.plain_types import Rate, Team
from tests.helpers.service_errors import status_of
from tests.subscribing.test_subscribe import said


def current(subject: str) -> dict[str, Rate]:
    return {each: Rate(cents=1) for each in ("EUR", "CHF") if subject in (each, "*")}


app = headway.App("staff")
TEAM = app.type("staff", "v1", "Team", Team)
VAULT = app.type("staff", "v1", "Vault", Team)
PRICES = app.topic("prices", Rate, snapshot=current, wildcard=True)
EVERYTHING = subscribe_pb.Everything()


def rule(*verbs: str, prefix: str = "", type: str = "staff.v1.Team") -> Rule:
    return Rule(verbs=verbs, type=type, partition="*", namespace="*", name_prefix=prefix)


def topic_rule(prefix: str, *verbs: str) -> Rule:
    return Rule(
        verbs=verbs or ("watch", "read"), type="internal.v1.Topic", partition="", namespace="", name_prefix=prefix
    )


def policy(*rules: Rule) -> Policy:
    return Policy("readers", rules)


@asynccontextmanager
async def guarded(*rules: Rule) -> AsyncIterator[tuple[headway.Engine, headway.Client, Authorizer, Any]]:
    """Serve the app to one token with these rules. The last value applies other rules."""
    text, token = new_token(["readers"])
    access = Authorizer(Access([policy(*rules)], [token]))

    def change(*others: Rule, revoke: bool = False) -> None:
        access.replace(Access([policy(*others)], [] if revoke else [token]))

    with trio.fail_after(30):
        async with (
            headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
            headway.connect(engine.addresses, app, token=text) as client,
        ):
            await engine.wait_idle()
            yield engine, client, access, change


async def test_q4_subscription_delivers_what_its_caller_may_read() -> None:
    """Commits come as far as they are visible, whole; the others only advance the position."""
    async with guarded(rule("watch"), rule("read", prefix="pub")) as (engine, client, _, _):
        await engine.client.create(TEAM.new("secret"))
        await engine.client.create(TEAM.new("pub-1"))
        async with client.subscribe([TEAM], progress_interval=0.001) as batches:
            assert said(await anext(batches)) == ["Team pub-1="]
            await engine.client.create(TEAM.new("hidden"))
            await engine.client.create(TEAM.new("pub-2"))
            assert said(await anext(batches)) == ["Team pub-2="]


@pytest.mark.parametrize(
    ("subjects", "said"),
    [
        ([TEAM], "you may not watch staff.v1.Team there (subjects[0]): none of your rules covers all of it"),
        ([headway.Subject(TEAM, "pub"), headway.Subject(TEAM, "core")], "staff.v1.Team there (subjects[1])"),
        ([VAULT], "none of your rules covers type staff.v1.Vault"),
        ([PRICES], "you may not subscribe to topic 'prices' there (subjects[0]): none of your rules covers all of it"),
        ([headway.Subject(PRICES, "CHF")], 'name_prefix: "prices/CHF"'),
    ],
)
async def test_subject_without_the_right_is_refused_by_name(subjects: list[Any], said: str) -> None:
    """The error names the subject, and the rule that is missing."""
    async with guarded(rule("view", prefix="pub"), topic_rule("prices/EUR")) as (_, client, _, _):
        with pytest.raises(PermissionDenied) as caught:
            async with client.subscribe(subjects) as batches:
                await anext(batches)
        assert said in str(caught.value)


async def test_caller_learns_nothing_of_a_topic_without_rights() -> None:
    """The refusals for a topic that exists and one that doesn't are the same but for the name."""
    ghost: headway.Topic[bytes] = headway.App("other").topic("ghosts", snapshot=lambda _: {}, wildcard=True)
    async with guarded(rule("view")) as (_, client, _, _):
        refused = []
        for topic in (PRICES, ghost):
            with pytest.raises(PermissionDenied) as caught:
                async with client.subscribe([topic]) as batches:
                    await anext(batches)
            refused.append(str(caught.value).replace(topic.name, "NAME"))
        assert refused[0] == refused[1]


async def test_topic_shows_the_subjects_that_rules_cover() -> None:
    rules = topic_rule("prices/", "watch"), topic_rule("prices/E", "read")
    async with guarded(*rules) as (_, client, _, _), client.subscribe([PRICES]) as batches:
        assert said_of(await anext(batches)) == ["EUR"]
        PRICES.publish({"CHF": Rate(), "EUR": Rate()})
        assert said_of(await anext(batches)) == ["EUR"]


def said_of(batch: headway.subscribing.SubscriptionBatch) -> list[str]:
    return sorted(event.subject for event in batch.events if isinstance(event, headway.subscribing.Published))


async def raw_end(engine: headway.Engine, text: str, change: Any) -> HeadwayError:
    """Open a raw subscription, change the policies, and return the error that ends it."""
    request = subscribe_pb.SubscribeRequest(
        subjects=[subscribe_pb.Subject(type=TEAM.name.message(), everything=EVERYTHING)]
    )
    async with (
        rpc.open_channel(engine.addresses, decoders={SUBSCRIBE: SubscribeDecoder}) as channel,
        channel.stream(SUBSCRIBE, request, metadata={"x-consul-token": text}) as items,
    ):
        while not isinstance(await anext(items), SnapshotComplete):
            pass
        change()
        try:
            async for _ in items:
                pass
        except HeadwayError as error:
            return error
    pytest.fail("the stream ended without an error")


@pytest.mark.parametrize(
    ("revoked", "status", "text"), [(False, Status.ABORTED, CHANGED), (True, Status.UNAUTHENTICATED, REFUSED)]
)
async def test_q5_changed_policy_ends_a_subscription_with_aborted(revoked: bool, status: Status, text: str) -> None:
    """As in Consul, that means: reset your state and subscribe again. A token that is gone has its own status."""
    token_text, token = new_token(["readers"])
    access = Authorizer(Access([policy(rule("view"))], [token]))
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
        with trio.fail_after(30):
            error = await raw_end(
                engine,
                token_text,
                lambda: access.replace(Access([policy(rule("view"), rule("write"))], [] if revoked else [token])),
            )
    assert (status_of(error), str(error)) == (status, text)
    assert access.followed == 0


async def test_m7_client_takes_a_new_snapshot_under_its_new_rights() -> None:
    """It neither keeps what it may not see any longer, nor lacks what it may see now."""
    async with guarded(rule("watch"), rule("read", prefix="a")) as (engine, client, _, change):
        for name in ("a", "b"):
            await engine.client.create(TEAM.new(name))
        async with client.subscribe([TEAM]) as batches:
            assert said(await anext(batches)) == ["Team a="]
            change(rule("watch"), rule("read", prefix="b"))
            batch = await anext(batches)
            assert (batch.snapshot, said(batch)) == (True, ["Team b="])


async def test_reload_of_the_same_policies_ends_nothing() -> None:
    async with guarded(rule("view")) as (engine, client, _, change), client.subscribe([TEAM]) as batches:
        assert (await anext(batches)).snapshot
        change(rule("view"))
        await engine.client.create(TEAM.new("a"))
        batch = await anext(batches)
        assert (batch.snapshot, said(batch)) == (False, ["Team a="])


async def test_revoked_token_ends_the_subscription_with_a_named_error() -> None:
    async with guarded(rule("view")) as (_, client, _, change), client.subscribe([TEAM]) as batches:
        await anext(batches)
        change(rule("view"), revoke=True)
        with pytest.raises(PermissionDenied, match="the token is not valid here"):
            await anext(batches)


async def test_position_of_other_rights_is_answered_by_a_snapshot() -> None:
    """To resume would leave out what became visible in between."""
    async with guarded(rule("watch"), rule("read", prefix="a")) as (engine, client, _, change):
        for name in ("a", "b"):
            await engine.client.create(TEAM.new(name))
        async with client.subscribe([TEAM]) as batches:
            position = (await anext(batches)).position
        change(rule("view"))
        async with client.subscribe([TEAM], resume_after=position) as batches:
            batch = await anext(batches)
            assert (batch.snapshot, said(batch)) == (True, ["Team a=", "Team b="])


async def test_open_subscriptions_of_a_caller_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next one is refused, and one that ends makes room. Other callers have a bound of their own."""
    monkeypatch.setattr("headway.subscribing._service.OpenSubscriptions.__init__.__defaults__", (2,))
    texts, tokens = zip(*(new_token(["readers"]) for _ in range(2)), strict=True)
    access = Authorizer(Access([policy(rule("view"))], tokens))
    request = subscribe_pb.SubscribeRequest(
        subjects=[subscribe_pb.Subject(type=TEAM.name.message(), everything=EVERYTHING)]
    )
    with trio.fail_after(30):
        async with (
            headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine,
            rpc.open_channel(engine.addresses, decoders={SUBSCRIBE: SubscribeDecoder}) as channel,
        ):

            def opened(text: str) -> Any:
                return channel.stream(SUBSCRIBE, request, metadata={"x-consul-token": text})

            async with opened(texts[0]) as first, opened(texts[1]) as other:
                for items in (first, other):
                    assert isinstance(await anext(items), SnapshotComplete)
                async with opened(texts[0]) as second:
                    assert isinstance(await anext(second), SnapshotComplete)
                    async with opened(texts[0]) as third:
                        with pytest.raises(HeadwayError, match="you have 2 open subscriptions: end one") as caught:
                            await anext(third)
                        assert status_of(caught.value) is Status.RESOURCE_EXHAUSTED
                while True:
                    async with opened(texts[0]) as third:
                        try:
                            assert isinstance(await anext(third), SnapshotComplete)
                        except HeadwayError as error:
                            # The server has not yet heard of the end of the second one.
                            if status_of(error) is not Status.RESOURCE_EXHAUSTED:
                                raise
                        else:
                            break
