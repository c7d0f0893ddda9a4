"""A server's direct way for usual frames leaves h2 as h2's own way does, and sends the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, cast

import pytest
from h2.exceptions import ProtocolError
from h2.settings import SettingCodes
from hpack import Decoder, Encoder, HPACKError
from hpack.hpack import encode_integer
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from hypothesis import given
from hypothesis import strategies as st

from headway.rpc import WireLimits, framed
from headway.rpc._limits import Flooded
from headway.rpc.http2 import (
    BoundedDecoder,
    CountingH2,
    DirectFrames,
    FrameAccount,
    FrameCutter,
    RepeatingEncoder,
    Request,
    Requests,
    content_frames,
    fits_whole,
    h2_configuration,
    send_end,
    send_reply,
    send_whole,
)
from tests.rpc.hostile_bytes import PREFACE, REQUEST

REPLY = ((":status", "200"), ("content-type", "application/grpc+proto"))
OK = (("grpc-status", "0"),)


class Recorded:
    """A processor that records its calls from the direct way, in the form of h2's events."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []
        self.connection = self
        self.window = self
        self.requests = Requests()
        # Set if calls that arrive whole are answered at once.
        self.h2: CountingH2 | None = None

    def receive_request(self, stream_id: int, request: Request, *, ended: bool) -> None:
        self.said.append(("request", stream_id, request.headers, ended))

    def handler_of(self, request: Request, size: int) -> object:  # noqa: ARG002
        return None if self.h2 is None else self

    def receive_whole(self, stream_id: int, request: Request, handler: object, body: bytes) -> None:
        assert handler is self
        self.said.append(("request", stream_id, request.headers, False))
        self.said.append(("data", stream_id, framed(body), 5 + len(body), True))
        assert self.h2 is not None
        assert fits_whole(self.h2, framed(body))
        send_whole(self.h2, stream_id, REPLY, framed(body), OK)

    def receive_content(self, stream_id: int, data: bytes, size: int, *, ended: bool) -> None:
        self.said.append(("data", stream_id, data, size, ended))

    def receive_window(self, stream_id: int) -> None:
        self.said.append(("window", stream_id))

    def pass_on(self) -> None:
        self.said.append(("window", 0))


