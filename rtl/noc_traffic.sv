// Traffic generator and checker of one mesh endpoint, for load measurements (simulation only).
//
// Open loop, as in BookSim: packets are born with probability `rate`/65536 a cycle into a queue without bound, and
// leave it in order, one flit a cycle where the network takes it. Latency is counted from birth to the arrival of the
// last flit. Each flit carries its source, its target and a number within their flow: a receiver checks that every
// flow arrives complete, in order and at the right node.
module noc_traffic (
    input  logic        clk,
    input  logic        rst,
    input  logic [7:0]  columns,
    input  logic [7:0]  rows,
    input  logic [7:0]  x,        // position of the endpoint
    input  logic [7:0]  y,
    input  logic [16:0] rate,     // packets a cycle, times 65536
    input  logic [7:0]  length,   // flits a packet
    input  logic [2:0]  pattern,  // 0 uniform, 1 transpose, 2 bit complement, 3 neighbour, 4 hot corners;
                                  // 5: `length` flits once, at the start, each to all nodes
    input  logic [31:0] seed,
    input  logic        measure,  // count received flits, and mark the packets that are born now
    output logic        send_valid,
    input  logic        send_ready,
    output logic [7:0]  send_x,  // target; in pattern 5 the far corner of the rectangle that starts at (0, 0)
    output logic [7:0]  send_y,
    output logic        send_all,
    output logic        send_last,
    output logic [30:0] send_data,
    input  logic        receive_valid,
    input  logic        receive_last,
    input  logic [30:0] receive_data,
    output logic [31:0] flits,    // received while `measure`
    output logic [31:0] born,     // marked packets born
    output logic [31:0] packets,  // marked packets received
    output logic [47:0] latency,  // their sum, in cycles
    output logic [31:0] finished, // cycles from the start to the last flit received
    output logic [31:0] errors
);
  localparam int MOST = 64;
  wire [7:0] nodes = 8'(columns * rows);
  wire [5:0] node = 6'(y * columns + x);

  typedef struct packed {
    logic [5:0]  target;
    logic [5:0]  source;
    logic [3:0]  number;
    logic        marked;
    logic [13:0] birth;
  } data_t;

  logic [63:0] state, draw;
  logic [13:0] now;
  logic [20:0] queue[$];  // target, marked, birth
  logic [20:0] head;
  logic [7:0] left;
  logic [3:0] sent[MOST], received[MOST];
  data_t arrived;

  function automatic logic [63:0] next_random(input logic [63:0] value);
    logic [63:0] mixed;
    mixed = value ^ (value << 13);
    mixed = mixed ^ (mixed >> 7);
    return mixed ^ (mixed << 17);
  endfunction

  function automatic logic [5:0] goal(input logic [31:0] chance);
    case (pattern)
      0: return 6'((64'(chance) * 64'(nodes)) >> 32);
      1: return 6'(x * columns + y);
      2: return 6'(nodes - 1 - 8'(node));
      3: return 6'(((y + 1) % rows) * columns + (x + 1) % columns);
      default: return 6'((chance[31] ? nodes - columns : 0) + (chance[30] ? columns - 1 : 0));
    endcase
  endfunction

  assign draw = next_random(state);
  assign arrived = receive_data;
  assign send_all = pattern == 5;
  assign send_valid = left != 0;
  assign send_x = send_all ? columns - 1 : 8'(head[20:15]) % columns;
  assign send_y = send_all ? rows - 1 : 8'(head[20:15]) / columns;
  assign send_last = left == 1 || send_all;
  assign send_data = {head[20:15], node, sent[head[20:15]], head[14:0]};

  always_ff @(posedge clk) begin
    if (rst) begin
      state <= {seed ^ 32'h9e3779b9, 32'(32'(node) * 7919 + 12345)};
      queue.delete();
      {now, flits, born, packets, latency, finished, errors} <= '0;
      left <= send_all ? length : 0;
      head <= {node, 1'b0, 14'd0};
      for (int n = 0; n < MOST; n++) {sent[n], received[n]} <= '0;
    end else begin
      now <= now + 1;
      state <= draw;
      if (!send_all && {1'b0, draw[63:48]} < rate) begin
        queue.push_back({goal(draw[31:0]), measure, now});
        born <= born + 32'(measure);
      end
      if (send_valid && send_ready) begin
        sent[head[20:15]] <= sent[head[20:15]] + 1;
        left <= left - 1;
      end
      if ((left == 0 || (send_ready && left == 1)) && queue.size() != 0) begin
        head <= queue.pop_front();
        left <= length;
      end
      if (receive_valid) begin
        finished <= 32'(now);
        if (arrived.target != (send_all ? arrived.source : node) || arrived.number != received[arrived.source]) errors <= errors + 1;
        received[arrived.source] <= received[arrived.source] + 1;
        flits <= flits + 32'(measure);
        if (receive_last && arrived.marked) begin
          packets <= packets + 1;
          latency <= latency + 48'(14'(now - arrived.birth));
        end
      end
    end
  end
endmodule
