"""The sentences of an answer: a table of answers, with what each says."""

from __future__ import annotations

import dataclasses

import pytest

from headway.why import (
    Cause,
    Condition,
    ControllerWhy,
    Finalizer,
    Gone,
    LeaseNow,
    PastReconcile,
    PastWrite,
    PrimingType,
    Ref,
    Stored,
    StuckItem,
    StuckList,
    Touched,
    TurnedAwayChange,
    UnmappedChange,
    Why,
    sentences,
)

NOW = 1_700_000_000.0
CORE = Ref("staff.v1.Team", "default", "default", "core")
ADA = Ref("staff.v1.Account", "default", "default", "ada")
HELD = LeaseNow("staff/teams", "web-7", NOW - 60, NOW - 10, NOW + 10)
HEAD = "Controller staff/teams manages it, in process web-1."


def a_controller(state: str, **fields: object) -> ControllerWhy:
    return ControllerWhy("staff/teams", "web-1", "manages", state, **fields)  # type: ignore[arg-type]  # any field


def said(*controllers: ControllerWhy, **fields: object) -> list[str]:
    """Return the sentences after the name of the resource."""
    fields = {"stored": Stored("5", "01J"), **fields}
    lines = sentences(Why(NOW, CORE, controllers=controllers, **fields))  # type: ignore[arg-type]  # any field
    assert lines[0] == "staff.v1.Team core"
    return lines[1:]