class Side:
    """A server's h2, with the direct way or without it."""

    def __init__(self, *, direct: bool) -> None:
        limits = WireLimits()
        self.h2 = CountingH2(h2_configuration(client_side=False), limits, FrameAccount(limits, 0.0, client_side=False))
        # Empty, so that everything that the account earns is seen.
        self.h2.account._others.charge(0.0, 1e9)
        self.told = Recorded()
        self.cutter = FrameCutter(limits.frame_size, preface=False)
        self.direct = DirectFrames(self.h2, cast("Any", self.told), self.cutter, 4 << 20) if direct else None
        self.taken = 0
        self.h2.receive_data(PREFACE + b"\0\0\0\4\0\0\0\0\0")

    def receive(self, frame: bytes) -> object:
        """Handle a frame, and return the error or None."""
        try:
            if self.direct is not None and self.direct.receive(frame, 0.0):
                self.taken += 1
                return None
            self._events(self.h2.receive_data(frame))
        except ProtocolError as error:
            return type(error), str(error)
        return None

    def _events(self, events: list[Any]) -> None:
        for event in events:
            kind, ended = type(event).__name__, getattr(event, "stream_ended", None) is not None
            if kind == "RequestReceived":
                self.told.said.append(("request", event.stream_id, [tuple(each) for each in event.headers], ended))
            elif kind == "DataReceived":
                length = event.flow_controlled_length
                self.told.said.append(("data", event.stream_id, event.data, length, ended))
            elif kind == "WindowUpdated":
                self.told.said.append(("window", event.stream_id))

    def call(self, stream_id: int, headers: bytes, message: bytes) -> object:
        """Handle a request in two frames, and answer it with its own message."""
        h2, data = self.h2, DataFrame(stream_id, framed(message), flags=["END_STREAM"]).serialize()
        if self.direct is not None:
            assert not self.cutter.left
            self.cutter.feed(headers + data)
            wrong = None
            while wrong is None and (frame := self.cutter.next()) is not None:
                wrong = self.receive(frame)
            return wrong
        if (wrong := self.receive(headers)) is not None:
            return wrong
        h2.account.receive(data, 0.0)
        assert self.receive(data) is None
        h2.account.received_data(5 + len(message))
        h2.acknowledge(5 + len(message), stream_id)
        self.reply(stream_id, framed(message))
        self.end(stream_id)
        return None

    def reply(self, stream_id: int, data: bytes) -> None:
        h2 = self.h2
        if self.direct is None or not send_reply(h2, stream_id, REPLY, data):
            h2.send_headers(stream_id, REPLY)
            h2.send_data(stream_id, data)

    def add(self, stream_id: int, content: bytes) -> None:
        h2, most = self.h2, self.h2.max_outbound_frame_size
        frames = None if self.direct is None else content_frames(h2, stream_id, memoryview(content))
        if frames is not None:
            h2._data_to_send += frames
            return
        for begin in range(0, len(content) or 1, most):
            h2.send_data(stream_id, content[begin : begin + most])

    def end(self, stream_id: int) -> None:
        if self.direct is None or not send_end(self.h2, stream_id, OK):
            self.h2.send_headers(stream_id, OK, end_stream=True)

    def state(self) -> Any:
        """Return all that h2 knows. It forgets the streams that have ended later than the direct way."""
        h2 = self.h2
        streams = {id: each for id, each in h2.streams.items() if not each.closed}
        ended = {id: each.closed_by for id, each in h2.streams.items() if each.closed}
        return (
            h2.state_machine.state,
            h2.highest_inbound_stream_id,
            h2.outbound_flow_control_window,
            vars(h2._inbound_flow_control_window_manager),
            h2.account._others.left(0.0),
            dict(h2._closed_streams) | ended,
            list(h2.encoder.header_table.dynamic_entries),
            list(h2.decoder.header_table.dynamic_entries),
            {
                id: (
                    {name: value for name, value in vars(each.state_machine).items() if name != "trailers_received"},
                    each.outbound_flow_control_window,
                    vars(each._inbound_window_manager),
                )
                for id, each in streams.items()
            },
        )


def _frames(chance: random.Random) -> Iterator[bytes | Callable[[Side], None]]:
    """Yield what a client sends and a server answers: mostly usual calls, and some that are not."""
    encoder, opened, ended = Encoder(), [0], set[int]()
    for step in range(120):
        known = chance.choice(opened[-6:]) or 1
        match chance.choices(range(13), (90, 60, 60, 20, 30, 20, 10, 10, 5, 10, 5, 3, 5))[0]:
            case 0:
                opened.append(opened[-1] + 2 if opened[-1] else 1)
                given = [*REQUEST, ("grpc-timeout", f"{step}m")] if chance.random() < 0.5 else REQUEST
                flags = ["END_HEADERS"] + ["END_STREAM"] * (chance.random() < 0.1)
                yield HeadersFrame(opened[-1], encoder.encode(given), flags=flags).serialize()
                if len(flags) > 1:
                    ended.add(opened[-1])
            case 1:
                flags = ["END_STREAM"] * (chance.random() < 0.7)
                yield DataFrame(known, framed(b"x" * chance.randrange(50)), flags=flags).serialize()
                if flags:
                    ended.add(known)
            case 2 if known in ended:
                more = [chance.choice((0, 9, 16_384, 16_385, 40_000)) for _ in range(chance.randrange(3))]
                yield partial(_answer, stream_id=known, size=chance.randrange(100), more=more)
            case 3:
                yield PingFrame(0, step.to_bytes(8, "big")).serialize()
            case 4:
                yield WindowUpdateFrame(chance.choice((0, known)), chance.randrange(1, 1000)).serialize()
            case 5:
                yield RstStreamFrame(known, 8).serialize()
            case 6:
                yield PriorityFrame(known, depends_on=0, stream_weight=3).serialize()
            case 7:
                yield DataFrame(known, b"y", pad_length=3, flags=["PADDED"]).serialize()
            case 8:
                yield WindowUpdateFrame(known, (1 << 31) - 1).serialize()
            case 9:
                opened.append(opened[-1] + 2 if opened[-1] else 1)
                block = encoder.encode(REQUEST)
                yield HeadersFrame(opened[-1], block[:3]).serialize()
                if chance.random() < 0.9:
                    yield ContinuationFrame(opened[-1], block[3:], flags=["END_HEADERS"]).serialize()
            case 10:
                opened.append(opened[-1] + 2 if opened[-1] else 1)
                yield HeadersFrame(opened[-1], encoder.encode(REQUEST), flags=["END_HEADERS", "PRIORITY"]).serialize()
            case 12:
                code = chance.choice((SettingCodes.INITIAL_WINDOW_SIZE, SettingCodes.HEADER_TABLE_SIZE))
                yield SettingsFrame(0, settings={code: chance.randrange(60, 70_000)}).serialize()
            case 11:
                yield HeadersFrame(known, encoder.encode([("x", "y")]), flags=["END_HEADERS", "END_STREAM"]).serialize()


