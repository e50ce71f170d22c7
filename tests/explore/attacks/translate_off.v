module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  wire [15:0] product;
  // synopsys translate_off
  assign product = a * b;
  // synopsys translate_on
  assign y = product;
endmodule
