"""Protobuf messages as Python classes: declaring, encoding, decoding, copying and describing them.

Nothing here waits, reads a clock or does I/O, and nothing refers to resources. Start reading at `_message.py`, which
declares a class, then `_codec.py`, and `_compile.py`, which compiles the codec of a class.
"""

from typing import TYPE_CHECKING

from headway._imported_later import imported_later
from headway.protobuf._annotation import LONGEST_DURATION as LONGEST_DURATION
from headway.protobuf._codec import Payload as Payload
from headway.protobuf._codec import codec_of as codec_of
from headway.protobuf._codec import copy_message as copy_message
from headway.protobuf._codec import decode as decode
from headway.protobuf._codec import decoder_of as decoder_of
from headway.protobuf._codec import encode as encode
from headway.protobuf._codec import equal as equal
from headway.protobuf._codec import has_unknown_fields as has_unknown_fields
from headway.protobuf._codec import payload_problem as payload_problem
from headway.protobuf._declared import bind_name as bind_name
from headway.protobuf._declared import module_name as module_name
from headway.protobuf._declared import named_if_declared as named_if_declared
from headway.protobuf._description import Description as Description
from headway.protobuf._description import rebuild_messages as rebuild_messages
from headway.protobuf._field_count import check_field_count as check_field_count
from headway.protobuf._field_count import counting_fields as counting_fields
from headway.protobuf._message import field as field
from headway.protobuf._message import message as message
from headway.protobuf._plan import FieldPlan as FieldPlan
from headway.protobuf._plan import UnsupportedClassError as UnsupportedClassError
from headway.protobuf._plan import Value as Value
from headway.protobuf._plan import metadata_of as metadata_of
from headway.protobuf._plan import plan_class as plan_class
from headway.protobuf._plan import redecorated_problem as redecorated_problem
from headway.protobuf._same_content import comparing_content as comparing_content
from headway.protobuf._same_content import same_content as same_content
from headway.protobuf._same_content import wire_parts as wire_parts
from headway.protobuf._secrets import REDACTED as REDACTED
from headway.protobuf._secrets import REDACTED_CHANGED as REDACTED_CHANGED
from headway.protobuf._secrets import holds_secrets as holds_secrets
from headway.protobuf._secrets import redacted as redacted
from headway.protobuf._secrets import secret_fields as secret_fields
from headway.protobuf._secrets import secret_values as secret_values
from headway.protobuf._secrets import without_secrets as without_secrets
from headway.protobuf._sharing import sharing_decoder_of as sharing_decoder_of
from headway.protobuf._stepwise import SMALL as SMALL
from headway.protobuf._stepwise import decoding as decoding
from headway.protobuf._stepwise import encoding as encoding
from headway.protobuf._unknown_fields import field_units as field_units
from headway.protobuf._unknown_fields import keep_unknown_fields as keep_unknown_fields
from headway.protobuf._unknown_fields import set_field as set_field
from headway.protobuf._wire import read_varint as read_varint
from headway.protobuf._wire import varint as varint

if TYPE_CHECKING:
    from headway.protobuf._descriptors import FileProto as FileProto
    from headway.protobuf._descriptors import FileSet as FileSet
    from headway.protobuf._descriptors import MessageProto as MessageProto
    from headway.protobuf._files import payload_files as payload_files

# Imported on first use, to keep `import headway` light: only a server that describes its types needs them.
_LATER = {
    "_descriptors": "FileProto FileSet MessageProto",
    "_files": "payload_files",
}

__getattr__ = imported_later(__name__, _LATER)
