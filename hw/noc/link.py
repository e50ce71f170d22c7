"""Chip-to-chip link: frames with CRC-32 and sequence numbers, go-back-N retry, credits, training."""

from __future__ import annotations

from amaranth.hdl import Cat, Module, Mux, Shape, ShapeLike, Signal, Value
from amaranth.lib import data, memory, stream, wiring
from amaranth.lib.crc.catalog import CRC32_ISO_HDLC
from amaranth.lib.wiring import In, Out

__all__ = ["LinkEndpoint", "frame_beats", "frame_layout"]

LANE_WIDTHS = (8, 16, 32, 64, 128, 256)


def frame_layout(width: int, window: int) -> data.StructLayout:
    """A frame, without its CRC.

    `full`: carries `payload`; `number`: of this payload, or (not full) of the next one to be sent; `epoch`: the peer's
    `phase` that the sender has answered. For the other direction: `up`: this side receives well; `phase`: changes when
    a payload is missing; `expected`: number of the next payload wanted (all before have arrived); `taken`: payloads
    that the user has taken, modulo 2*window.
    """
    number = range(2 * window)
    fields = {"full": 1, "number": number, "epoch": 1, "up": 1, "phase": 1, "expected": number, "taken": number}
    return data.StructLayout({**fields, "payload": width})


