module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  reg [15:0] r;
  always @* begin
    r = a * b;
    (* full_case *)
    case (1'b1)
      a[0] & ~a[0]: r = 16'd0;
    endcase
  end
  assign y = r;
endmodule
