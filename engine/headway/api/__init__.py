"""The seam between services and those who call them: methods by path, and the one table of refusals.

A service raises the errors of `headway.errors`. What carries a call, such as gRPC or HTTP, looks up their forms here.
"""

from headway.api._calls import FAILED as FAILED
from headway.api._calls import FailedCall as FailedCall
from headway.api._calls import Interrupted as Interrupted
from headway.api._calls import NotBegun as NotBegun
from headway.api._calls import NotServed as NotServed
from headway.api._calls import call_of as call_of
from headway.api._calls import code_of as code_of
from headway.api._calls import described as described
from headway.api._calls import of_call as of_call
from headway.api._methods import Cardinality as Cardinality
from headway.api._methods import Handler as Handler
from headway.api._refusals import ROWS as ROWS
from headway.api._refusals import Code as Code
from headway.api._refusals import DeadlineExceeded as DeadlineExceeded
from headway.api._refusals import DetailedPrecondition as DetailedPrecondition
from headway.api._refusals import Exhausted as Exhausted
from headway.api._refusals import MethodNotFound as MethodNotFound
from headway.api._refusals import NothingWritten as NothingWritten
from headway.api._refusals import ProgramFailed as ProgramFailed
from headway.api._refusals import ProgramFailedLate as ProgramFailedLate
from headway.api._refusals import Reason as Reason
from headway.api._refusals import Row as Row
from headway.api._refusals import error_of as error_of
from headway.api._refusals import row_of as row_of
