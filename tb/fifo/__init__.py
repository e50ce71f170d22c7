"""Testbench of `hw.fifo.StreamFifo`."""

from hw.fifo import StreamFifo
from scripts.simulator import Model, Testbench


def _bench(depth: int) -> Testbench:
    model = Model(name=f"fifo_{depth}", component=lambda: StreamFifo(16, depth), key=str(depth))
    return Testbench(name=model.name, model=model, module="tb.fifo.test_fifo", environment={"DEPTH": str(depth)})


TESTBENCHES = [_bench(2), _bench(5)]
