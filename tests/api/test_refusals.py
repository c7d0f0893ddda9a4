"""The one table of refusals: each error over gRPC and back, and its code over HTTP."""

from __future__ import annotations

from typing import Any

import pytest
from grpclib import GRPCError
from grpclib.const import Status

from headway import errors, storage
from headway.api import Code, ProgramFailed, ProgramFailedLate, Reason, Row, error_of, row_of
from headway.api._refusals import ROWS
from headway.client import client_error
from headway.errors import HeadwayError, OutcomeUnknown, QuotaExceeded, RateLimited, Unavailable
from headway.rpc._refused import grpc_error, reason_of, refused

ARGUMENTS: dict[type[HeadwayError], tuple[Any, ...]] = {
    QuotaExceeded: ("a quota", "bytes", 3, 2, 1),
    RateLimited: (1.5,),
    ProgramFailed: (ValueError("broken"),),
    ProgramFailedLate: (ValueError("broken"),),
}
"""The further arguments of the errors that have more than a message."""

UNCERTAIN = (Code.INTERNAL, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.DATA_LOSS, Code.RESOURCE_EXHAUSTED)
"""The statuses after which a write may have been stored, unless their reason says otherwise."""


def an_error(row: Row) -> HeadwayError:
    return row.error("because", *ARGUMENTS.get(row.error, ()))


def test_codes_are_the_statuses_of_grpc() -> None:
    assert {each.name: each.value for each in Code} == {each.name: each.value for each in Status if each.value}


def test_each_row_is_found_by_its_error() -> None:
    """A row behind one of its base class would never be found."""
    assert [row_of(an_error(row)) for row in ROWS] == list(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.error.__name__)
def test_error_has_its_form_over_grpc(row: Row) -> None:
    wire = grpc_error(an_error(row))

    assert wire is not None
    assert (wire.status.value, wire.message, reason_of(wire)) == (row.code, "because", row.reason)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.error.__name__)
def test_client_gets_the_error_back(row: Row) -> None:
    """It is the same one, or the public one that says as much of the outcome."""
    error = an_error(row)
    wire = grpc_error(error)
    assert wire is not None
    read, written = client_error(wire), client_error(wire, write=True)

    if row.reason is Reason.NOTHING_WRITTEN:
        assert {type(read), type(written)} == {Unavailable}
    elif row.code in UNCERTAIN and row.reason is None:
        assert type(written) is OutcomeUnknown
        assert type(read) is (errors.StoreChanged if row.code is Code.DATA_LOSS else Unavailable)
    else:
        public = errors.InvalidArgument if row.error is errors.PayloadError else row.error
        expected = errors.FailedPrecondition if row.reason is Reason.COPIES else public
        assert {type(read), type(written)} == {expected} or isinstance(read, expected)


def test_numbers_of_a_refusal_reach_the_client() -> None:
    quota = grpc_error(QuotaExceeded("because", "a quota", "bytes", 3, 2, 1))
    limit = grpc_error(RateLimited("because", 1.5))
    assert quota is not None
    assert limit is not None
    found, limited = client_error(quota, write=True), client_error(limit, write=True)

    assert isinstance(found, QuotaExceeded)
    assert (found.quota, found.what, found.limit, found.use, found.adds) == ("a quota", "bytes", 3, 2, 1)
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 1.5


def test_reason_that_has_no_name_here_leaves_the_status() -> None:
    """A newer server may give one."""
    assert error_of(Code.FAILED_PRECONDITION, None) is errors.FailedPrecondition
    assert error_of(Code.FAILED_PRECONDITION, Reason(99)) is errors.FailedPrecondition


def test_errors_of_stores_are_refusals() -> None:
    """They reach a caller without a translation."""
    kinds = (storage.VersionConflict, storage.WrongUid, storage.FenceLowered, storage.UnknownTerm, storage.TermEnded)
    found = [row_of(kind("because")) for kind in (*kinds, storage.StoreMismatch)]

    assert [None if row is None else row.reason for row in found] == [
        None,
        Reason.WRONG_UID,
        Reason.FENCED,
        Reason.UNKNOWN_TERM,
        Reason.LEASE_LOST,
        None,
    ]
    assert [None if row is None else row.code for row in (found[0], found[-1])] == [Code.ABORTED, Code.DATA_LOSS]


@pytest.mark.parametrize("error", [KeyError("x"), errors.NotPrimed("x"), errors.EngineBug("x")])
def test_other_errors_are_faults_of_the_server(error: Exception) -> None:
    """Their text may say what the caller must not know. The operator gets it."""
    told: list[tuple[str, BaseException]] = []
    wire = refused("/a/b", error, lambda *what: told.append(what))

    assert (wire.status, wire.message) == (Status.UNKNOWN, "Internal Server Error")
    assert told == [("/a/b", error)]


def test_cause_of_a_failed_hook_is_reported_and_not_sent() -> None:
    told: list[tuple[str, BaseException]] = []
    cause = ValueError("a secret")
    wire = refused("/a/b", ProgramFailed("the hook failed", cause), lambda *what: told.append(what))

    assert (wire.status, wire.message) == (Status.INTERNAL, "the hook failed")
    assert told == [("/a/b", cause)]


def test_errors_of_grpc_pass_as_they_are() -> None:
    """The stream of a call may have raised one."""
    error = GRPCError(Status.CANCELLED)
    assert refused("/a/b", error, lambda *_: None) is error
