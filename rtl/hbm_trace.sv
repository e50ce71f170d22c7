// Drives requests of a trace into a controller's request port, and measures.
//
// +trace=FILE holds one little-endian 32-bit word a request: granule index, bit 31 set for a write. Requests go in
// order, at most one a clock; with +trace_spacing=S (in 1/256 clocks) no two closer than S on average. The first tenth
// warms up. Read data must be the device's pattern (+hbm_pattern), writes carry its complement. `returned` counts the
// reads that have their data, each once: data that nobody waits for count as `wrong`, and so make up for nothing.
// `done`: all requests are accepted, all reads have returned, and the controller has nothing left to do (`idle`).
// +latencies=FILE receives one 32-bit word for each measured read: clocks from acceptance to last data.
module hbm_trace #(
    parameter int ADDRESS_BITS = 22,
    parameter int TAG_BITS = 10,
    parameter int MOST = 1 << 17
) (
    input logic clk,
    input logic rst,
    output logic request_valid,
    input logic request_ready,
    input logic idle,
    output logic [1+ADDRESS_BITS+TAG_BITS-1:0] request,
    output logic [255:0] request_data,
    input logic response_valid,
    input logic [TAG_BITS+257-1:0] response,
    output logic done,
    output logic [31:0] accepted,
    output logic [31:0] returned,
    output logic [31:0] reads,
    output logic [31:0] wrong,
    output logic [31:0] first_clock,
    output logic [31:0] last_clock
);
    logic [31:0] trace[MOST];
    logic [31:0] sent_at[2**TAG_BITS];
    logic [ADDRESS_BITS-1:0] sent_index[2**TAG_BITS];
    logic [2**TAG_BITS-1:0] measured, waiting;
    logic [31:0] lines, next, now, warm;
    longint spacing, credit;
    logic [TAG_BITS-1:0] tag, back;
    int file, latencies;
    string path;

    initial begin
        lines = 0;
        spacing = 0;
        latencies = 0;
        if ($value$plusargs("trace=%s", path)) begin
            file = $fopen(path, "rb");
            if (file == 0) $fatal(1, "cannot open trace %s", path);
            lines = $fread(trace, file) / 4;
            $fclose(file);
            for (int k = 0; k < lines; k++) trace[k] = {<<8{trace[k]}};
        end
        void'($value$plusargs("trace_spacing=%d", spacing));
        if ($value$plusargs("latencies=%s", path)) latencies = $fopen(path, "wb");
    end
    final if (latencies != 0) $fclose(latencies);

    wire [31:0] line = trace[next[16:0]];
    wire [ADDRESS_BITS-1:0] index = line[ADDRESS_BITS-1:0];
    assign request_valid = next < lines && credit >= spacing;
    assign request = {tag, index, line[31]};
    always_comb for (int w = 0; w < 8; w++) request_data[32*w+:32] = ~(8 * 32'(index) + w);
    assign back = response[TAG_BITS-1:0];

    always_ff @(posedge clk) begin
        if (rst) begin
            now <= 0;
            next <= 0;
            tag <= 0;
            credit <= 0;
            done <= 0;
            accepted <= 0;
            returned <= 0;
            reads <= 0;
            wrong <= 0;
            waiting <= 0;
            first_clock <= 0;
            last_clock <= 0;
            warm <= lines / 10;
        end else begin
            now <= now + 1;
            // Credit for at most one request is kept, so that a stall is not followed by a burst above the load.
            credit <= (request_valid && request_ready ? credit - spacing : credit) + (credit < 2 * spacing ? 256 : 0);
            if (request_valid && request_ready) begin
                next <= next + 1;
                accepted <= accepted + 1;
                if (next == warm) first_clock <= now;
                if (next == lines - 1) last_clock <= now;
                if (!line[31]) begin
                    tag <= tag + 1;
                    reads <= reads + 1;
                    sent_at[tag] <= now;
                    sent_index[tag] <= index;
                    measured[tag] <= next >= warm;
                    waiting[tag] <= 1;
                end
            end
            if (response_valid) begin
                if (waiting[back]) returned <= returned + 1;
                else wrong <= wrong + 1;
                waiting[back] <= 0;
                for (int w = 0; w < 8; w++)
                    if (response[TAG_BITS+32*w+:32] != 8 * 32'(sent_index[back]) + w) wrong <= wrong + 1;
                if (latencies != 0 && measured[back]) $fwrite(latencies, "%u", now - sent_at[back]);
            end
            done <= next == lines && returned == reads && idle;
        end
    end
endmodule