@pytest.mark.parametrize(
    ("controller", "lines"),
    [
        (a_controller("idle"), ["It is idle: nothing is pending."]),
        (a_controller("idle", since=NOW - 9), ["It has been idle since 22:13:11 (9 s ago)."]),
        (
            a_controller("queued", since=NOW - 4, owed_since=NOW - 4, attempt=1),
            [
                "It has been queued since 22:13:16 (4 s ago), for attempt 1.",
                "Its work has been pending since 22:13:16 (4 s ago).",
            ],
        ),
        (
            a_controller("running", since=NOW - 7, attempt=2, stack='  File "staff.py", line 4\n    await disk()\n'),
            [
                "It has been running for 7 s, attempt 2.",
                "It waits at:",
                '      File "staff.py", line 4',
                "        await disk()",
            ],
        ),
        (
            a_controller("held", since=NOW - 3, held_write=ADA, held_by=CORE, error="OutcomeUnknown: reset"),
            [
                "It has been held since 22:13:17 (3 s ago): the outcome of the write of Account ada in the reconcile "
                "of Team core is unknown, and is being resolved.",
                "The last error: OutcomeUnknown: reset",
            ],
        ),
        (
            a_controller("held", since=NOW - 3),
            ["It has been held since 22:13:17 (3 s ago): the outcome of a write is unknown, and is being resolved."],
        ),
        (
            a_controller("waiting", until=NOW + 3, attempt=5, error="Conflict: read it again", traceback="  File 1\n"),
            [
                "It waits until 22:13:23 (in 3 s) for attempt 5, after 4 failures in a row.",
                "The last error: Conflict: read it again",
                "      File 1",
            ],
        ),
        (
            a_controller("waiting", until=NOW + 0.25, attempt=2),
            ["It waits until 22:13:20 (in 250 ms) for attempt 2, after a failure."],
        ),
        (
            a_controller("slowed", until=NOW + 60, error="triggers itself with its own writes: Team core written at 7"),
            [
                "It waits until 22:14:20 (in 60 s), because it triggers itself with its own writes: Team core written "
                "at 7."
            ],
        ),
        (
            a_controller("given up", since=NOW - 600, error="PermanentFailure: taken"),
            [
                "It gave up at 22:03:20 (10 min ago), and waits for a change.",
                "The last error: PermanentFailure: taken",
            ],
        ),
        (
            a_controller("scheduled", until=NOW + 86_400),
            ["Its next call is at 2023-11-15 22:13:20 (in 24 h), and nothing is pending until then."],
        ),
        (
            a_controller("scheduled", until=NOW + 3600e9),
            ["Its next call is at a time after the year 9999, and nothing is pending until then."],
        ),
        (
            a_controller("scheduled", until=1e300),
            ["Its next call is at a time after the year 9999, and nothing is pending until then."],
        ),
        (a_controller("idle", since=-1e300), ["It has been idle since an unknown time."]),
        (
            a_controller(
                "priming",
                since=NOW - 83,
                priming=(PrimingType("staff.v1.Account", 1200, 0, 41, "no answer"),),
            ),
            [
                "The controller has been priming since 22:11:57 (83 s ago), so nothing is reconciled yet.",
                "It waits for staff.v1.Account: 1200 received, revision 0 of 41; no answer.",
            ],
        ),
        (
            a_controller("standby", since=NOW - 5, holder="web-7"),
            ["It has been standing by since 22:13:15 (5 s ago): process web-7 holds the lease staff/teams."],
        ),
        (
            a_controller("standby", since=NOW - 5, holder="web-7", lease=HELD),
            [
                "It has been standing by since 22:13:15 (5 s ago): process web-7 holds the lease staff/teams.",
                "web-7 has held the lease since 22:12:20 (60 s ago), and renewed it last at 22:13:10 (10 s ago). "
                "Without a renewal it ends at 22:13:30 (in 10 s).",
                "web-7 is not connected to this server. Process web-1 does nothing for the resource until the lease "
                "ends: ask the server that web-7 is connected to, or stop web-7 if nobody needs it.",
            ],
        ),
        (
            a_controller("standby", since=NOW - 5, holder="web-7", lease=LeaseNow("staff/teams")),
            [
                "It has been standing by since 22:13:15 (5 s ago): process web-7 holds the lease staff/teams.",
                "No process holds the lease staff/teams now. A process that waits for it acquires it soon.",
            ],
        ),
        (
            a_controller("standby", shard=4, holder="web-7"),
            ["It stands by: the resource belongs to shard 3, which process web-7 holds."],
        ),
        (
            a_controller("standby", shard=4),
            ["It stands by: the resource belongs to shard 3, which another process holds."],
        ),
        (
            a_controller("resting", since=NOW - 1, error="ValueError: no licence"),
            [
                "Its last run failed at 22:13:19 (1 s ago), and the next one begins soon.",
                "The last error: ValueError: no licence",
            ],
        ),
        (
            a_controller("starting", since=NOW - 1),
            ["The controller has been starting since 22:13:19 (1 s ago): it acquires its lease and raises its fence."],
        ),
        (a_controller("ended"), ["The controller has ended with the block of its engine."]),
        (
            a_controller(
                "idle",
                unmapped=(
                    UnmappedChange(ADA, 8, "app.<locals>.team_of", "KeyError: 'x'", "  File 2\n", 3, NOW - 20, NOW + 5),
                ),
                unmapped_count=12,
                behind=4,
            ),
            [
                "It is idle: nothing is pending.",
                "The function team_of raised for Account ada, at revision 8. It has raised 3 times since 22:13:00 "
                "(20 s ago); the change may concern this resource. The next attempt is at 22:13:25 (in 5 s).",
                "  KeyError: 'x'",
                "  Its traceback: `headway why account ada`",
                "12 resources in all have a change that could not be mapped.",
                "4 changes wait until all types of the controller have reached them.",
            ],
        ),
        (
            a_controller("idle", turned_away=(TurnedAwayChange(NOW - 2, CORE, 9, "has_a_lead"),)),
            [
                "It is idle: nothing is pending.",
                "Predicate has_a_lead turned away the change of Team core at revision 9, at 22:13:18 (2 s ago), so "
                "nothing was queued for it.",
            ],
        ),
        (
            a_controller(
                "queued",
                since=NOW,
                attempt=1,
                causes=(
                    Cause("changed", ADA, 8, "team_of", "token ada"),
                    Cause("changed", CORE, 9),
                    Cause("source ticks"),
                    Cause("owed"),
                    Cause("started"),
                    Cause("started", ADA, 0, "team_of"),
                    Cause("started", CORE),
                    Cause("retry"),
                ),
            ),
            [
                "It has been queued since 22:13:20 (< 1 ms ago), for attempt 1.",
                "Queued by: Account ada changed at revision 8, which token ada wrote, through team_of.",
                "Queued by: Team core changed at revision 9.",
                "Queued by: source ticks.",
                "Queued by: what the last run left.",
                "Queued by: the start of the run, from Account ada through team_of and Team core.",
            ],
        ),
        (
            a_controller(
                "idle",
                reconciles=(
                    PastReconcile(
                        NOW - 5,
                        "done",
                        0.002,
                        0.1,
                        1,
                        [Cause("changed", CORE, 9)],
                        [Touched("get", CORE), Touched("index lead", Ref("staff.v1.Account"))],
                        [Touched("written", ADA, 10)],
                    ),
                    PastReconcile(NOW - 6, "failed", 0.0004, 0.1, 1, error="ValueError: no"),
                    PastReconcile(
                        NOW - 7,
                        "failed",
                        0.0004,
                        0.1,
                        11,
                        [],
                        [Touched("get", CORE, 9)],
                        error="ValueError: no",
                        alike=10,
                        first_at=NOW - 300,
                        first_attempt=2,
                    ),
                    PastReconcile(
                        NOW - 400,
                        "failed",
                        0.002,
                        0.1,
                        3,
                        error="ValueError: no",
                        alike=4,
                        first_at=NOW - 420,
                        first_attempt=2,
                    ),
                ),
            ),
            [
                "It is idle: nothing is pending.",
                "Reconcile at 22:13:15 (5 s ago), attempt 1, in 2 ms: done. Because of: Team core changed at revision "
                "9. Read: Team core, Account by index lead. Wrote: Account ada written at 10.",
                "Reconcile at 22:13:14 (6 s ago), attempt 1, in < 1 ms: failed: ValueError: no. Because of: unknown. "
                "Read: nothing. Wrote: nothing.",
                "Attempts 2 to 11 failed with the same error, from 22:08:20 (5 min ago) to 22:13:13 (7 s ago): "
                "ValueError: no. The last one took < 1 ms. Because of: unknown. Read: Team core at version 9. Wrote: "
                "nothing.",
                # A run has ended among them, so their numbers say nothing.
                "4 attempts failed with the same error, from 22:06:20 (7 min ago) to 22:06:40 (7 min ago): "
                "ValueError: no. The last one took 2 ms. Because of: unknown. Read: nothing. Wrote: nothing.",
            ],
        ),
    ],
    ids=lambda value: value.state if isinstance(value, ControllerWhy) else "",
)
def test_each_state_has_its_sentences(controller: ControllerWhy, lines: list[str]) -> None:
    assert said(controller)[1:] == [HEAD, *(f"  {each}" for each in lines)]


