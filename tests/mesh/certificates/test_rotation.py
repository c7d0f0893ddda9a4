"""The rotation of roots, step by step: facts LC-7 and LC-8. No peer that is up to date refuses the leaf of another."""

from __future__ import annotations

import datetime
import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

import headway
from headway.errors import InvalidArgument
from mesh.certificates import rotation
from mesh.certificates.messages import CertificateAuthority, Root, RootState, TrustBundle, TrustReport
from mesh.certificates.types import CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT, Settings

START = datetime.datetime(2026, 3, 4, tzinfo=datetime.UTC)
MINUTE = datetime.timedelta(minutes=1)
GIVEN = Settings.of(
    CertificateAuthority(
        leaf_lifetime=30 * MINUTE, root_lifetime=3000 * MINUTE, trusted_after=20 * MINUTE, removed_after=60 * MINUTE
    )
)


class Roots:
    """Makes roots with names instead of certificates."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def new(self, now: datetime.datetime) -> Root:
        name = f"root-{next(self._numbers)}"
        return Root(
            fingerprint=name,
            certificate=name,
            state=RootState.ROOT_STATE_ANNOUNCED,
            created=now,
            expires=now + GIVEN.root_lifetime,
            since=now,
            sealed_key=b"sealed",
        )


ROOTS = Roots()


def states(bundle: TrustBundle) -> list[tuple[str, str]]:
    return [(each.fingerprint, each.state.name.removeprefix("ROOT_STATE_").lower()) for each in bundle.roots]


def stepped(
    bundle: TrustBundle, minutes: float, *, reports: list[TrustReport] | None = None, rotate: str = ""
) -> rotation.Step:
    now = START + minutes * MINUTE
    return rotation.step(bundle, GIVEN._replace(rotation=rotate), reports or [], now, lambda: ROOTS.new(now))


def report(minutes: float, *fingerprints: str) -> TrustReport:
    return TrustReport(fingerprints=list(fingerprints), renewed=START + minutes * MINUTE)


def test_lc7_lc8_new_root_is_trusted_before_it_signs_and_the_old_one_after_it_signed() -> None:
    first = stepped(TrustBundle(), 0)
    [(old, state)] = states(first.bundle)
    assert state == "active"
    assert (first.condition.reason, first.condition.state.name) == ("OneRoot", "TRUE")
    assert stepped(first.bundle, 1).bundle == first.bundle

    asked = stepped(first.bundle, 2, rotate="a")
    new = states(asked.bundle)[1][0]
    assert states(asked.bundle) == [(old, "active"), (new, "announced")]
    assert (asked.condition.reason, asked.next) == ("WaitingForProxies", START + 22 * MINUTE)
    half = stepped(asked.bundle, 5, reports=[report(4, old, new), report(4, old)], rotate="a")
    assert half.bundle == asked.bundle
    assert "1 of 2 processes report" in half.condition.message

    all_have = stepped(asked.bundle, 5, reports=[report(4, old, new), report(4, new)], rotate="a")
    assert states(all_have.bundle) == [(old, "retired"), (new, "active")]
    assert [bool(each.sealed_key) for each in all_have.bundle.roots] == [False, True]
    assert (all_have.condition.reason, all_have.next) == ("OldRootTrusted", START + 65 * MINUTE)
    assert stepped(all_have.bundle, 64, rotate="a").bundle == all_have.bundle
    done = stepped(all_have.bundle, 65, rotate="a")
    assert states(done.bundle) == [(new, "active")]
    assert done.condition.reason == "OneRoot"


@pytest.mark.parametrize("reports", [[], [report(15)], [report(15, "root-0")]])
def test_lc7_without_reports_of_all_the_stated_time_passes(reports: list[TrustReport]) -> None:
    asked = stepped(stepped(TrustBundle(), 0).bundle, 0, rotate="a")
    assert stepped(asked.bundle, 19.9, reports=reports, rotate="a").bundle == asked.bundle
    assert [state for _, state in states(stepped(asked.bundle, 20, reports=reports, rotate="a").bundle)] == [
        "retired",
        "active",
    ]


def test_report_that_is_not_renewed_is_not_waited_for() -> None:
    asked = stepped(stepped(TrustBundle(), 0).bundle, 25, rotate="a")
    new = states(asked.bundle)[1][0]
    found = stepped(asked.bundle, 26, reports=[report(5), report(25, new)], rotate="a")
    assert states(found.bundle)[1] == (new, "active")
    for age, is_fresh in ((19.9, True), (20, False)):
        assert rotation.is_fresh(report(0), GIVEN.trusted_after, START + age * MINUTE) is is_fresh


def test_second_request_waits_for_the_end_of_the_first() -> None:
    asked = stepped(stepped(TrustBundle(), 0).bundle, 0, rotate="a")
    assert len(stepped(asked.bundle, 1, rotate="b").bundle.roots) == 2
    retired = stepped(asked.bundle, 20, rotate="b")
    assert len(stepped(retired.bundle, 30, rotate="b").bundle.roots) == 2
    done = stepped(retired.bundle, 80, rotate="b")
    assert [state for _, state in states(stepped(done.bundle, 80, rotate="b").bundle)] == ["active", "announced"]


def test_root_is_rotated_before_it_ends() -> None:
    first = stepped(TrustBundle(), 0)
    assert first.next == START + 2400 * MINUTE
    assert len(stepped(first.bundle, 2399).bundle.roots) == 1
    assert len(stepped(first.bundle, 2400).bundle.roots) == 2


@dataclass
class Proxy:
    """A proxy, with the roots and the leaf that it has."""

    roots: tuple[str, ...] = ()
    leaf: str = ""
    leaf_ends: datetime.datetime = START
    # The last time at which its control plane knew these roots to be the current ones.
    as_of: datetime.datetime = START - 10**6 * MINUTE


@dataclass
class Process:
    """A control plane, which knows what it has last heard of the store."""

    name: str
    bundle: TrustBundle | None = None
    heard: datetime.datetime = START
    proxies: list[Proxy] = field(default_factory=list)

    def roots(self) -> tuple[str, ...]:
        return () if self.bundle is None else tuple(each.fingerprint for each in self.bundle.roots)


class Rotations(RuleBasedStateMachine):
    """Processes that are cut off, die and come late, proxies that accept late, and a leader that steps."""

    def __init__(self) -> None:
        super().__init__()
        self.now = START
        self.made = Roots()
        self.rotation = ""
        self.numbers = itertools.count(1)
        self.reports: dict[str, TrustReport] = {}
        self.stored = rotation.step(TrustBundle(), GIVEN, [], self.now, lambda: self.made.new(self.now)).bundle
        self.processes = [self.started() for _ in range(2)]
        self.all_is_well([0, 1])

    def started(self) -> Process:
        return Process(f"p-{next(self.numbers)}", heard=self.now, proxies=[Proxy(), Proxy()])

    @rule(minutes=st.sampled_from([0.5, 3, 5, 15, 40]))
    def time_passes(self, minutes: float) -> None:
        """All that are not cut off are renewed in between, as their timers have it."""
        self.now += minutes * MINUTE

    @rule(indexes=st.sampled_from([[0], [1], [0, 1], [0, 1]]))
    def all_is_well(self, indexes: list[int]) -> None:
        """Processes hear, their proxies accept, and the processes report it."""
        for index in indexes:
            self.hears(index)
            for which in (0, 1):
                self.accepts(index, which)
            self.hears(index)

    @rule(index=st.integers(0, 1))
    def hears(self, index: int) -> None:
        """As the controller of each process: report first, then trust, then report what its proxies have."""
        process = self.processes[index]
        if process.name not in self.reports:
            self.reports[process.name] = TrustReport(renewed=self.now)
        process.bundle, process.heard = self.stored, self.now
        had = self.reports[process.name].fingerprints
        roots = process.roots()
        for proxy in process.proxies:
            if proxy.roots == roots:
                proxy.as_of = self.now
        if all(proxy.roots == roots for proxy in process.proxies):
            had = list(roots)
        self.reports[process.name] = TrustReport(fingerprints=[each for each in roots if each in had], renewed=self.now)

    @rule(index=st.integers(0, 1), which=st.integers(0, 1))
    def accepts(self, index: int, which: int) -> None:
        """A proxy accepts what its process has for it: roots and a leaf come in one push."""
        process = self.processes[index]
        if process.bundle is None:
            return
        proxy = process.proxies[which]
        proxy.roots, proxy.as_of = process.roots(), process.heard
        signing = rotation.active(process.bundle)
        assert signing is not None
        proxy.leaf, proxy.leaf_ends = signing.fingerprint, self.now + GIVEN.leaf_lifetime

    @rule(index=st.integers(0, 1))
    def dies(self, index: int) -> None:
        """Its report stays. Its proxies keep what they have, and come to the process after it."""
        gone = self.processes[index]
        self.processes[index] = self.started()
        self.processes[index].proxies = gone.proxies

    @rule()
    def leader_steps(self) -> None:
        given = GIVEN._replace(rotation=self.rotation)
        reports = list(self.reports.values())
        step = rotation.step(self.stored, given, reports, self.now, lambda: self.made.new(self.now))
        self.stored = step.bundle
        self.reports = {
            name: each for name, each in self.reports.items() if rotation.is_fresh(each, GIVEN.trusted_after, self.now)
        }

    @rule()
    def rotation_is_asked_for(self) -> None:
        self.rotation += "."
        self.leader_steps()

    @invariant()
    def nobody_up_to_date_refuses_a_leaf(self) -> None:
        # By the rules: its control plane has heard within three quarters of the time until a root is trusted. A
        # report is renewed after a quarter of it.
        fresh = [
            proxy
            for process in self.processes
            for proxy in process.proxies
            if self.now < proxy.as_of + GIVEN.trusted_after * 0.75
        ]
        for one in fresh:
            for other in fresh:
                assert not other.leaf or other.leaf_ends <= self.now or other.leaf in one.roots

    @invariant()
    def one_root_signs_and_three_are_never_needed(self) -> None:
        found = [state for _, state in states(self.stored)]
        assert found in (["active"], ["active", "announced"], ["retired", "active"])


TestRotations = Rotations.TestCase
TestRotations.settings = hypothesis_settings(max_examples=200, stateful_step_count=30, deadline=None)
TestRotations = pytest.mark.hypothesis(pytest.mark.timeout(120)(TestRotations))


HOURS = datetime.timedelta(hours=1)
FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"rotation": "x" * 201}, r"data\.rotation has 201 characters"),
    ({"leaf_lifetime": HOURS / 10**6}, r"data\.leaf_lifetime is 0\.0036 s: it must be from 1 s to 31536000 s"),
    ({"root_lifetime": 100 * HOURS}, r"data\.root_lifetime is 360000 s: it must be from 2592000 s"),
    ({"trusted_after": -HOURS}, r"data\.trusted_after is -3600 s"),
    ({"removed_after": HOURS}, r"data\.removed_after is 3600 s: it must be from 259200 s"),
]


@pytest.mark.parametrize(("given", "match"), FAULTS)
async def test_lc3_settings_of_the_authority_are_checked(given: dict[str, Any], match: str) -> None:
    app = headway.App("certificates")
    for type in (CERTIFICATE_AUTHORITY, TRUST_BUNDLE, TRUST_REPORT):
        app.add_type(type)
    async with headway.open_engine("memory:", app) as engine:
        with pytest.raises(InvalidArgument, match=match):
            await engine.client.write(CERTIFICATE_AUTHORITY.new("mesh", CertificateAuthority(**given)))
        with pytest.raises(InvalidArgument, match="its name is 'mesh'"):
            await engine.client.write(CERTIFICATE_AUTHORITY.new("other", CertificateAuthority()))
        await engine.client.write(CERTIFICATE_AUTHORITY.new("mesh", CertificateAuthority()))