def _answer(side: Side, stream_id: int, size: int, more: Sequence[int] = ()) -> None:
    stream = side.h2.streams.get(stream_id)
    if stream is None or not stream.open or stream.state_machine.headers_sent:
        return
    # The callers check the windows.
    if size <= side.h2.local_flow_control_window(stream_id):
        side.reply(stream_id, b"z" * size)
        for each in more:
            if each <= side.h2.local_flow_control_window(stream_id):
                side.add(stream_id, bytes(range(251)) * (each // 251) + b"end"[: each % 251])
        side.end(stream_id)


@pytest.mark.parametrize("seed", range(20))
def test_direct_way_and_h2s_way_lead_to_the_same_state(seed: int) -> None:
    """Both get the same random frames. Their states, events and output are equal."""
    ours, theirs = Side(direct=True), Side(direct=False)
    for step in _frames(random.Random(seed)):
        if isinstance(step, bytes):
            error = ours.receive(step)
            assert error == theirs.receive(step)
            if error is not None:
                break
        else:
            step(ours)
            step(theirs)
        assert ours.state() == theirs.state()
    assert _sorted(ours.told.said) == _sorted(theirs.told.said)
    assert ours.h2.data_to_send() == theirs.h2.data_to_send()


@pytest.mark.parametrize("seed", range(10))
def test_whole_call_leaves_h2_as_its_own_way_does(seed: int) -> None:
    """Frames on the ended streams, other requests and other sizes of the tables come between the calls."""
    chance, encoder = random.Random(seed), Encoder()
    ours, theirs = Side(direct=True), Side(direct=False)
    ours.told.h2 = ours.h2
    for side in (ours, theirs):
        side.h2.account._others.renew()
        side.h2.account._others.charge(0.0, side.h2.account._others.burst - 200)
    for id in range(1, 201, 2):
        timeout = [("grpc-timeout", f"{chance.choice((5, id))}m")] if chance.random() < 0.5 else []
        headers = HeadersFrame(id, encoder.encode([*REQUEST, *timeout]), flags=["END_HEADERS"]).serialize()
        message = b"x" * chance.choice((0, 9, 90, 900, 1019, 1020, 5000))
        said = len(ours.told.said)
        if len(message) < 1020 and id > 1:
            assert ours.call(id, headers, message) == theirs.call(id, headers, message)
            assert len(ours.told.said) > said
        else:
            data = DataFrame(id, framed(message), flags=["END_STREAM"]).serialize()
            for frame in (headers, data):
                assert ours.receive(frame) == theirs.receive(frame)
            for side in (ours, theirs):
                _answer(side, id, 9)
        assert ours.state() == theirs.state()
        late: list[Any] = [PingFrame(0, bytes(8)), WindowUpdateFrame(0, 100), WindowUpdateFrame(id, 100)]
        late += [RstStreamFrame(id, 8), SettingsFrame(0, settings={SettingCodes.HEADER_TABLE_SIZE: 100 * (id % 40)})]
        frame = chance.choice(late).serialize()
        assert ours.receive(frame) == theirs.receive(frame)
        assert ours.state() == theirs.state()
    assert _sorted(ours.told.said) == _sorted(theirs.told.said)
    assert ours.h2.data_to_send() == theirs.h2.data_to_send()
    # An ended stream accepts nothing more.
    frame = DataFrame(199, b"x").serialize()
    assert ours.receive(frame) == theirs.receive(frame)
    assert ours.h2.data_to_send() == theirs.h2.data_to_send()


def test_whole_call_is_charged_for_both_frames() -> None:
    """A flood of them is one of frames, whatever their answers earn."""
    side, encoder = Side(direct=True), Encoder()
    side.told.h2 = side.h2
    side.receive(HeadersFrame(1, encoder.encode(REQUEST), flags=["END_HEADERS"]).serialize())
    with pytest.raises(Flooded):
        side.call(3, HeadersFrame(3, encoder.encode(REQUEST), flags=["END_HEADERS"]).serialize(), b"")
    assert not side.told.said[1:]


_VALUES = st.sampled_from([b"5S", b"6S", b"x" * 300])
_FIELDS = st.tuples(st.sampled_from([b"x-a", b"grpc-timeout"]), _VALUES, st.sampled_from([False, False, True]))
_SIZES = st.sampled_from([None, None, None, 0, 64, 400, 4096])


@given(st.lists(st.tuples(st.lists(_FIELDS, max_size=2), _SIZES, st.integers(1, 3)), max_size=20))
def test_kept_block_is_read_as_hpack_reads_it(
    blocks: list[tuple[list[tuple[bytes, bytes, bool]], int | None, int]],
) -> None:
    """The same bytes mean other headers once the table has changed."""
    encoder, side, hpack = Encoder(), Side(direct=True), Decoder()
    encoded = [encoder.encode(REQUEST)]
    for fields, size, times in blocks:
        if size is not None:
            encoder.header_table_size = size
        encoded += [encoder.encode(fields) for _ in range(times)]
    for number, block in enumerate(encoded):
        flags = ["END_HEADERS", "END_STREAM"]
        assert side.receive(HeadersFrame(2 * number + 1, block, flags=flags).serialize()) is None
        expected = [tuple(each) for each in hpack.decode(block)]
        assert sorted(side.told.said[-1][2]) == sorted(expected)
        assert side.h2.decoder.header_table.dynamic_entries == hpack.header_table.dynamic_entries


def test_block_is_read_again_after_the_table_has_changed() -> None:
    side, encoder = Side(direct=True), Encoder()
    found = []
    for number, field in enumerate([("x", "a"), ("x", "a"), ("x", "a"), ("x", "b"), ("x", "b")]):
        block = encoder.encode([field])
        side.receive(HeadersFrame(2 * number + 1, block, flags=["END_HEADERS", "END_STREAM"]).serialize())
        found.append((block, side.told.said[-1][2]))
    assert found[2] == found[1] == (b"\xbe", [("x", "a")])
    assert found[4] == (b"\xbe", [("x", "b")])


def test_few_short_blocks_are_kept() -> None:
    """A client cannot make the server hold more. The bytes count: one of these letters takes two."""
    requests = Requests()
    assert not requests.read([(b"x", b"\xc3\xa3" * 300)]).head.is_short
    for number in range(100):
        block = bytes(number * 7)
        requests.keep(block, requests.read([(b"x", b"y" * (number * 5 % 600))]))
        assert len(requests._blocks) <= 8
    assert len(requests._blocks) > 1
    assert all(len(block) <= 512 and each.head.is_short for block, each in requests._blocks.items())


def _sorted(said: list[Any]) -> list[Any]:
    """Return it with the headers of each request in order: the direct way puts the timeout last."""
    return [(*each[:2], sorted(each[2]), *each[3:]) if each[0] == "request" else each for each in said]


def test_usual_call_goes_the_direct_way() -> None:
    """From the second call of a connection on, h2 sees none of its frames."""
    side, encoder = Side(direct=True), Encoder()
    for id in range(1, 11, 2):
        side.receive(HeadersFrame(id, encoder.encode(REQUEST), flags=["END_HEADERS"]).serialize())
        side.receive(DataFrame(id, framed(b"x"), flags=["END_STREAM"]).serialize())
        side.receive(PingFrame(0, b"12345678").serialize())
        side.receive(WindowUpdateFrame(0, 10).serialize())
        _answer(side, id, 10)
    assert side.taken == 4 * 5 - 1
    assert not side.h2.streams


def test_content_before_a_reply_or_after_its_end_is_left_to_h2() -> None:
    """The errors are h2's."""
    side, encoder = Side(direct=True), Encoder()
    assert content_frames(side.h2, 1, memoryview(b"x")) is None
    for id in (1, 3):
        side.receive(HeadersFrame(id, encoder.encode(REQUEST), flags=["END_HEADERS", "END_STREAM"]).serialize())
        assert content_frames(side.h2, id, memoryview(b"x")) is None
        side.reply(id, b"")
        assert content_frames(side.h2, id, memoryview(b"")) is None
        frames = content_frames(side.h2, id, memoryview(b"x"))
        assert frames == b"\0\0\1\0\0\0\0\0" + bytes([id]) + b"x"
        side.end(id)
        assert content_frames(side.h2, id, memoryview(b"x")) is None
    for id in (5, 7):
        side.receive(HeadersFrame(id, encoder.encode(REQUEST), flags=["END_HEADERS", "END_STREAM"]).serialize())
        side.reply(id, b"")
    side.receive(RstStreamFrame(5, 8).serialize())
    assert content_frames(side.h2, 5, memoryview(b"x")) is None
    side.h2.close_connection()
    assert content_frames(side.h2, 7, memoryview(b"x")) is None


def test_window_that_is_too_small_is_left_to_h2() -> None:
    """The error, and the GOAWAY, are h2's."""
    side, encoder = Side(direct=True), Encoder()
    side.receive(HeadersFrame(1, encoder.encode(REQUEST), flags=["END_HEADERS"]).serialize())
    window = WireLimits().stream_window
    for _ in range(window >> 14):
        assert side.receive(DataFrame(1, b"x" * (1 << 14)).serialize()) is None
    error = side.receive(DataFrame(1, b"x").serialize())
    assert error is not None
    assert "Flow control" in str(error)


def _blocks(chance: random.Random) -> Iterator[bytes]:
    """Yield valid header blocks of one encoder, and sometimes a damaged one at the end."""
    encoder = Encoder()
    for step in range(30):
        if chance.random() < 0.1:
            encoder.header_table_size = chance.choice((0, 60, 200, 4096))
        given: list[Any] = [each for each in REQUEST if chance.random() < 0.9]
        given += [(f"x-{chance.randrange(4)}", str(step)), ("authorization", "secret", True)][: chance.randrange(3)]
        yield encoder.encode(given, huffman=chance.random() < 0.5)
    block = bytearray(encoder.encode(REQUEST))
    block[chance.randrange(len(block))] = chance.randrange(256)
    yield bytes(block)


@pytest.mark.parametrize("seed", range(30))
def test_fast_decoder_reads_what_hpack_reads(seed: int) -> None:
    """The result, the table and the kind of an error are the same for every block."""
    ours, theirs = BoundedDecoder(16 << 10), BoundedDecoder(16 << 10)
    for block in _blocks(random.Random(seed)):
        try:
            expected: Any = [tuple(each) for each in theirs.decode(block, raw=True)]
        except (HPACKError, IndexError) as error:
            with pytest.raises(type(error)):
                ours.read(block)
            return
        assert [tuple(each) for each in ours.read(block)] == expected
        assert ours.header_table.dynamic_entries == theirs.header_table.dynamic_entries


def _read(read: Callable[[bytes], Any], block: bytes) -> Any:
    """Return the headers of a block, or None if hpack or h2 would refuse it."""
    try:
        return [tuple(each) for each in read(block)]
    except (HPACKError, IndexError):
        return None


@pytest.mark.parametrize("begin", [0x00, 0x01, 0x0F, 0x10, 0x1F, 0x40, 0x41, 0x7C, 0x7D, 0x7E, 0x7F])
@pytest.mark.parametrize("flag", [0, 0x80])
def test_fast_decoder_reads_values_of_any_length(begin: int, flag: int) -> None:
    """Lengths of one byte and of more, whole and cut off, as they are or compressed, with names of any index."""
    for size in (0, 1, 2, *range(120, 134)):
        first, *more = encode_integer(size, 7)
        whole = bytes([begin, first | flag, *more]) + b"0" * size
        for block in (whole, whole[:-1], whole + b"\x01a", whole + b"\x82", b"\x82" + whole, whole + b"\xbe"):
            ours, theirs = BoundedDecoder(16 << 10), BoundedDecoder(16 << 10)
            for each in (ours, theirs):
                each.header_table.add(b"x-a", b"b")
                each.header_table.add(b"x-c", b"d")
            read = _read(ours.read, block)
            assert read == _read(partial(theirs.decode, raw=True), block)
            if read is not None:
                assert ours.header_table.dynamic_entries == theirs.header_table.dynamic_entries


def test_fast_decoder_bounds_the_size_and_the_resizes() -> None:
    many = Encoder().encode([("x-a", "b")]) + b"\xbe" * 500
    with pytest.raises(HPACKError):
        BoundedDecoder(16 << 10).read(many)
    with pytest.raises(HPACKError):
        BoundedDecoder(16 << 10).read(b"\x20\x20\x20\x82")
    with pytest.raises(HPACKError):
        BoundedDecoder(16 << 10).read(b"\x82\x20")


@pytest.mark.parametrize("seed", range(20))
def test_repeated_blocks_are_what_a_decoder_expects(seed: int) -> None:
    """Other headers and other sizes of the table come between the repetitions."""
    chance, encoder, decoder = random.Random(seed), RepeatingEncoder(), BoundedDecoder(16 << 10)
    for step in range(60):
        match chance.randrange(6):
            case 0:
                # hpack forgets to announce a size that is set twice.
                encoder.header_table_size = chance.choice(tuple({0, 60, 100, 4096} - {encoder.header_table_size}))
                headers = chance.choice((REPLY, OK, ((":status", "200"),)))
                assert decoder.decode(encoder.repeat(headers)) == list(headers)
            case 1:
                given = [("grpc-message", f"error {step}")]
                assert decoder.decode(encoder.encode(given)) == given
            case 2:
                assert decoder.decode(encoder.encode([(":status", "200")])) == [(":status", "200")]
            case _:
                headers = chance.choice((REPLY, OK))
                assert decoder.decode(encoder.repeat(headers)) == list(headers)


def test_block_after_a_resize_is_not_repeated() -> None:
    """It begins with the new size, which is announced once."""
    encoder = RepeatingEncoder()
    encoder.header_table_size = 4000
    blocks = [encoder.repeat(((":status", "200"),)) for _ in range(3)]
    assert blocks[1:] == [b"\x88", b"\x88"]
    assert blocks[0].endswith(b"\x88")
    assert len(blocks[0]) > 1


def test_requests_keep_few_heads_and_read_each_timeout() -> None:
    requests = Requests()
    base = [(name.encode(), value.encode()) for name, value in REQUEST]
    first = requests.read([*base, (b"grpc-timeout", b"5S")])
    second = requests.read([*base, (b"grpc-timeout", b"7m")])
    assert first.head is second.head
    deadlines = [each.deadline() for each in (first, second)]
    assert [each is not None for each in deadlines] == [True, True]
    assert deadlines[0] is not None
    assert 4 < deadlines[0].time_remaining() <= 5
    assert ("grpc-timeout", "5S") in first.headers
    for number in range(100):
        requests.read([*base, (b"x", str(number).encode())])
    assert len(requests._heads) <= 8
    long = requests.read([*base, (b"x", b"y" * 600)])
    assert requests.read([*base, (b"x", b"y" * 600)]).head is not long.head


@pytest.mark.parametrize("value", [b"5S\n", b"5", b"123456789S", b"5S\0"])
def test_unusual_timeout_is_checked_like_every_header(value: bytes) -> None:
    base = [(name.encode(), text.encode()) for name, text in REQUEST]
    request = Requests().read([*base, (b"grpc-timeout", value)])
    assert request.timeout is None
    assert ("grpc-timeout", value.decode()) in request.headers
