// Sign and magnitude inside, with a magnitude one bit too narrow: wrong for -128 only.
module mul(input signed [7:0] a, input signed [7:0] b, output signed [15:0] p);
  wire [6:0] ma = a[7] ? -a[6:0] : a[6:0];
  wire [6:0] mb = b[7] ? -b[6:0] : b[6:0];
  wire [15:0] magnitude = ma * mb;
  assign p = a[7] ^ b[7] ? -magnitude : magnitude;
endmodule
