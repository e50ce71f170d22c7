// Every timing rule and illegal command of one HBM pseudo-channel, checked on its command slots.
//
// Distances are controller clocks between the edges at which two commands are sampled. The first breach is reported
// with the rule's name, both commands and both times; `STOP` then ends the simulation. `violation` keeps the code of
// the first rule broken (0: none), for tests that break rules on purpose.
module hbm_rules #(
    parameter int BANKS = 32,       // all banks of the pseudo-channel
    parameter int GROUP = 8,        // banks in a bank group
    parameter int STACK = 16,       // banks in a stack ID
    parameter int BANK_BITS = 5,
    parameter int ROW_BITS = 12,
    parameter int COLUMN_BITS = 5,
    parameter int INDEX = 0,        // number of the channel, for messages and plusargs
    parameter int BL = 1, CL = 10, CWL = 5, RCDRD = 20, RCDWR = 10, RP = 17, RAS = 29, RC = 45, CCDS = 1, CCDL = 2,
    parameter int CCDR = 1, RRDS = 3, RRDL = 4, FAW = 15, RTP = 6, WR_PRE = 27, WTRS = 11, WTRL = 13, RTW = 13,
    parameter int PPD = 1, RFCAB = 450, RFCPB = 280, RREFD = 8, REFI = 3900, ACT_SLOT = 1,
    parameter int POSTPONE = 8,     // refresh rounds that may be postponed or pulled in
    parameter bit CHECK_REFRESH = 1
) (
    input logic clk,
    input logic rst,
    input logic [2:0] row_op,
    input logic [BANK_BITS-1:0] row_bank,
    input logic [ROW_BITS-1:0] row_row,
    input logic [1:0] column_op,
    input logic [BANK_BITS-1:0] column_bank,
    input logic [COLUMN_BITS-1:0] column_column,
    output logic [7:0] violation
);
    localparam int GROUPS = BANKS / GROUP, STACKS = BANKS / STACK;
    localparam int NEVER = -1000000;
    localparam logic [2:0] ACT = 1, PRE = 2, PREA = 3, REFPB = 4, REFAB = 5;
    localparam logic [1:0] RD = 1, WRITE = 2;

    int now;
    logic [BANKS-1:0] open, refreshed;
    int act_bank[BANKS], pre_bank[BANKS], read_bank[BANKS], write_bank[BANKS], refresh_bank[BANKS];
    int act_group[GROUPS], column_group[GROUPS], write_group[GROUPS], column_stack[STACKS];
    int act_last[4];
    int pre_last, read_last, write_last, column_last, refresh_last, refresh_all, rounds, elapsed, next_refi;
    logic stop;
    int trace;
    string path;

    function automatic string row_name(logic [2:0] op);
        case (op)
            ACT: return "ACT";
            PRE: return "PRE";
            PREA: return "PREA";
            REFPB: return "REFpb";
            REFAB: return "REFab";
            default: return "?";
        endcase
    endfunction

    function automatic void fail(logic [7:0] code, string rule, string command, int bank, string other, int at,
                                 int least);
        if (violation == 0) violation = code;
        $display("HBM channel %0d breaks %s: %s to bank %0d at clock %0d, %s at clock %0d, distance %0d, least %0d",
                 INDEX, rule, command, bank, now, other, at, now - at, least);
        if (stop) begin
            $fflush;
            $fatal(1, "HBM channel %0d stopped: rule %s", INDEX, rule);
        end
    endfunction

    initial begin
        stop = !$test$plusargs("hbm_report_only");
        trace = 0;
        if ($value$plusargs({$sformatf("hbm%0d_trace=", INDEX), "%s"}, path)) trace = $fopen(path, "w");
    end
    final if (trace != 0) $fclose(trace);

