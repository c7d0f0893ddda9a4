"""The hand-encoded parts of a transaction equal those that the codec makes of messages."""

from hypothesis import given
from hypothesis import strategies as st

from headway._gen.etcdserverpb import PutResponse, RangeResponse, ResponseHeader, ResponseOp, TxnRequest, TxnResponse
from headway._gen.mvccpb import KeyValue
from headway.protobuf import decode, encode
from headway.storage.etcd.layout import Transaction, TransactionReply, comparison, put, putting, unchanged

REVISIONS = st.sampled_from([0, 1, 127, 128, 16_383, 16_384, 2**32, 2**63 - 1]) | st.integers(0, 2**63 - 1)
KEYS = st.binary(min_size=1, max_size=300)
# Lengths on both sides of those whose varint gets one byte more.
VALUES = st.binary(min_size=1, max_size=200) | st.sampled_from([127, 128, 16_000, 16_384, 70_000]).map(bytes)


@given(st.lists(st.tuples(KEYS, REVISIONS), max_size=4), st.lists(st.tuples(KEYS, VALUES), max_size=4))
def test_transaction_has_the_bytes_of_its_messages(
    compared: list[tuple[bytes, int]], puts: list[tuple[bytes, bytes]]
) -> None:
    whole = TxnRequest(
        compare=[unchanged(key, revision) for key, revision in compared],
        success=[putting(key, value) for key, value in puts],
    )
    parts = Transaction(
        compare=[comparison(key, revision) for key, revision in compared],
        success=[put(key, value) for key, value in puts],
    )
    assert encode(parts) == encode(whole)


@given(REVISIONS, st.booleans(), VALUES)
def test_reply_has_all_that_a_whole_reply_has_but_the_responses(revision: int, succeeded: bool, value: bytes) -> None:
    found = ResponseOp(response_range=RangeResponse(kvs=[KeyValue(key=b"k", value=value)], count=1))
    header = ResponseHeader(revision=revision)
    whole = TxnResponse(header=header, succeeded=succeeded, responses=[ResponseOp(response_put=PutResponse()), found])
    reply = decode(TransactionReply, encode(whole))
    assert reply == TransactionReply(header=header, succeeded=succeeded)
    assert encode(reply) == encode(whole)
