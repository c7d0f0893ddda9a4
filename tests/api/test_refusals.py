"""The one table of refusals: each error over gRPC and back, and its code over HTTP."""

from __future__ import annotations

import pytest
from grpclib.const import Status

from headway import errors, storage
from headway.api import ROWS, Code, MethodNotFound, ProgramFailed, Reason, Row, error_of, row_of
from headway.client import client_error
from headway.errors import HeadwayError, OutcomeUnknown, QuotaExceeded, RateLimited, Unavailable
from headway.rpc import grpc_error, told
from headway.rpc._refusals import refusal_of, refused
from tests.helpers.service_errors import an_error, reason_of

UNCERTAIN = (Code.INTERNAL, Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.DATA_LOSS, Code.RESOURCE_EXHAUSTED)
"""The statuses after which a write may have been stored, unless their reason says otherwise."""


_PUBLIC = {errors.PayloadError: errors.InvalidArgument, MethodNotFound: errors.NotHeadway}
"""The errors that a client raises in place of others."""


def test_codes_are_the_statuses_of_grpc() -> None:
    assert {each.name: each.value for each in Code} == {each.name: each.value for each in Status if each.value}


def test_each_row_is_found_by_its_error() -> None:
    """A row behind one of its base class would never be found."""
    found = [row_of(an_error(row)) for row in ROWS]
    assert [row and row.error for row in found] == [row.error for row in ROWS]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.error.__name__)
def test_error_has_its_form_over_grpc(row: Row) -> None:
    error = an_error(row)
    wire = grpc_error(error)

    assert wire is not None
    refusal = refusal_of(wire)
    reason = None if refusal is None else refusal.reason
    assert (wire.status.value, wire.message, reason) == (row.code, "because", reason_of(error))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.error.__name__)
def test_client_gets_the_error_back(row: Row) -> None:
    """An error that only services raise becomes the public one with the same outcome."""
    error = an_error(row)
    wire = grpc_error(error)
    assert wire is not None
    read, written = client_error(told(wire)), client_error(told(wire), write=True)

    if row.reason is Reason.NOTHING_WRITTEN:
        assert {type(read), type(written)} == {Unavailable}
    elif row.code in UNCERTAIN and reason_of(error) is None:
        assert type(written) is OutcomeUnknown
        assert type(read) is (errors.StoreChanged if row.code is Code.DATA_LOSS else Unavailable)
    else:
        expected = _PUBLIC.get(type(error), type(error))
        assert {type(read), type(written)} == {expected}


def test_numbers_of_a_refusal_reach_the_client() -> None:
    quota = grpc_error(QuotaExceeded("because", "a quota", "bytes", 3, 2, 1))
    limit = grpc_error(RateLimited("because", 1.5))
    assert quota is not None
    assert limit is not None
    found, limited = told(quota), told(limit)

    assert isinstance(found, QuotaExceeded)
    assert (found.quota, found.what, found.limit, found.use, found.adds) == ("a quota", "bytes", 3, 2, 1)
    assert isinstance(limited, RateLimited)
    assert limited.retry_after == 1.5


def test_reason_that_has_no_name_here_leaves_the_status() -> None:
    """A newer server may give one."""
    assert error_of(Code.FAILED_PRECONDITION, None) is errors.FailedPrecondition
    assert error_of(Code.FAILED_PRECONDITION, Reason(99)) is errors.FailedPrecondition


@pytest.mark.parametrize(
    ("raised", "public"),
    [
        (storage.VersionConflict, errors.Conflict),
        (storage.WrongUid, errors.WrongUid),
        (storage.FenceLowered, errors.Fenced),
        (storage.UnknownTerm, errors.UnknownTerm),
        (storage.TermEnded, errors.LeaseLost),
        (storage.StoreMismatch, errors.StoreChanged),
    ],
)
def test_error_of_a_store_has_the_form_of_the_public_one(
    raised: type[HeadwayError], public: type[HeadwayError]
) -> None:
    row = row_of(raised("because"))
    assert row is not None
    assert row.error is public


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
