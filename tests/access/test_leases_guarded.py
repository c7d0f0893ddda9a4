"""Guarded leases: one kind of rule permits acquiring, raising and listing, and a refusal reveals no holder."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import headway
from headway.access import CHANGED, LEASE, REFUSED, Access, Authorizer, Guarded, Policy, Rule, new_token
from headway.client import LeaseClient
from headway.errors import HeadwayError, InvalidArgument, PermissionDenied
from headway.resource import Registry, pb
from headway.rpc import InProcessChannel
from headway.service import LeaseService
from headway.storage import MemoryBackend

NAME = "staff/accounts"


class Guard:
    """A guarded lease service, and a client with a token for some rules."""

    def __init__(self, *rules: Rule) -> None:
        text, self.token = new_token(["some"])
        self.backend = MemoryBackend()
        self.authorizer = Authorizer(Access([Policy("some", rules)], [self.token]))
        channel = InProcessChannel(
            Guarded(lambda caller: LeaseService(self.backend, caller), self.authorizer, Registry())
        )
        self.client = LeaseClient(channel, metadata={"x-consul-token": text})
        self.nobody = LeaseClient(channel)


def rule(*verbs: str, prefix: str = "", **changed: str) -> Rule:
    return Rule(verbs=verbs, **{"type": str(LEASE), "partition": "", "namespace": "", **changed}, name_prefix=prefix)


async def outcomes(client: LeaseClient, name: str = NAME, member: str = "") -> dict[str, str]:
    """Return the outcome of each call: the class and text of its error, or "" for success."""
    fence = pb.Fence(controller=name, member=member, term=2**40, number=2**40)
    lease = f"{name}#{member}" if member else name
    calls: dict[str, Any] = {
        "acquire": lambda: client.acquire(lease, "ada", 5),
        "keep": lambda: client.keep_alive(lease, "ada", 1),
        "release": lambda: client.release(lease, "ada", 1),
        "raise": lambda: client.raise_fence(name, member),
        "record": lambda: client.record_checkpoint(fence, 1),
        "list": lambda: client.list(lease),
    }
    found = {}
    for what, call in calls.items():
        try:
            await call()
        except HeadwayError as error:
            found[what] = f"{type(error).__name__}: {error}"
        else:
            found[what] = ""
    return found


def denied(found: dict[str, str]) -> set[str]:
    return {what for what, said in found.items() if said.startswith("PermissionDenied")}


EVERYTHING = {"acquire", "keep", "release", "raise", "record", "list"}


@pytest.mark.parametrize(
    ("rules", "left"),
    [
        ([rule("write")], EVERYTHING - {"list"}),
        ([rule("write", prefix="staff/")], EVERYTHING - {"list"}),
        ([rule("list", "read")], {"list"}),
        ([rule("list")], set()),
        ([rule("list"), rule("read", prefix="other")], set()),
        ([rule("view", "edit", prefix=NAME)], EVERYTHING),
        ([rule("*", type="*", partition="*", namespace="*")], EVERYTHING),
        ([rule("write_status", "delete", "read", "watch")], set()),
        ([rule("*", prefix="staff/other")], set()),
        ([rule("*", partition="default", namespace="default")], set()),
        ([rule("*", type="staff.v1.Team", partition="*", namespace="*")], set()),
        ([], set()),
    ],
)
@pytest.mark.parametrize("member", ["", "3"])
async def test_rule_permits_acquiring_and_listing(rules: list[Rule], left: set[str], member: str) -> None:
    """The rule's write covers acquire, keep, release and raise, and its list covers list.

    Its prefix matches the name of the lease.
    """
    guard = Guard(*rules)

    assert denied(await outcomes(guard.client, member=member)) == EVERYTHING - left
    assert denied(await outcomes(guard.nobody, member=member)) == EVERYTHING


async def test_refusal_is_the_same_for_every_holder() -> None:
    """The refusal reveals neither the holder, nor the term, nor whether the lease exists."""
    guard = Guard(rule("write", prefix="other"))
    before = await outcomes(guard.client)
    await guard.backend.acquire_lease(NAME, "grace", 100)
    await guard.backend.raise_fence(NAME, "", 1, 1)

    assert await outcomes(guard.client) == before
    rule_for = '{{verbs: [{}], type: internal.v1.Lease, partition: "", namespace: "", name_prefix: "staff/accounts"}}'
    denied = "PermissionDenied: permission denied: you may not"
    hint = ": none of your rules covers all of it; ask for one such as "
    assert set(before.values()) == {
        f"{denied} acquire lease staff/accounts{hint}{rule_for.format('write')}",
        f"{denied} list leases staff/accounts*{hint}{rule_for.format('list')}",
    }


async def test_list_contains_only_readable_leases() -> None:
    """A rule must cover the requested prefix, and each listed lease must be readable."""
    guard = Guard(rule("list", prefix="staff/"), rule("read", prefix="staff/a"))
    for name in ("staff/a", "staff/b", "other/a"):
        await guard.backend.acquire_lease(name, "ada", 100)

    assert [lease.name for lease in await guard.client.list("staff/")] == ["staff/a"]
    for prefix in ("", "sta", "other/"):
        with pytest.raises(PermissionDenied):
            await guard.client.list(prefix)


async def test_waiter_must_still_be_authorized_when_the_lease_is_free(autojump_clock: MockClock) -> None:
    """A token that was revoked during the wait acquires nothing."""
    guard = Guard(rule("write"))
    await guard.backend.acquire_lease(NAME, "grace", 10)
    began = autojump_clock.current_time()
    said = []

    async def wait() -> None:
        with pytest.raises(PermissionDenied) as caught:
            await guard.client.acquire(NAME, "ada", 5, wait=20)
        said.append(str(caught.value))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await wait_all_tasks_blocked()
        guard.authorizer.replace(Access())
    assert said == ["permission denied: you may not acquire lease staff/accounts"]
    assert autojump_clock.current_time() - began == pytest.approx(10)
    assert (await guard.backend.list_leases())[0] == []
    with pytest.raises(PermissionDenied, match=REFUSED):
        await guard.client.list()


@pytest.mark.parametrize("still", [True, False])
async def test_waiter_whose_rights_change_asks_again_with_the_new_ones(autojump_clock: MockClock, still: bool) -> None:
    """Its token is still valid, so the change itself is no denial. The next request is decided by the new rules."""
    guard = Guard(rule("write"))
    await guard.backend.acquire_lease(NAME, "grace", 10)
    began = autojump_clock.current_time()
    said: list[object] = []

    async def wait() -> None:
        try:
            async with headway.hold_lease(guard.client, NAME, holder="ada", report=said.append):
                said.append("held")
        except PermissionDenied:
            said.append("denied")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.sleep(1)
        rules = [rule("list"), rule("write", prefix=NAME if still else "other/")]
        guard.authorizer.replace(Access([Policy("some", rules)], [guard.token]))
    delayed = [each.error for each in said if isinstance(each, headway.events.LeaseDelayed)]
    assert [str(each) for each in delayed] == [f"UNAVAILABLE: {CHANGED}"]
    assert [each for each in said if isinstance(each, str)] == ["held" if still else "denied"]
    assert autojump_clock.current_time() - began == pytest.approx(10, abs=2)


def test_prefix_may_have_the_characters_of_lease_names() -> None:
    """Only leases have these characters in their names."""
    for prefix in ("staff/", "staff/accounts#3", "members/staff/Host-1.local:9"):
        assert rule("write", prefix=prefix).covers(LEASE, "", "", prefix)
    for prefix in ("/staff", "staff/*", "Staff", "a" * 256, "staff/" + "a" * 250, "staff/\n"):
        with pytest.raises(InvalidArgument, match="is invalid: use up to"):
            rule("write", prefix=prefix)


async def test_engine_with_access_rules_guards_its_leases() -> None:
    """Over the network, the same token is used as for resources. Without a token, nothing is revealed."""
    text, token = new_token(["workers"])
    access = Authorizer(Access([Policy("workers", [rule("view", "edit", prefix="members/")])], [token]))
    app = headway.App("staff")
    async with headway.open_engine("memory:", app, network=headway.Network(["127.0.0.1:0"], access=access)) as engine:
        async with (
            headway.connect(engine.addresses, app, token=text) as worker,
            headway.hold_lease(worker.leases, "members/staff/ada", holder="ada") as lease,
        ):
            assert [each.term for each in await worker.leases.list("members/")] == [lease.term]
            with pytest.raises(PermissionDenied):
                await worker.leases.raise_fence("headway/reaper", "")
        async with headway.connect(engine.addresses, app) as nobody:
            with pytest.raises(PermissionDenied):
                await nobody.leases.list("members/")


async def test_engine_that_ends_does_not_wait_for_lease_waiters() -> None:
    """The server's grace period is for calls that do work."""
    app = headway.App("staff")
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            async with headway.open_engine(
                "memory:", app, network=headway.Network(["127.0.0.1:0"], insecure=True)
            ) as engine:
                await engine.client.leases.acquire(NAME, "grace", 600)
                answered = trio.Event()

                async def wait() -> None:
                    async with headway.connect(engine.addresses, app) as client:
                        asked.set()
                        assert not (await client.leases.acquire(NAME, "ada", 5, wait=15)).acquired
                        answered.set()

                asked = trio.Event()
                nursery.start_soon(wait)
                await asked.wait()
                with trio.move_on_after(0.5):
                    await answered.wait()
                assert not answered.is_set()
                ending = trio.current_time()
            assert trio.current_time() - ending < 12
            await answered.wait()


async def test_right_to_one_member_permits_only_its_lease_and_fence() -> None:
    """A member's fence belongs to the member's lease, and not to its controller's lease."""
    guard = Guard(rule("write", prefix=f"{NAME}#3"))

    assert denied(await outcomes(guard.client, member="3")) == {"list"}
    for member in ("", "4"):
        assert denied(await outcomes(guard.client, member=member)) == EVERYTHING
