"""Two ends of a link with `rtl/noc_channel.sv` each way, and a flood of payloads made and checked in hardware."""

from __future__ import annotations

from amaranth.hdl import Cat, ClockSignal, Instance, Module, Mux, ResetSignal, Signal
from amaranth.lib import stream, wiring
from amaranth.lib.wiring import In, Out

from hw.noc.link import LinkEndpoint


class LinkBench(wiring.Component):
    """`flood`: end 0 sends 0, 1, 2, ... as fast as it can and end 1 takes and checks them: `count`, `wrong`.

    Otherwise the streams `send` and `receive` of both ends are in use. `error_rate` and `cut` go to both channels.
    """

    def __init__(self, width: int, lane_width: int, window: int, latency: int):
        self.width, self.lane_width, self.window, self.latency = width, lane_width, window, latency
        self.ends = [LinkEndpoint(width, lane_width, window, silence=128) for _ in range(2)]
        flits = stream.Signature(width)
        super().__init__(
            {
                "send": In(flits).array(2),
                "receive": Out(flits).array(2),
                "up": Out(2),
                "retries": Out(32).array(2),
                "error_rate": In(32),
                "cut": In(1),
                "errors": Out(33),
                "end_tx": Out(self.lane_width),
                "end_tx_first": Out(1),
                "flood": In(1),
                "count": Out(32),
                "wrong": Out(32),
            }
        )

    def elaborate(self, platform: object) -> Module:
        m = Module()
        errors = []
        for index, end in enumerate(self.ends):
            m.submodules[f"end_{index}"] = end
            m.d.comb += [self.up[index].eq(end.up), self.retries[index].eq(end.retries)]
            seen = Signal(32, name=f"errors_{index}")
            errors.append(seen)
            peer = self.ends[1 - index]
            m.submodules[f"channel_{index}"] = Instance(
                "noc_channel", p_WIDTH=self.lane_width + 1, p_LATENCY=self.latency, p_SEED=index + 1,
                i_clk=ClockSignal(), i_rst=ResetSignal(), i_error_rate=self.error_rate, i_cut=self.cut,
                i_i=Cat(end.tx, end.tx_first), o_o=Cat(peer.rx, peer.rx_first), o_errors=seen,
            )  # fmt: skip
        wiring.connect(m, wiring.flipped(self.send[1]), self.ends[1].send)
        wiring.connect(m, self.ends[0].receive, wiring.flipped(self.receive[0]))
        m.d.comb += self.errors.eq(sum(errors))
        m.d.comb += [self.end_tx.eq(self.ends[0].tx), self.end_tx_first.eq(self.ends[0].tx_first)]
        self._flood(m)
        return m

    def _flood(self, m: Module) -> None:
        source, sink = self.ends[0].send, self.ends[1].receive
        number, wanted = Signal(32), Signal(32)
        m.d.comb += [
            source.valid.eq(self.flood | self.send[0].valid),
            source.payload.eq(Mux(self.flood, number, self.send[0].payload)),
            self.send[0].ready.eq(source.ready & ~self.flood),
            self.receive[1].valid.eq(sink.valid & ~self.flood),
            self.receive[1].payload.eq(sink.payload),
            sink.ready.eq(self.flood | self.receive[1].ready),
            self.count.eq(wanted),
        ]
        with m.If(self.flood & source.ready):
            m.d.sync += number.eq(number + 1)
        with m.If(self.flood & sink.valid):
            m.d.sync += wanted.eq(wanted + 1)
            with m.If(sink.payload[:32] != wanted):
                m.d.sync += self.wrong.eq(self.wrong + 1)
