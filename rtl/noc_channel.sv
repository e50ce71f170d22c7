// Lanes between two chips, for simulation: a delay, bit errors, and a cut.
module noc_channel #(
    parameter int WIDTH = 65,    // lanes and the mark of a frame's first beat
    parameter int LATENCY = 8,   // cycles
    parameter int SEED = 1
) (
    input  logic             clk,
    input  logic             rst,
    input  logic [31:0]      error_rate,  // chance that a beat has one wrong bit, times 2^32
    input  logic             cut,         // nothing comes through
    input  logic [WIDTH-1:0] i,
    output logic [WIDTH-1:0] o,
    output logic [31:0]      errors
);
  logic [WIDTH-1:0] delay[LATENCY];
  logic [63:0] state;
  wire [63:0] a = state ^ (state << 13);
  wire [63:0] b = a ^ (a >> 7);
  wire [63:0] draw = b ^ (b << 17);
  wire hit = draw[31:0] < error_rate;
  wire [31:0] place = 32'((64'(draw[63:32]) * 64'(WIDTH)) >> 32);

  assign o = cut ? '0 : delay[LATENCY-1];

  always_ff @(posedge clk) begin
    delay[0] <= hit ? i ^ (WIDTH'(1) << place) : i;
    for (int n = 1; n < LATENCY; n++) delay[n] <= delay[n-1];
    if (rst) begin
      state <= 64'h9e3779b97f4a7c15 ^ 64'(SEED);
      errors <= 0;
    end else begin
      state <= draw;
      if (hit) errors <= errors + 1;
    end
  end
endmodule
