"""Hold one circuit to one specification: the whole of `make verify`."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from golden import specifications
from golden.specifications import Specification, Values
from scripts.verify import elaborate, pipeline, ports, proof, sandbox, simulators
from scripts.verify.engine import EXHAUSTIVE_BITS, Comparison, Difference, Engine
from scripts.verify.netlist import Netlist
from scripts.verify.simulators import Circuit
from scripts.verify.verdict import Report, Verdict

VECTORS = 4096
MAX_LATENCY = 64
#: A circuit that somebody wants to have checked may be large; what it costs is its owner's time.
LIMITS = sandbox.Limits(seconds=300, memory=6 << 30)


@dataclasses.dataclass(frozen=True)
class Effort:
    """How far to go. `random`: operand sets beyond what can be exhausted; `seconds`: limit of an equivalence proof."""

    seed: int = 1
    random: int = 1 << 24
    seconds: float = 20.0
    jobs: int = 1


class _Stop(Exception):
    """Carries a finished report out of the steps."""

    def __init__(self, verdict: Verdict, how: str) -> None:
        super().__init__(how)
        self.verdict = verdict


def read_sources(paths: list[Path]) -> dict[str, str]:
    """Verilog files by path; raises `OSError`, or `UnicodeDecodeError` for what is no text."""
    return {str(path): path.read_text() for path in paths}


def verify(
    sources: Mapping[str, str],
    specification: str | Specification,
    top: str = "",
    map_text: str = "",
    folder: Path | None = None,
    effort: Effort | None = None,
) -> Report:
    """Check the circuit in `sources` (name to Verilog text); writes a waveform into `folder` if it is wrong.

    Never raises for a bad circuit: what cannot be judged is a report with `Verdict.ERROR`. Raises
    `sandbox.SandboxUnavailable` where nothing may be run.
    """
    start = time.monotonic()
    effort = effort or Effort()
    named = specification if isinstance(specification, Specification) else specifications.find(specification)
    report = Report(named.name, next(iter(sources), ""), top, Verdict.ERROR, "", seed=effort.seed)
    try:
        _Check(dict(sources), named, report, folder, effort).run(map_text)
    except _Stop as stop:
        report.verdict, report.how = stop.verdict, str(stop)
    except (elaborate.ElaborationError, ports.MapError, simulators.SimulatorError) as error:
        report.verdict, report.how = Verdict.ERROR, str(error)
    report.seconds = time.monotonic() - start
    return report


class _Check:
    def __init__(
        self, sources: dict[str, str], specification: Specification, report: Report, folder: Path | None, effort: Effort
    ) -> None:
        self.sources, self.full, self.report, self.folder, self.effort = sources, specification, report, folder, effort

    def run(self, map_text: str) -> None:
        self._read(map_text)
        self._simulate()
        if self.flat is not None:
            self._compare_netlist()
            self._settle()
        else:
            self.report.notes.append(f"no proof and no exhaustive test: {self.why}")
            self._conclude(self.first, Verdict.TESTED, f"{self.first.checked} operand sets, seed {self.effort.seed}")

    def _read(self, map_text: str) -> None:
        """Ports, their map, and the netlist."""
        file = ports.read(map_text) if map_text else ports.MapFile()
        top, found = elaborate.find_ports(self.sources, self.report.top or file.top, file.parameters, LIMITS)
        self.report.top = top
        mapping = ports.match(self.full, found, file)
        self.circuit = Circuit(self.sources, top, found, mapping, file.parameters)
        self.specification = self.full.reduced({*mapping.inputs, *mapping.outputs})
        netlist, self.why, self.cxxrtl = elaborate.lower(self.circuit.files, simulators.WRAPPER, LIMITS)
        self.flat: Netlist | None = None
        self.structural: int | None = None
        if netlist is None:
            return
        if netlist.undefined:
            self.report.notes.append(f"{netlist.undefined} bits are x or undriven in the source")
        bare = pipeline.specification_netlist(netlist, self.circuit)
        if not mapping.clock and bare.registers:
            raise elaborate.ElaborationError("the circuit has registers but no clock was found: [clock] port = ...")
        self.structural = pipeline.stages(bare)
        if self.structural is None:
            self.why = "its paths from operands to result cross different numbers of registers"
        else:
            self.flat = pipeline.collapse(bare)

    def _simulate(self) -> None:
        """The same operands through every simulator; they must agree, and the latency must come out."""
        self.operands = specifications.operands(self.specification.inputs, VECTORS, self.effort.seed)
        raw = self._run(self.operands)
        latency = self._latency(raw["Verilator"])
        self.report.latency = latency if self.circuit.mapping.clock else None
        self.report.simulators = list(raw)
        results = self._agreed(raw, latency)
        judge = Engine(None, self.specification)
        self.first = judge.judge(self.operands, results)
        self.results = results

    def _run(self, operands: Values) -> dict[str, dict[str, np.ndarray]]:
        bits = ports.circuit_inputs(self.specification, self.circuit.mapping, self.circuit.ports, operands)
        if self.circuit.mapping.clock:  # keep the last operands until the pipeline is empty
            bits = {
                name: np.vstack([value, np.repeat(value[-1:], MAX_LATENCY, axis=0)]) for name, value in bits.items()
            }
        raw = {
            "Verilator": simulators.run_verilator(self.circuit, bits),
            "CXXRTL": simulators.run_cxxrtl(self.circuit, bits, self.cxxrtl),
        }
        if simulators.have_icarus():
            try:
                raw["Icarus"] = simulators.run_icarus(self.circuit, bits)
            except simulators.SimulatorError as error:
                self.report.notes.append(f"left out, because it does not take this source: {error}")
        return raw

    def _latency(self, raw: Mapping[str, np.ndarray]) -> int:
        """Given, read off the netlist, or found as the shift at which most results are right."""
        given = self.circuit.mapping.latency
        if not self.circuit.mapping.clock:
            if given:
                raise _Stop(Verdict.ERROR, f"latency {given} is given, but the circuit has no clock")
            return 0
        if self.structural is not None:
            if given is not None and given != self.structural:
                raise _Stop(Verdict.WRONG, f"the latency is {self.structural} cycles, not {given}")
            return self.structural
        if given is not None:
            return given
        want = self.specification.function(self.operands)
        found = ports.specification_outputs(self.specification, self.circuit.mapping, raw)
        scores = []
        for shift in range(MAX_LATENCY + 1):
            right = [found[name][shift : shift + VECTORS] == want[name] for name in found]
            scores.append(float(np.mean(right)))
        return int(np.argmax(scores))

    def _agreed(
        self, raw: Mapping[str, Mapping[str, np.ndarray]], latency: int, operands: Values | None = None
    ) -> Values:
        """Results by specification port, from when the first operands come out; stops where simulators differ."""
        operands = operands or self.operands
        count = len(next(iter(operands.values())))
        mapping, reference = self.circuit.mapping, raw["Verilator"]
        for who, other in raw.items():
            for name, slices in mapping.outputs.items():
                for port, low, width in slices:
                    window = np.s_[latency : latency + count, low : low + width]
                    differ = np.flatnonzero((reference[port][window] != other[port][window]).any(axis=1))
                    if len(differ):
                        row = int(differ[0])
                        texts = {
                            w: "".join("01x"[bit] for bit in r[port][window][row][::-1])
                            for w, r in (("Verilator", reference), (who, other))
                        }
                        shown = {
                            p.name: np.atleast_1d(operands[p.name][row]).tolist() for p in self.specification.inputs
                        }
                        inputs = {key: [hex(v) for v in value] for key, value in shown.items()}
                        raise _Stop(
                            Verdict.DISAGREE,
                            f"{name} on {len(differ)} of {count} operand sets, first {inputs}: "
                            + ", ".join(f"{w} {text}" for w, text in texts.items()),
                        )
        window_of = {port: bits[latency : latency + count] for port, bits in reference.items()}
        return ports.specification_outputs(self.specification, mapping, window_of)

    def _compare_netlist(self) -> None:
        """The netlist that proofs and exhaustive tests work on must do what the simulators saw."""
        assert self.flat is not None
        from scripts.verify.netlist import evaluate

        lanes = VECTORS
        columns = {}
        for port in self.specification.inputs:
            bits = ports.to_bits(self.operands[port.name], port)
            packed = np.packbits(bits.T, axis=1, bitorder="little")
            columns[port.name] = [int.from_bytes(row.tobytes(), "little") for row in packed]
        state = evaluate(self.flat, columns, lanes)
        for port in self.specification.outputs:
            for index, net in enumerate(self.flat.outputs[port.name]):
                seen = (self.results[port.name] >> np.uint64(index) & np.uint64(1)).astype(np.uint8)
                packed = int.from_bytes(np.packbits(seen, bitorder="little").tobytes(), "little")
                if packed != state[net]:
                    raise _Stop(Verdict.DISAGREE, f"{port.name}[{index}]: Yosys's gates and the simulators differ")

    def _settle(self) -> None:
        """Exhaust the operands, or test more and try to prove."""
        specification, effort = self.specification, self.effort
        engine = Engine(self.flat, specification)
        if specification.input_bits <= EXHAUSTIVE_BITS:
            result = engine.exhaustive(effort.jobs)
            self._conclude(result, Verdict.EXHAUSTIVE, f"all {result.checked} operand sets")
            return
        vectors = effort.random if specification.input_bits <= 160 else effort.random >> 4
        result = engine.random(effort.seed, vectors)
        tested = f"{result.checked} operand sets, seed {effort.seed}"
        if result.wrong or not specification.verilog or specification.bound is not None:
            self._conclude(result, Verdict.TESTED, tested)
            return
        assert self.flat is not None
        answer = proof.prove(self.flat, specification, effort.seconds)
        if answer.equal:
            self._conclude(result, Verdict.PROVED, f"{answer.by}; also {tested}")
            return
        if answer.counterexample:
            values = {
                name: np.array(value, np.uint64).reshape((1, -1) if len(value) > 1 else (1,))
                for name, value in answer.counterexample.items()
            }
            self._conclude(engine.judge(values, self._evaluate_one(values)), Verdict.TESTED, answer.by)
            return
        self._conclude(result, Verdict.TESTED, f"{tested}; not proved: {answer.by}")

    def _evaluate_one(self, values: Values) -> Values:
        from scripts.verify.netlist import evaluate

        assert self.flat is not None
        columns = {
            port.name: [int(bit) for bit in ports.to_bits(values[port.name], port)[0]]
            for port in self.specification.inputs
        }
        state = evaluate(self.flat, columns, 1)
        return {
            port.name: np.array([sum(state[net] << i for i, net in enumerate(self.flat.outputs[port.name]))], np.uint64)
            for port in self.specification.outputs
        }

    def _conclude(self, result: Comparison, good: Verdict, how: str) -> None:
        report = self.report
        report.checked, report.how, report.verdict = result.checked, how, good
        report.differences = list(result.differences)
        if self.specification.bound is not None:
            report.worst_ulp, report.mean_ulp = result.worst, result.mean
        if not result.wrong:
            return
        corner = {difference.name for difference in result.differences} <= self.specification.corners
        report.verdict = Verdict.CORNER if corner else Verdict.WRONG
        share = f"{result.wrong} of {result.checked} operand sets are wrong ({how})"
        report.how = f"right but for a corner: {share}" if corner else share
        self._confirm(self._worst(result))

    def _worst(self, result: Comparison) -> Difference:
        faults = [d for d in result.differences if d.name not in self.specification.corners]
        return (faults or list(result.differences))[0]

    def _confirm(self, difference: Difference) -> None:
        """Show the counterexample to the simulators as well, and keep its waveform."""
        operands = {}
        for port in self.specification.inputs:
            value = np.array(difference.inputs[port.name], np.uint64)
            operands[port.name] = np.repeat(value[None, :] if port.elements > 1 else value, 2, axis=0)
        raw = self._run(operands)
        found = self._agreed(raw, self.report.latency or 0, operands)
        if self.flat is not None:
            for name, value in difference.got.items():
                if int(found[name][0]) != value:
                    raise _Stop(
                        Verdict.DISAGREE,
                        f"{name}: the simulators show {int(found[name][0]):#x} for the "
                        f"counterexample, Yosys's gates {value:#x}",
                    )
        if self.folder is None:
            return
        bits = ports.circuit_inputs(self.specification, self.circuit.mapping, self.circuit.ports, operands)
        if self.circuit.mapping.clock:
            bits = {name: np.repeat(value[-1:], (self.report.latency or 0) + 2, axis=0) for name, value in bits.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / "counterexample.vcd"
        path.write_text(simulators.waveform(self.circuit, bits, self.cxxrtl))
        self.report.waveform = str(path)
