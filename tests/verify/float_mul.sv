// A small IEEE-style multiplier for any format, right by default, with switches for the faults that real ones have.
module float_mul #(
    parameter E = 5, parameter M = 2,
    parameter FLUSH_IN = 0,   // subnormal operands are read as zero
    parameter FLUSH_OUT = 0,  // subnormal results become zero
    parameter TRUNCATE = 0,   // rounds toward zero
    parameter PAYLOAD = 0,    // passes the first operand's NaN on
    parameter UNSIGNED_ZERO = 0, // a zero result is always +0
    parameter SATURATE = 0,   // overflow gives the largest finite value
    parameter DOUBLE_STICKY = 0 // a tie is rounded up, not to even
) (
    input [E+M:0] x, input [E+M:0] y, output reg [E+M:0] z
);
    localparam BIAS = (1 << (E - 1)) - 1;
    localparam W = 2 * M + 2;
    wire sign = x[E+M] ^ y[E+M];
    wire [E-1:0] ex = x[E+M-1:M], ey = y[E+M-1:M];
    wire [M-1:0] fx = x[M-1:0], fy = y[M-1:0];
    wire nan_x = &ex & (|fx), nan_y = &ey & (|fy);
    wire inf_x = &ex & ~(|fx), inf_y = &ey & ~(|fy);
    wire [M:0] mx = {|ex, (FLUSH_IN && ~|ex) ? {M{1'b0}} : fx};
    wire [M:0] my = {|ey, (FLUSH_IN && ~|ey) ? {M{1'b0}} : fy};
    wire zero_x = ~(|mx), zero_y = ~(|my);
    wire [W-1:0] product = mx * my;
    integer i, top, exponent, shift;
    reg [2*W+1:0] wide;
    reg [M+1:0] kept;
    reg guard, sticky, up;
    reg [E+M+1:0] packed_result;
    always @* begin
        top = 0;
        for (i = 0; i < W; i = i + 1) if (product[i]) top = i;
        exponent = (ex == 0 ? 1 : ex) + (ey == 0 ? 1 : ey) - BIAS + top - 2 * M;
        wide = {product, {(W+2){1'b0}}} << (W - 1 - top);
        shift = exponent < 1 ? 1 - exponent : 0;
        if (shift > W + 2) shift = W + 2;
        sticky = 0;
        for (i = 0; i < W + 2; i = i + 1) if (i < shift && wide[i]) sticky = 1;
        wide = wide >> shift;
        kept = wide[2*W+1 -: M+1];
        guard = wide[2*W-M];
        sticky = sticky | (|wide[2*W-M-1:0]);
        up = guard & (sticky | kept[0] | (DOUBLE_STICKY != 0)) & (TRUNCATE == 0);
        if (exponent < 1) packed_result = kept + up;
        else packed_result = (exponent << M) + kept[M-1:0] + up;
        z = {sign, packed_result[E+M-1:0]};
        if (FLUSH_OUT && packed_result < (1 << M)) z = {sign, {(E+M){1'b0}}};
        if (packed_result >= (((1 << E) - 1) << M))
            z = SATURATE ? {sign, {(E-1){1'b1}}, 1'b0, {M{1'b1}}} : {sign, {E{1'b1}}, {M{1'b0}}};
        if (zero_x | zero_y) z = {sign, {(E+M){1'b0}}};
        if (UNSIGNED_ZERO && z[E+M-1:0] == 0) z[E+M] = 0;
        if (inf_x | inf_y) z = {sign, {E{1'b1}}, {M{1'b0}}};
        if (nan_x | nan_y | (inf_x & zero_y) | (inf_y & zero_x))
            z = PAYLOAD && nan_x ? x : {1'b0, {E{1'b1}}, 1'b1, {(M-1){1'b0}}};
    end
endmodule
