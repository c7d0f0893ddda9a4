"""Helpers for all other packages: text for errors, checks of declarations, exception groups, reports, clocks, forks.

Nothing here knows a resource or a protocol. `_declarations.py` checks the functions and arguments of a program by
the annotations that `_annotations.py` reads, and `_groups.py` splits and unwraps the exceptions of nurseries.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.base._annotations import Count as Count
from headway.base._annotations import Delay as Delay
from headway.base._annotations import Endless as Endless
from headway.base._annotations import Fraction as Fraction
from headway.base._annotations import Positive as Positive
from headway.base._annotations import Range as Range
from headway.base._annotations import Seconds as Seconds
from headway.base._annotations import value_problem as value_problem
from headway.base._arguments import check_selection as check_selection
from headway.base._arguments import check_text as check_text
from headway.base._arguments import check_token as check_token
from headway.base._async_blocks import AsyncBlock as AsyncBlock
from headway.base._async_blocks import AsyncStream as AsyncStream
from headway.base._async_blocks import async_block as async_block
from headway.base._async_blocks import plain_block as plain_block
from headway.base._backing_off import retry_delay as retry_delay
from headway.base._buckets import Bucket as Bucket
from headway.base._buckets import Buckets as Buckets
from headway.base._chance import chance as chance
from headway.base._clock import WALL as WALL
from headway.base._clock import utc_now as utc_now
from headway.base._clock import wall_time as wall_time
from headway.base._declarations import answer_problem as answer_problem
from headway.base._declarations import async_problem as async_problem
from headway.base._declarations import check_keywords as check_keywords
from headway.base._declarations import check_options as check_options
from headway.base._declarations import check_plain as check_plain
from headway.base._declarations import checked as checked
from headway.base._declarations import checked_and as checked_and
from headway.base._declarations import either_problem as either_problem
from headway.base._declarations import function_text as function_text
from headway.base._declarations import plain_problem as plain_problem
from headway.base._forks import in_forked_child as in_forked_child
from headway.base._forks import silence_in_forked_child as silence_in_forked_child
from headway.base._groups import all_are as all_are
from headway.base._groups import guarded as guarded
from headway.base._groups import leaves as leaves
from headway.base._groups import leaving as leaving
from headway.base._groups import messages as messages
from headway.base._groups import of_controller as of_controller
from headway.base._groups import only_error as only_error
from headway.base._groups import ordinary as ordinary
from headway.base._groups import story as story
from headway.base._in_order import in_order as in_order
from headway.base._joined import joined as joined
from headway.base._nursery import block_nursery as block_nursery
from headway.base._private_files import OWNER_ONLY as OWNER_ONLY
from headway.base._private_files import check_regular as check_regular
from headway.base._private_files import check_secret as check_secret
from headway.base._private_files import create_private as create_private
from headway.base._private_files import exposure as exposure
from headway.base._private_files import read_secret as read_secret
from headway.base._private_names import PYTHON as PYTHON
from headway.base._private_names import TRIO as TRIO
from headway.base._private_names import PrivateNames as PrivateNames
from headway.base._private_names import check_private_names as check_private_names
from headway.base._reports import BoundedReport as BoundedReport
from headway.base._reports import safe_report as safe_report
from headway.base._scrubbing import scrub as scrub
from headway.base._slices import Slices as Slices
from headway.base._standard_error import Output as Output
from headway.base._standard_error import say as say
from headway.base._steps import Steps as Steps
from headway.base._steps import finished as finished
from headway.base._steps import in_slices as in_slices
from headway.base._text import ASYNCIO as ASYNCIO
from headway.base._text import LONGEST as LONGEST
from headway.base._text import bounded as bounded
from headway.base._text import did_you_mean as did_you_mean
from headway.base._text import encodable as encodable
from headway.base._text import ended as ended
from headway.base._text import error_text as error_text
from headway.base._text import is_from_asyncio as is_from_asyncio
from headway.base._text import plain as plain
from headway.base._text import repr_text as repr_text
from headway.base._text import without_password as without_password
from headway.base._thread_calls import ThreadCalls as ThreadCalls
from headway.base._thread_calls import thread_calls as thread_calls
from headway.base._thread_calls import wait_thread_calls as wait_thread_calls
from headway.base._tracebacks import all_frames as all_frames
from headway.base._tracebacks import calling_line as calling_line
from headway.base._tracebacks import first_leaves as first_leaves
from headway.base._tracebacks import message_of as message_of
from headway.base._tracebacks import own_frames as own_frames
from headway.base._tracebacks import reason_text as reason_text
from headway.base._tracebacks import stack_text as stack_text
from headway.base._tracebacks import where_of as where_of
from headway.base._trio import OneRun as OneRun
from headway.base._trio import check_trio as check_trio
from headway.base._trio import current_run as current_run
from headway.base._trio import give_way as give_way
from headway.base._trio import is_within as is_within
from headway.base._turns import CALLER as CALLER
from headway.base._turns import CallerTurns as CallerTurns
from headway.base._turns import KeyTurns as KeyTurns
from headway.base._turns import by_turns as by_turns
from headway.base._turns import in_turn as in_turn

if TYPE_CHECKING:
    from headway.base._http_get import GetFailed as GetFailed
    from headway.base._http_get import http_get as http_get

# Imported on first use: only the keys of issuers and `headway top` need it.
__getattr__ = imported_later(__name__, {"_http_get": "GetFailed http_get"})
