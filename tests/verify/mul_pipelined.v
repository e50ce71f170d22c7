// Three register stages with an enable and a synchronous reset.
module mul_pipe(input clk, input rst_n, input en, input [1:0] mode, input [7:0] op_a, input [7:0] op_b, output reg [15:0] res, output idle);
  reg [7:0] a, b;
  reg [15:0] low, high;
  assign idle = ~en;
  always @(posedge clk)
    if (!rst_n) begin a <= 0; b <= 0; low <= 0; high <= 0; res <= 0; end
    else if (en) begin
      a <= op_a; b <= op_b;
      low <= a * b[3:0]; high <= a * b[7:4];
      res <= mode == 2'd0 ? low + (high << 4) : low;
    end
endmodule