@pytest.mark.parametrize(
    ("stored", "writes", "lines"),
    [
        (None, (), ["It is not stored."]),
        (
            None,
            (PastWrite(NOW - 60, 9, "deleted", "token ada"),),
            ["It is not stored: it was deleted at revision 9, at 22:12:20 (60 s ago) by token ada."],
        ),
        (
            Stored("5", "01J", ADA, True, [], [Finalizer("teams", "staff/teams"), Finalizer("backup")]),
            (),
            [
                "It is stored at version 5, generation 01J.",
                "It is owned by Account ada, and is deleted with it.",
                "It is marked for deletion, and held by teams, backup.",
                "Its finalizer teams is removed by controller staff/teams.",
                "Its finalizer backup does not have the name of a controller that is known here. Controller "
                "staff/teams, which manages the type, may remove it under that name. If no running program removes "
                "it, start the one that does. Remove it by hand only if there is none: its clean-up is then never "
                "done.",
            ],
        ),
        (
            Stored("5", "01J", None, True),
            (),
            ["It is stored at version 5, generation 01J.", "It is marked for deletion."],
        ),
        (
            Stored(
                "5",
                "01J",
                conditions=[Condition("teams", "Ready", "FALSE", False, "NoLead", "has no lead")],
            ),
            (),
            [
                "It is stored at version 5, generation 01J.",
                "Condition Ready is FALSE by teams, for an older generation. NoLead (has no lead)",
            ],
        ),
        (
            Stored(
                "5",
                "01J",
                conditions=[Condition("teams", "Ready", "TRUE", True)],
            ),
            (),
            ["It is stored at version 5, generation 01J.", "Condition Ready is TRUE by teams."],
        ),
    ],
)
def test_what_is_stored_has_its_sentences(
    stored: Stored | None, writes: tuple[PastWrite, ...], lines: list[str]
) -> None:
    controller = a_controller("idle")
    found = said(controller, stored=stored, writes=writes)
    assert found[: found.index(HEAD)] == [f"  {each}" for each in lines]


