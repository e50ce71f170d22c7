module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  wire [65535:0] wide = {4096{a, b}};
  wire [131071:0] huge = wide * wide;
  assign y = huge[131071:131056] ^ (a * b);
endmodule
