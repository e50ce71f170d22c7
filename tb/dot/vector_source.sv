// Reads records of BYTES bytes from vectors.bin, one a cycle while `enable`, so that Python is not in the loop.
// `open` starts from the beginning. The first byte of a record is bits 7:0.
module vector_source #(parameter int BYTES = 84) (
    input  logic               clk,
    input  logic               rst,
    input  logic               open,
    input  logic               enable,
    output logic [8*BYTES-1:0] record,
    output logic               valid,
    output logic               ended
);
    int file;
    int got;
    logic [8*BYTES-1:0] raw;

    // $fread puts the first byte at the top.
    for (genvar i = 0; i < BYTES; i++) begin : swap
        assign record[8*i +: 8] = raw[8*(BYTES-1-i) +: 8];
    end

    always @(posedge clk) begin
        if (rst) begin
            valid <= 1'b0;
            ended <= 1'b0;
            file = 0;
        end else if (open) begin
            file = $fopen("vectors.bin", "rb");
            if (file == 0) $fatal(1, "vectors.bin cannot be opened");
            valid <= 1'b0;
            ended <= 1'b0;
        end else if (enable && file != 0) begin
            got = $fread(raw, file);
            valid <= (got == BYTES);
            if (got != BYTES) begin
                ended <= 1'b1;
                $fclose(file);
                file = 0;
            end
        end
    end
endmodule
