// One HBM pseudo-channel: storage behind the command slots, with every rule checked (hbm_rules).
//
// Commands are sampled at every rising edge. Write data is sampled CWL clocks after its command; read data is to be
// sampled CL + BL clocks after its command, marked by `read_valid`. Storage is indexed by granule address, so that an
// image in address order loads as it is: `INVERSE` is the inverse address map, `ADDRESS_BITS` bits for each address
// bit, over device bits {row, bank, column}.
//
// Plusargs (N is INDEX): +hbmN_image=FILE loads a binary image (whole granules) at time 0, from granule
// +hbmN_image_at=G on; +hbmN_dump=FILE writes +hbmN_dump_granules=G granules from +hbmN_dump_at=G on at the end;
// +hbmN_trace=FILE writes the command trace; +hbm_report_only goes on after a broken rule; +hbm_pattern fills word w of
// granule g with 8g + w.
//
// Check bits are kept as their difference from the code of the stored data, so that a loaded image needs no pass over
// it. `fault_address`, `fault_data` and `fault_check` flip bits of one granule when it is read, while `fault` is high; a
// clock of `corrupt` flips them in the storage, until the granule is written again.
module hbm_device #(
    parameter int BANKS = 32, GROUP = 8, STACK = 16, BANK_BITS = 5, ROW_BITS = 12, COLUMN_BITS = 5, INDEX = 0,
    parameter int BL = 1, CL = 10, CWL = 5, RCDRD = 20, RCDWR = 10, RP = 17, RAS = 29, RC = 45, CCDS = 1, CCDL = 2,
    parameter int CCDR = 1, RRDS = 3, RRDL = 4, FAW = 15, RTP = 6, WR_PRE = 27, WTRS = 11, WTRL = 13, RTW = 13,
    parameter int PPD = 1, RFCAB = 450, RFCPB = 280, RREFD = 8, REFI = 3900, ACT_SLOT = 1, POSTPONE = 8,
    parameter bit CHECK_REFRESH = 1,
    parameter bit ECC = 1,
    parameter int ADDRESS_BITS = ROW_BITS + BANK_BITS + COLUMN_BITS,
    parameter logic [ADDRESS_BITS*ADDRESS_BITS-1:0] INVERSE = '0
) (
    input logic clk,
    input logic rst,
    input logic [3+BANK_BITS+ROW_BITS-1:0] row,
    input logic [2+BANK_BITS+COLUMN_BITS-1:0] column,
    input logic [255:0] write_data,
    input logic [31:0] write_check,
    output logic read_valid,
    output logic [255:0] read_data,
    output logic [31:0] read_check,
    output logic [7:0] violation
);
    localparam int DELAY = 64;
    localparam int READ = CL + BL - 1;  // from command to the clock in which data stands on the port

    logic [255:0] store[2**ADDRESS_BITS];
    logic [31:0] check[2**ADDRESS_BITS];
    logic [ROW_BITS-1:0] open_row[BANKS];
    logic [ADDRESS_BITS-1:0] reads[DELAY], writes[DELAY];
    logic [DELAY-1:0] read_due, write_due;
    logic [5:0] now;
    logic fault, corrupt;
    logic [ADDRESS_BITS-1:0] fault_address;
    logic [255:0] fault_data;
    logic [31:0] fault_check;

    wire [1:0] column_op = column[1:0];
    wire [BANK_BITS-1:0] column_bank = column[2+:BANK_BITS];
    wire [BANK_BITS-1:0] row_bank = row[3+:BANK_BITS];

    hbm_rules #(
        .BANKS(BANKS), .GROUP(GROUP), .STACK(STACK), .BANK_BITS(BANK_BITS), .ROW_BITS(ROW_BITS),
        .COLUMN_BITS(COLUMN_BITS), .INDEX(INDEX), .BL(BL), .CL(CL), .CWL(CWL), .RCDRD(RCDRD), .RCDWR(RCDWR), .RP(RP),
        .RAS(RAS), .RC(RC), .CCDS(CCDS), .CCDL(CCDL), .CCDR(CCDR), .RRDS(RRDS), .RRDL(RRDL), .FAW(FAW), .RTP(RTP),
        .WR_PRE(WR_PRE), .WTRS(WTRS), .WTRL(WTRL), .RTW(RTW), .PPD(PPD), .RFCAB(RFCAB), .RFCPB(RFCPB), .RREFD(RREFD),
        .REFI(REFI), .ACT_SLOT(ACT_SLOT), .POSTPONE(POSTPONE), .CHECK_REFRESH(CHECK_REFRESH)
    ) rules (
        .clk, .rst, .row_op(row[2:0]), .row_bank, .row_row(row[3+BANK_BITS+:ROW_BITS]), .column_op, .column_bank,
        .column_column(column[2+BANK_BITS+:COLUMN_BITS]), .violation
    );

    // Hsiao (72, 64) code: the columns of the check matrix are the bytes of weight 3, then those of weight 5.
    typedef logic [63:0] mask_t[8];
    function automatic mask_t check_masks();
        automatic int bit_number = 0;
        for (int k = 0; k < 8; k++) check_masks[k] = '0;
        for (int weight = 3; weight <= 5; weight += 2)
            for (int value = 0; value < 256; value++)
                if ($countones(value) == weight && bit_number < 64) begin
                    for (int k = 0; k < 8; k++) if (value[k]) check_masks[k][bit_number] = 1;
                    bit_number++;
                end
    endfunction
    mask_t masks;

    function automatic logic [31:0] encode(logic [255:0] granule);
        for (int w = 0; w < 4; w++)
            for (int k = 0; k < 8; k++) encode[8*w+k] = ^(granule[64*w+:64] & masks[k]);
    endfunction

    function automatic logic [ADDRESS_BITS-1:0] address_of(logic [ADDRESS_BITS-1:0] device);
        for (int k = 0; k < ADDRESS_BITS; k++) address_of[k] = ^(device & INVERSE[k*ADDRESS_BITS+:ADDRESS_BITS]);
    endfunction

    string path;
    int file, first, count, got;
    logic pattern;
    logic [255:0] word;
    initial begin
        masks = check_masks();
        fault = 0;
        corrupt = 0;
        fault_address = '0;
        fault_data = '0;
        fault_check = '0;
        pattern = $test$plusargs("hbm_pattern");
        for (int k = 0; k < 2 ** ADDRESS_BITS; k++) begin
            store[k] = '0;
            check[k] = '0;
            if (pattern) for (int w = 0; w < 8; w++) store[k][32*w+:32] = 8 * k + w;
        end
        if ($value$plusargs({$sformatf("hbm%0d_image=", INDEX), "%s"}, path)) begin
            first = 0;
            void'($value$plusargs({$sformatf("hbm%0d_image_at=", INDEX), "%d"}, first));
            file = $fopen(path, "rb");
            if (file == 0) $fatal(1, "HBM channel %0d: cannot open image %s", INDEX, path);
            got = $fread(store, file, first);
            if (got <= 0 || got % 32 != 0)
                $fatal(1, "HBM channel %0d: image %s is empty or not whole granules of 32 bytes", INDEX, path);
            $fclose(file);
            for (int k = first; k < first + got / 32; k++) begin
                word = store[k];
                store[k] = {<<8{word}};
            end
        end
    end

    final
        if ($value$plusargs({$sformatf("hbm%0d_dump=", INDEX), "%s"}, path)) begin
            first = 0;
            count = 2 ** ADDRESS_BITS;
            void'($value$plusargs({$sformatf("hbm%0d_dump_at=", INDEX), "%d"}, first));
            void'($value$plusargs({$sformatf("hbm%0d_dump_granules=", INDEX), "%d"}, count));
            file = $fopen(path, "wb");
            for (int k = first; k < first + count; k++)
                for (int w = 0; w < 8; w++) $fwrite(file, "%u", store[k][32*w+:32]);
            $fclose(file);
        end

    always_ff @(posedge clk) begin
        automatic logic [ADDRESS_BITS-1:0] address;
        now <= now + 1;
        read_valid <= 0;
        if (rst) begin
            now <= 0;
            read_due = '0;
            write_due = '0;
        end else begin
            if (corrupt) begin
                store[fault_address] = store[fault_address] ^ fault_data;
                if (ECC) check[fault_address] = check[fault_address] ^ encode(fault_data) ^ fault_check;
            end
            if (row[2:0] == 1) open_row[row_bank] <= row[3+BANK_BITS+:ROW_BITS];
            if (write_due[now]) begin
                store[writes[now]] = write_data;
                if (ECC) check[writes[now]] = write_check ^ encode(write_data);
                write_due[now] = 0;
            end
            if (column_op != 0) begin
                address = address_of({open_row[column_bank], column_bank, column[2+BANK_BITS+:COLUMN_BITS]});
                if (column_op == 1) begin
                    reads[now+6'(READ)] = address;
                    read_due[now+6'(READ)] = 1;
                end else begin
                    writes[now+6'(CWL)] = address;
                    write_due[now+6'(CWL)] = 1;
                end
            end
            if (read_due[now]) begin
                address = reads[now];
                read_valid <= 1;
                read_data <= store[address];
                if (ECC) read_check <= check[address] ^ encode(store[address]);
                if (fault && address == fault_address) begin
                    read_data <= store[address] ^ fault_data;
                    if (ECC) read_check <= check[address] ^ encode(store[address]) ^ fault_check;
                end
                read_due[now] = 0;
            end
        end
    end
endmodule