def frame_beats(width: int, window: int, lane_width: int) -> int:
    """Cycles that a frame takes on the lanes, its CRC included."""
    content = Shape.cast(frame_layout(width, window)).width
    return -(-content // lane_width) + max(1, 32 // lane_width)


class LinkEndpoint(wiring.Component):
    """One end of a link. Payloads come out at the other end once each and in order, whatever the lanes do to frames.

    Frames follow each other without a gap; one without payload says what the peer needs to know. A frame counts only
    if its CRC-32 (ISO-HDLC, as Ethernet) is right. The receiver takes payloads in order; when one is missing it
    changes `phase`; the sender, on seeing that, answers with `epoch` and goes back to the first payload that has not
    arrived. Frames of the old epoch are ignored, so one loss costs one round trip. No timer is needed: the frames
    without payload show a loss too. `window` payloads may be under way or waiting to be taken at the other end (the
    credit), and are kept for a retry.

    After reset, and after `silence` cycles without a good frame, the link is down: payloads wait, and frames without
    payload train the peer. It is up when `training` good frames in a row came and the peer says that it is up. Nothing
    is lost by going down and up.

    Parameters
    ----------
    shape : ShapeLike
        Payload of the streams (a flit, with its class).
    lane_width : int
        Bits a cycle on the lanes: 8, 16, 32, 64, 128 or 256. One more wire marks the first beat of a frame.
    window : int
        Power of two from 2 to 256; to fill the link, at least the round trip in frames.
    training, silence : int
        See above.

    Interface attributes
    --------------------
    send : In(stream(shape)), receive : Out(stream(shape))
    tx, tx_first : Out; rx, rx_first : In
        Lanes, and the mark of a frame's first beat.
    up : Out(1)
    retries, bad_frames : Out(32)
        Times that it went back; frames whose CRC was wrong. They saturate.
    """

    def __init__(self, shape: ShapeLike, lane_width: int = 64, window: int = 32, training: int = 4, silence: int = 256):
        if lane_width not in LANE_WIDTHS:
            raise ValueError(f"lane_width must be one of {LANE_WIDTHS}, not {lane_width!r}")
        if window not in (2, 4, 8, 16, 32, 64, 128, 256):
            raise ValueError(f"window must be a power of two from 2 to 256, not {window!r}")
        if training not in range(1, 256) or silence not in range(1, 65536):
            raise ValueError(f"training and silence must be from 1 to 255 and 65535, not {training!r} and {silence!r}")
        self.width, self.lane_width, self.window = Shape.cast(shape).width, lane_width, window
        self.training, self.silence = training, silence
        self.layout = frame_layout(self.width, window)
        self.beats = frame_beats(self.width, window, lane_width)
        self.crc_beats = max(1, 32 // lane_width)
        super().__init__(
            {
                "send": In(stream.Signature(shape)),
                "receive": Out(stream.Signature(shape)),
                "tx": Out(lane_width),
                "tx_first": Out(1),
                "rx": In(lane_width),
                "rx_first": In(1),
                "up": Out(1),
                "retries": Out(32),
                "bad_frames": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        frame, good, bad = self._collect(m)
        heard = Signal(range(self.training + 1))
        quiet = Signal(range(self.silence + 1))
        healthy, peer_up = Signal(), Signal()
        m.d.comb += [healthy.eq((heard == self.training) & (quiet != self.silence)), self.up.eq(healthy & peer_up)]
        with m.If(good):
            m.d.sync += [quiet.eq(0), peer_up.eq(frame.up), heard.eq(Mux(heard == self.training, heard, heard + 1))]
        with m.Elif(quiet != self.silence):
            m.d.sync += quiet.eq(quiet + 1)
        with m.Else():
            m.d.sync += [heard.eq(0), peer_up.eq(0)]
        with m.If(bad & (heard != self.training)):
            m.d.sync += heard.eq(0)
        with m.If(bad & ~self.bad_frames.all()):
            m.d.sync += self.bad_frames.eq(self.bad_frames + 1)
        phase, expected, taken = self._receiver(m, frame, good, bad)
        out = Signal(self.layout)
        m.d.comb += [out.up.eq(healthy), out.phase.eq(phase), out.expected.eq(expected), out.taken.eq(taken)]
        start = Signal()
        self._sender(m, frame, good, out, start)
        self._serialise(m, out, start)
        return m

    def _collect(self, m: Module) -> tuple[data.View, Signal, Signal]:
        """Frame from the lanes; in the cycle after its last beat either `good` or `bad` is high."""
        content_beats = self.beats - self.crc_beats
        m.submodules.check = check = CRC32_ISO_HDLC(data_width=self.lane_width).create()
        words = Signal(self.lane_width * self.beats)
        beat = Signal(range(self.beats + 1), init=self.beats)  # next beat; `beats`: waiting for a first one
        now = Signal.like(beat)
        crc, ends = Signal(32), Signal()
        m.d.comb += now.eq(Mux(self.rx_first, 0, beat))
        m.d.comb += [check.start.eq(self.rx_first), check.data.eq(self.rx), check.valid.eq(now < content_beats)]
        m.d.sync += ends.eq(now == self.beats - 1)
        with m.If(now != self.beats):
            m.d.sync += [words.eq(Cat(words[self.lane_width :], self.rx)), beat.eq(now + 1)]
        with m.If(now == content_beats):
            m.d.sync += crc.eq(check.crc)
        frame, good, bad = Signal(self.layout), Signal(), Signal()
        received = words[self.lane_width * content_beats :][:32]
        m.d.comb += [
            Value.cast(frame).eq(words[: Shape.cast(self.layout).width]),
            good.eq(ends & (received == crc)),
            bad.eq(ends & (received != crc)),
        ]
        return frame, good, bad

    def _receiver(self, m: Module, frame: data.View, good: Signal, bad: Signal) -> tuple[Signal, Signal, Signal]:
        """Take payloads in order into the buffer. Returns phase, number expected, number taken by the user."""
        m.submodules.buffer = buffer = memory.Memory(shape=self.width, depth=self.window, init=[])
        write, read = buffer.write_port(), buffer.read_port(domain="comb")
        expected, taken = Signal(range(2 * self.window)), Signal(range(2 * self.window))
        phase, answered = Signal(), Signal(init=1)
        current = good & (frame.epoch == phase)
        missing, accept = Signal(), Signal()
        m.d.comb += [
            accept.eq(current & frame.full & (frame.number == expected)),
            # A gap in the current epoch, or a bad frame that can only be of the current epoch.
            missing.eq((current & (frame.number != expected)) | (bad & answered)),
            write.en.eq(accept),
            write.addr.eq(expected[:-1]),
            write.data.eq(frame.payload),
            read.addr.eq(taken[:-1]),
            self.receive.valid.eq(taken != expected),
            Value.cast(self.receive.payload).eq(read.data),
        ]
        with m.If(accept):
            m.d.sync += expected.eq(expected + 1)
        with m.If(missing):
            m.d.sync += [phase.eq(~phase), answered.eq(0)]
        with m.Elif(current):
            m.d.sync += answered.eq(1)
        with m.If(self.receive.valid & self.receive.ready):
            m.d.sync += taken.eq(taken + 1)
        return phase, expected, taken

    def _sender(self, m: Module, frame: data.View, good: Signal, out: data.View, start: Signal) -> None:
        """Keep payloads until they have arrived; fill in the frame that starts when `start` is high."""
        m.submodules.replay = replay = memory.Memory(shape=self.width, depth=self.window, init=[])
        write, read = replay.write_port(), replay.read_port(domain="comb")
        filled, following = Signal(range(2 * self.window)), Signal(range(2 * self.window))
        freed, epoch = Signal(range(2 * self.window)), Signal()
        held = Signal(range(2 * self.window))
        m.d.comb += [
            held.eq(filled - freed),
            self.send.ready.eq(held != self.window),
            write.en.eq(self.send.valid & self.send.ready),
            write.addr.eq(filled[:-1]),
            write.data.eq(self.send.payload),
            read.addr.eq(following[:-1]),
            out.full.eq(self.up & (following != filled)),
            out.number.eq(following),
            out.epoch.eq(epoch),
            out.payload.eq(read.data),
        ]
        with m.If(write.en):
            m.d.sync += filled.eq(filled + 1)
        with m.If(start & out.full):
            m.d.sync += following.eq(following + 1)
        with m.If(good):
            m.d.sync += freed.eq(frame.taken)
            with m.If(frame.phase != epoch):
                m.d.sync += [epoch.eq(frame.phase), following.eq(frame.expected)]
                with m.If(~self.retries.all()):
                    m.d.sync += self.retries.eq(self.retries + 1)

    def _serialise(self, m: Module, out: data.View, start: Signal) -> None:
        """Send frames one after the other: their content, then the CRC."""
        content_beats = self.beats - self.crc_beats
        m.submodules.make = make = CRC32_ISO_HDLC(data_width=self.lane_width).create()
        words = Signal(self.lane_width * content_beats)
        beat = Signal(range(self.beats))
        later = Signal(32)
        content: Value = Mux(start, Value.cast(out), words)
        word = Signal(self.lane_width)
        m.d.comb += [
            start.eq(beat == 0),
            word.eq(content[: self.lane_width]),
            make.start.eq(start),
            make.data.eq(word),
            make.valid.eq(beat < content_beats),
        ]
        m.d.sync += [
            words.eq(content >> self.lane_width),
            beat.eq(Mux(beat == self.beats - 1, 0, beat + 1)),
            self.tx_first.eq(start),
        ]
        with m.If(beat < content_beats):
            m.d.sync += self.tx.eq(word)
        with m.Else():
            crc = Mux(beat == content_beats, make.crc, later)
            m.d.sync += [self.tx.eq(crc[: self.lane_width]), later.eq(crc >> self.lane_width)]
