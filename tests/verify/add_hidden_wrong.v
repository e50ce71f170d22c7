// Simulators see the adder; synthesis sees something else. Only comparing the two shows it.
module add(input [7:0] a, input [7:0] b, output [7:0] y);
`ifdef VERILATOR
  assign y = a + b;
`else
  assign y = a | b;
`endif
endmodule
