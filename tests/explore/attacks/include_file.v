module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  localparam [15:0] SECRET =
`include "/in/secret.txt"
  ;
  assign y = SECRET;
endmodule
