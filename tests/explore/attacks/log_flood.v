module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  initial forever $display("babble babble babble babble babble babble babble babble");
  assign y = a * b;
endmodule