def test_nobody_is_a_sentence() -> None:
    """Also beside a controller that only watches the type, which is named although nothing is wrong there."""
    watching = ControllerWhy("staff/accounts", "web-1", "watches")
    sentence = "No controller manages staff.v1.Team in any process that is connected to this server."
    assert said()[1:] == [sentence]
    assert said(watching)[1:] == [sentence, "Controller staff/accounts watches it, in process web-1."]


def test_gone_process_is_named_unless_another_one_runs_its_controllers() -> None:
    gone = Gone("web-2", NOW - 60, ["staff/teams"])
    sentence = "Process web-2, which ran staff/teams, has been gone since 22:12:20 (60 s ago)."
    assert said(gone=(gone,))[1:] == [sentence]
    assert sentence in said(a_controller("standby", holder="web-2"), gone=(gone,))
    assert sentence not in said(a_controller("idle"), gone=(gone,))


def test_answer_has_what_a_connected_holder_does_only_if_the_holder_has_answered() -> None:
    """For this controller: a process with the name of the holder may run another one."""
    standby = a_controller("standby", since=NOW - 5, holder="web-6", lease=dataclasses.replace(HELD, connected=True))
    holder = ControllerWhy("staff/teams", "web-7", "manages", "idle")
    connected, unknown = "  web-7 is connected to this server", "what web-7 does is not known."
    assert f"{connected}, so this answer also has what web-7 does." in said(standby, holder)
    assert f"{connected}, but has not answered: {unknown}" in said(standby, unreachable=("web-7",))
    other = dataclasses.replace(holder, name="staff/leads")
    assert f"{connected}, but says nothing about the resource: {unknown}" in said(standby, other)
    without_lease = a_controller("standby", holder="web-7", error="ValueError: no license")
    assert "  The last error: ValueError: no license" in said(without_lease)


@pytest.mark.parametrize(
    ("item", "sentence"),
    [
        (
            StuckItem("staff/teams", "web-1", CORE, "waiting", NOW - 90, 5, "ValueError: no"),
            "Team core: controller staff/teams (web-1) has had work pending since 22:11:50 (90 s ago), waiting for "
            "attempt 5: ValueError: no",
        ),
        (
            StuckItem("staff/teams", "web-1", CORE, "running", NOW - 90, 1),
            "Team core: controller staff/teams (web-1) has had work pending since 22:11:50 (90 s ago), running",
        ),
        (
            StuckItem(
                "staff/teams", "web-1", CORE, "running", NOW - 90, 2, line='File "a.py", line 7, in teams: await x()'
            ),
            "Team core: controller staff/teams (web-1) has had work pending since 22:11:50 (90 s ago), running attempt "
            '2 at File "a.py", line 7, in teams: await x()',
        ),
        (
            StuckItem("staff/teams", "web-1", CORE, "given up", NOW - 90, 1, "PermanentFailure: taken"),
            "Team core: controller staff/teams (web-1) gave up at 22:11:50 (90 s ago), and waits for a change: "
            "PermanentFailure: taken",
        ),
        (
            StuckItem("staff/teams", "web-1", ADA, "unmapped", NOW - 90, 3, "team_of: KeyError: 1"),
            "Account ada: controller staff/teams (web-1) could not map its change, and has failed 3 times "
            "since 22:11:50 (90 s ago): team_of: KeyError: 1",
        ),
        (
            StuckItem("staff/teams", "web-1", Ref("staff.v1.Team"), "priming", NOW - 90, 0, "staff.v1.Account"),
            "Controller staff/teams (web-1) has been priming since 22:11:50 (90 s ago): staff.v1.Account",
        ),
    ],
    ids=lambda value: value.state if isinstance(value, StuckItem) else "",
)
def test_each_stuck_item_is_one_sentence(item: StuckItem, sentence: str) -> None:
    assert sentences(StuckList(NOW, [item])) == [sentence]


def test_what_is_left_out_is_counted() -> None:
    assert sentences(StuckList(NOW, [], 7, ["web-2"])) == [
        "7 more are not listed.",
        "Process web-2 did not answer, so it is not known what waits for its controllers.",
    ]