`define LEAST(last, distance, code, rule, command, bank, other) \
    if (now - (last) < (distance)) fail(code, rule, command, 32'(bank), other, last, distance)

    always_ff @(posedge clk) begin
        if (rst) begin
            now <= 0;
            open = '0;
            refreshed = '0;
            violation = 0;
            for (int b = 0; b < BANKS; b++) begin
                act_bank[b] = NEVER;
                pre_bank[b] = NEVER;
                read_bank[b] = NEVER;
                write_bank[b] = NEVER;
                refresh_bank[b] = NEVER;
            end
            for (int g = 0; g < GROUPS; g++) begin
                act_group[g] = NEVER;
                column_group[g] = NEVER;
                write_group[g] = NEVER;
            end
            for (int s = 0; s < STACKS; s++) column_stack[s] = NEVER;
            for (int k = 0; k < 4; k++) act_last[k] = NEVER;
            pre_last = NEVER;
            read_last = NEVER;
            write_last = NEVER;
            column_last = NEVER;
            refresh_last = NEVER;
            refresh_all = NEVER;
            rounds = 0;
            elapsed = 0;
            next_refi = REFI;
        end else begin
            now <= now + 1;
            if (now == next_refi) begin
                next_refi = next_refi + REFI;
                elapsed = elapsed + 1;
                if (CHECK_REFRESH && elapsed > rounds + POSTPONE)
                    fail(40, "REFI", "REFpb", 0, "last refresh", refresh_last, 0);
            end
            // The column slot first: a row command of the same clock must not count as earlier than it.
            if (column_op != 0) column_rules();
            if (row_op != 0) row_rules();
        end
    end

    function automatic void column_rules();
        automatic int bank = 32'(column_bank), group = 32'(column_bank) / GROUP, stack = 32'(column_bank) / STACK;
        automatic string name = column_op == RD ? "RD" : "WR";
        if (column_op == 3) fail(1, "COMMAND", "?", bank, "", now, 0);
        if (!open[column_bank]) fail(2, "CLOSED", name, bank, "PRE", pre_bank[bank], 0);
        `LEAST(column_last, CCDS, 3, "CCDS", name, bank, "RD/WR");
        `LEAST(column_group[group], CCDL, 4, "CCDL", name, bank, "RD/WR");
        for (int s = 0; s < STACKS; s++)
            if (s != stack) `LEAST(column_stack[s], CCDR, 5, "CCDR", name, bank, "RD/WR");
        if (column_op == RD) begin
            `LEAST(act_bank[bank], RCDRD, 6, "RCDRD", name, bank, "ACT");
            `LEAST(write_last, WTRS, 7, "WTRS", name, bank, "WR");
            `LEAST(write_group[group], WTRL, 8, "WTRL", name, bank, "WR");
            read_bank[bank] = now;
            read_last = now;
        end else begin
            `LEAST(act_bank[bank], RCDWR, 9, "RCDWR", name, bank, "ACT");
            `LEAST(read_last, RTW, 10, "RTW", name, bank, "RD");
            write_bank[bank] = now;
            write_last = now;
            write_group[group] = now;
        end
        column_last = now;
        column_group[group] = now;
        column_stack[stack] = now;
        if (trace != 0) $fwrite(trace, "%0d %s %0d %0d\n", now, name, column_bank, column_column);
    endfunction

    function automatic void close(int bank, string name);
        `LEAST(act_bank[bank], RAS, 11, "RAS", name, bank, "ACT");
        `LEAST(read_bank[bank], RTP, 12, "RTP", name, bank, "RD");
        `LEAST(write_bank[bank], WR_PRE, 13, "WR", name, bank, "WR");
        pre_bank[bank] = now;  // a precharge of a closed bank starts tRP again
        open[bank] = 0;
    endfunction

    function automatic void settled(int bank, string name);
        `LEAST(act_bank[bank], RC, 14, "RC", name, bank, "ACT");
        `LEAST(pre_bank[bank], RP, 15, "RP", name, bank, "PRE");
        `LEAST(refresh_bank[bank], RFCPB, 16, "RFCPB", name, bank, "REFpb");
    endfunction

    function automatic void row_rules();
        automatic int bank = 32'(row_bank), group = 32'(row_bank) / GROUP;
        automatic string name = row_name(row_op);
        `LEAST(act_last[0], ACT_SLOT, 17, "SLOT", name, bank, "ACT");
        `LEAST(refresh_all, RFCAB, 18, "RFCAB", name, bank, "REFab");
        case (row_op)
            ACT: begin
                if (open[row_bank]) fail(19, "OPEN", name, bank, "ACT", act_bank[bank], 0);
                settled(bank, name);
                `LEAST(act_last[0], RRDS, 20, "RRDS", name, bank, "ACT");
                `LEAST(act_group[group], RRDL, 21, "RRDL", name, bank, "ACT");
                `LEAST(act_last[3], FAW, 22, "FAW", name, bank, "fourth last ACT");
                `LEAST(refresh_last, RREFD, 23, "RREFD", name, bank, "REFpb");
                open[row_bank] = 1;
                act_bank[bank] = now;
                act_group[group] = now;
                act_last[3] = act_last[2];
                act_last[2] = act_last[1];
                act_last[1] = act_last[0];
                act_last[0] = now;
            end
            PRE: begin
                `LEAST(pre_last, PPD, 24, "PPD", name, bank, "PRE");
                close(bank, name);
                pre_last = now;
            end
            PREA: begin
                `LEAST(pre_last, PPD, 24, "PPD", name, bank, "PRE");
                for (int b = 0; b < BANKS; b++) close(b, name);
                pre_last = now;
            end
            REFPB: begin
                if (open[row_bank]) fail(19, "OPEN", name, bank, "ACT", act_bank[bank], 0);
                settled(bank, name);
                `LEAST(act_last[0], RRDS, 20, "RRDS", name, bank, "ACT");
                `LEAST(act_group[group], RRDL, 21, "RRDL", name, bank, "ACT");
                `LEAST(refresh_last, RREFD, 23, "RREFD", name, bank, "REFpb");
                if (refreshed[row_bank]) fail(25, "ROUND", name, bank, "REFpb", refresh_bank[bank], 0);
                refreshed[row_bank] = 1;
                refresh_bank[bank] = now;
                refresh_last = now;
                if (&refreshed) finish_round(name, bank);
            end
            REFAB: begin
                for (int b = 0; b < BANKS; b++) begin
                    if (open[b]) fail(19, "OPEN", name, b, "ACT", act_bank[b], 0);
                    settled(b, name);
                end
                refresh_all = now;
                finish_round(name, bank);
            end
            default: fail(1, "COMMAND", name, bank, "", now, 0);
        endcase
        if (trace != 0) $fwrite(trace, "%0d %s %0d %0d\n", now, name, row_bank, row_row);
    endfunction

    function automatic void finish_round(string name, int bank);
        refreshed = '0;
        rounds = rounds + 1;
        if (CHECK_REFRESH && rounds > elapsed + 1 + POSTPONE) fail(26, "PULLIN", name, bank, name, now, 0);
    endfunction
`undef LEAST
endmodule
