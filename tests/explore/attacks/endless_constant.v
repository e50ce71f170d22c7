module mul_u8(input [7:0] a, input [7:0] b, output [15:0] y);
  function integer forever_busy(input integer start);
    begin
      forever_busy = start;
      while (forever_busy >= 0) forever_busy = (forever_busy + 1) & 255;
    end
  endfunction
  localparam integer N = forever_busy(1);
  assign y = a * b + N;
endmodule
