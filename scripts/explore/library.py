"""The built-in cell library: areas in gate equivalents, delays by logical effort. It needs no download and no licence.

A gate equivalent (GE) is the area of a two-input NAND. Areas have the ratios that open 45 nm libraries share; delay is
tau * (parasitic + effort * load / input capacitance), tau = 5 ps, one unit of capacitance (an inverter's input) 1 fF,
1 V: a model to compare circuits with, not a process.
"""

TAU_PS = 5.0
CAPACITANCE_FF = 1.0
VOLTAGE = 1.0

#: A flip-flop: area in GE (the ratio of open 45 nm libraries), capacitance that its clock switches each cycle, and
#: that inside it with each change of its value (in inverters, assumed), setup and clock to output together in ps.
FLIP_FLOP_AREA = 5.67
FLIP_FLOP_CLOCK = 3.0
FLIP_FLOP_DATA = 6.0
FLIP_FLOP_PS = 75.0

#: name: (area in GE, function, input capacitance in inverters, parasitic delay, drive).
_SINGLE = {
    "INV": (0.67, "!A", 1.0, 1.0),
    "BUF": (1.0, "A", 1.0, 2.0),
    "NAND2": (1.0, "!(A*B)", 4 / 3, 2.0),
    "NAND3": (1.33, "!(A*B*C)", 5 / 3, 3.0),
    "NAND4": (1.67, "!(A*B*C*D)", 2.0, 4.0),
    "NOR2": (1.0, "!(A+B)", 5 / 3, 2.0),
    "NOR3": (1.33, "!(A+B+C)", 7 / 3, 3.0),
    "AND2": (1.33, "A*B", 1.0, 3.0),
    "OR2": (1.33, "A+B", 1.2, 3.3),
    "AOI21": (1.33, "!((A*B)+C)", 1.8, 2.7),
    "OAI21": (1.33, "!((A+B)*C)", 1.7, 2.7),
    "AOI22": (1.67, "!((A*B)+(C*D))", 2.0, 4.0),
    "OAI22": (1.67, "!((A+B)*(C+D))", 2.0, 4.0),
    "XOR2": (2.0, "(A*!B)+(!A*B)", 2.0, 4.0),
    "XNOR2": (2.0, "(A*B)+(!A*!B)", 2.0, 4.0),
    "MUX2": (2.33, "(A*!C)+(B*C)", 1.6, 4.0),
}
#: Drive strengths: name suffix, drive, area factor.
_DRIVES = (("X1", 1.0, 1.0), ("X2", 2.0, 1.35), ("X4", 4.0, 2.1))


def cells() -> dict[str, tuple[float, str, float, float, float]]:
    """name: (area GE, function, input capacitance in units, parasitic delay in tau, drive)."""
    return {
        f"{name}_{suffix}": (round(area * factor, 3), function, round(cap * drive, 3), parasitic, drive)
        for name, (area, function, cap, parasitic) in _SINGLE.items()
        for suffix, drive, factor in _DRIVES
    }


def liberty() -> str:
    """The library as Liberty text: two-dimensional tables, linear in load, slightly in slew."""
    slews, loads = (1.0, 20.0, 80.0), (0.0, 4.0, 16.0, 64.0, 256.0)
    lines = [
        "library (serrano) {",
        '  technology (cmos); delay_model : table_lookup; time_unit : "1ps";',
        '  capacitive_load_unit (1, ff); voltage_unit : "1V"; default_max_transition : 500;',
        "  slew_lower_threshold_pct_rise : 20; slew_upper_threshold_pct_rise : 80;",
        "  slew_lower_threshold_pct_fall : 20; slew_upper_threshold_pct_fall : 80;",
        "  input_threshold_pct_rise : 50; input_threshold_pct_fall : 50;",
        "  output_threshold_pct_rise : 50; output_threshold_pct_fall : 50;",
        "  lu_table_template (t) { variable_1 : input_net_transition; variable_2 : total_output_net_capacitance;",
        f'    index_1 ("{", ".join(map(str, slews))}"); index_2 ("{", ".join(map(str, loads))}"); }}',
    ]
    for name, (area, function, capacitance, parasitic, drive) in cells().items():
        pins = sorted(set(function) & set("ABCD"))
        delay = [[TAU_PS * (parasitic + load / drive) + 0.1 * slew for load in loads] for slew in slews]
        slope = [[TAU_PS * (1.0 + 1.2 * load / drive) for load in loads] for _ in slews]
        table, transition = (
            ", ".join('"' + ", ".join(f"{value:.3f}" for value in row) + '"' for row in rows) for rows in (delay, slope)
        )
        lines.append(f"  cell ({name}) {{ area : {area};")
        lines += [
            f"    pin ({pin}) {{ direction : input; capacitance : {capacitance * CAPACITANCE_FF:.3f}; }}"
            for pin in pins
        ]
        lines.append(f'    pin (Y) {{ direction : output; function : "{function}"; max_capacitance : {64 * drive:.1f};')
        sense = (
            "non_unate"
            if name.startswith(("X", "MUX"))
            else ("positive_unate" if name.startswith(("BUF", "AND", "OR")) else "negative_unate")
        )
        for pin in pins:
            lines.append(f'      timing () {{ related_pin : "{pin}"; timing_sense : {sense};')
            for kind, values in (
                ("cell_rise", table),
                ("cell_fall", table),
                ("rise_transition", transition),
                ("fall_transition", transition),
            ):
                lines.append(f"        {kind} (t) {{ values ({values}); }}")
            lines.append("      }")
        lines.append("    }\n  }")
    return "\n".join([*lines, "}", ""])


__all__ = [
    "CAPACITANCE_FF",
    "FLIP_FLOP_AREA",
    "FLIP_FLOP_CLOCK",
    "FLIP_FLOP_DATA",
    "FLIP_FLOP_PS",
    "TAU_PS",
    "VOLTAGE",
    "cells",
    "liberty",
]
