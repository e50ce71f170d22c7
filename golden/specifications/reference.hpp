// The compiled mirror of the golden functions: for billions of vectors, and to sort differences into classes.
// It shares no code with golden/rounding.py and golden/formats.py; the two are compared on samples of every run.
// A finite value is (-1)^s * m * 2^e with an integer m.
#pragma once
#include <cmath>
#include <cstdint>

typedef uint64_t u64;
typedef int64_t i64;
typedef unsigned __int128 u128;

static inline i64 sx(u64 v, int width) { return (i64)(v << (64 - width)) >> (64 - width); }
static inline int top_bit(u64 v) { return 63 - __builtin_clzll(v); }
static inline int top_bit(u128 v) { return (u64)(v >> 64) ? 64 + top_bit((u64)(v >> 64)) : top_bit((u64)v); }

enum Kind { FINITE, INFINITE, NOT_A_NUMBER };

struct Number {
    bool s;
    int kind;
    int e;
    u64 m;
};

// Exponent bits, fraction bits, exponent of the least significant bit, largest finite code, infinity or 0, NaN or 0.
template <int E, int M, int LSB, u64 MAX, u64 INF, u64 NAN_CODE> struct Float {
    static constexpr int bits = 1 + E + M, fraction = M, lsb = LSB;
    static constexpr u64 sign = 1ull << (E + M), max = MAX, inf = INF, nan = NAN_CODE;

    static inline Number decode(u64 v) {
        const u64 code = v & (sign - 1), field = code >> M, low = code & ((1ull << M) - 1);
        const int kind = code <= MAX ? FINITE : INF && code == INF ? INFINITE : NOT_A_NUMBER;
        return {(v & sign) != 0, kind, LSB + (field ? (int)field - 1 : 0), field ? low | (1ull << M) : low};
    }
    static inline bool is_nan(u64 v) { return decode(v).kind == NOT_A_NUMBER; }
    static inline bool is_zero(u64 v) { return (v & (sign - 1)) == 0; }
    static inline bool is_subnormal(u64 v) { return !is_zero(v) && (v & (sign - 1)) < (1ull << M); }
    static inline bool is_special(u64 v) { return (v & (sign - 1)) > MAX; }
    static inline u64 flush(u64 v) { return is_subnormal(v) ? v & sign : v; }
    static inline u64 infinity(bool s, bool saturate) {
        return (s ? sign : 0) | (saturate || !(INF || NAN_CODE) ? MAX : INF ? INF : NAN_CODE);
    }

    // Round to nearest even; `sticky` says that the exact magnitude is above m by less than one.
    template <class W> static inline u64 encode(bool s, W m, int e, bool sticky, bool saturate) {
        const u64 negative = s ? sign : 0;
        if (m == 0) return negative;
        int target = e + top_bit(m) - M;
        if (target < LSB) target = LSB;
        const int down = target - e;
        u64 kept;
        if (down > 0) {
            const int limit = 8 * (int)sizeof(W);
            const W whole = down < limit ? m >> down : 0;
            const W half = down <= limit ? (m >> (down - 1)) & 1 : 0;
            const W below = down - 1 < limit ? m & (((W)1 << (down - 1)) - 1) : m;
            kept = (u64)whole + (half && (below || sticky || (whole & 1)) ? 1 : 0);
        } else {
            kept = (u64)(m << -down);
        }
        const u64 code = ((u64)(target - LSB) << M) + kept;
        return code > MAX ? infinity(s, saturate) : negative | code;
    }
};

typedef Float<4, 3, -9, 0x7E, 0, 0x7F> E4M3;
typedef Float<5, 2, -16, 0x7B, 0x7C, 0x7E> E5M2;
typedef Float<2, 3, -3, 0x1F, 0, 0> E2M3;
typedef Float<3, 2, -4, 0x1F, 0, 0> E3M2;
typedef Float<2, 1, -1, 0x7, 0, 0> E2M1;
typedef Float<8, 7, -133, 0x7F7F, 0x7F80, 0x7FC0> BF16;
typedef Float<5, 10, -24, 0x7BFF, 0x7C00, 0x7E00> FP16;
typedef Float<8, 23, -149, 0x7F7FFFFF, 0x7F800000, 0x7FC00000> FP32;

// Sum of two finite values with magnitudes below 2^25, exact or its floor and a sticky flag.
template <class F> static inline u64 sum_narrow(bool sa, u64 a, int ea, bool sb, u64 b, int eb, bool saturate) {
    if (!a && !b) return sa && sb ? F::sign : 0;
    if (!a) return F::encode(sb, b, eb, false, saturate);
    if (!b) return F::encode(sa, a, ea, false, saturate);
    if (ea < eb) {
        const bool s = sa; sa = sb; sb = s;
        const u64 m = a; a = b; b = m;
        const int e = ea; ea = eb; eb = e;
    }
    const int distance = ea - eb;
    if (distance > 36) { // b is far below half a unit of a's last kept place
        const u64 high = a << 36;
        return F::encode(sa, sa == sb ? high : high - 1, ea - 36, true, saturate);
    }
    const u64 high = a << distance;
    if (sa == sb) return F::encode(sa, high + b, eb, false, saturate);
    if (high == b) return 0;
    return high > b ? F::encode(sa, high - b, eb, false, saturate) : F::encode(sb, b - high, eb, false, saturate);
}
// The same for magnitudes up to 2^100: the larger one is placed with its top bit at 125.
template <class F> static inline u64 sum_wide(bool sa, u128 a, int ea, bool sb, u128 b, int eb, bool saturate) {
    if (!a && !b) return sa && sb ? F::sign : 0;
    if (!a || (b && eb + top_bit(b) > ea + top_bit(a))) {
        const bool s = sa; sa = sb; sb = s;
        const u128 m = a; a = b; b = m;
        const int e = ea; ea = eb; eb = e;
    }
    const int up = 125 - top_bit(a), base = ea - up, shift = eb - base;
    a <<= up;
    bool lost = false;
    if (shift >= 0) b <<= b ? shift : 0;
    else if (shift > -128) {
        lost = (b & (((u128)1 << -shift) - 1)) != 0;
        b >>= -shift;
    } else {
        lost = b != 0;
        b = 0;
    }
    if (sa == sb) return F::encode(sa, a + b, base, lost, saturate);
    if (a == b && !lost) return 0;
    return b > a ? F::encode(sb, b - a, base, lost, saturate) : F::encode(sa, a - b - lost, base, lost, saturate);
}

template <class F> static inline u64 fp_add(u64 va, u64 vb, bool saturate) {
    const Number a = F::decode(va), b = F::decode(vb);
    if (a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER) return F::nan;
    if (a.kind == INFINITE) return b.kind == INFINITE && a.s != b.s ? F::nan : va;
    if (b.kind == INFINITE) return vb;
    return sum_narrow<F>(a.s, a.m, a.e, b.s, b.m, b.e, saturate);
}
template <class F> static inline u64 fp_sub(u64 a, u64 b, bool saturate) {
    return F::is_nan(b) ? F::nan : fp_add<F>(a, b ^ F::sign, saturate);
}
template <class F> static inline u64 fp_mul(u64 va, u64 vb, bool saturate) {
    const Number a = F::decode(va), b = F::decode(vb);
    const bool s = a.s != b.s;
    if (a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER) return F::nan;
    if (a.kind == INFINITE || b.kind == INFINITE)
        return F::is_zero(va) || F::is_zero(vb) ? F::nan : (s ? F::sign : 0) | F::inf;
    return F::encode(s, a.m * b.m, a.e + b.e, false, saturate);
}
template <class F> static inline u64 fp_fma(u64 va, u64 vb, u64 vc, bool saturate) {
    const Number a = F::decode(va), b = F::decode(vb), c = F::decode(vc);
    const bool s = a.s != b.s;
    if (a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER || c.kind == NOT_A_NUMBER) return F::nan;
    if (a.kind == INFINITE || b.kind == INFINITE) {
        if (F::is_zero(va) || F::is_zero(vb) || (c.kind == INFINITE && c.s != s)) return F::nan;
        return (s ? F::sign : 0) | F::inf;
    }
    if (c.kind == INFINITE) return vc;
    return sum_wide<F>(s, (u128)(a.m * b.m), a.e + b.e, c.s, (u128)c.m, c.e, saturate);
}
template <class F, class G> static inline u64 fp_convert(u64 v, bool saturate) {
    const Number a = F::decode(v);
    if (a.kind == NOT_A_NUMBER) return G::nan;
    if (a.kind == INFINITE) return G::infinity(a.s, saturate && !G::inf);
    return G::encode(a.s, a.m, a.e, false, saturate);
}
template <class F> static inline u64 from_integer(i64 v) {
    return F::encode(v < 0, v < 0 ? -(u64)v : (u64)v, 0, false, false);
}
// To a signed integer of `width` bits: nearest even, or toward zero; out of range saturates; NaN gives the largest.
template <class F> static inline u64 to_integer(u64 v, int width, bool truncate) {
    const Number a = F::decode(v);
    const u64 most = (1ull << (width - 1)) - 1;
    if (a.kind == NOT_A_NUMBER) return most;
    const u64 limit = a.s ? most + 1 : most;
    u64 m = a.m;
    if (a.kind == INFINITE) m = limit;
    else if (a.e >= 0) m = a.e > 39 && m ? limit : m << a.e;
    else {
        const int down = -a.e;
        const u64 whole = down < 64 ? m >> down : 0, half = down <= 64 ? (m >> (down - 1)) & 1 : 0;
        const u64 below = down - 1 < 64 ? m & ((1ull << (down - 1)) - 1) : m;
        m = whole + (!truncate && half && (below || (whole & 1)) ? 1 : 0);
    }
    if (m > limit) m = limit;
    return a.s ? -m : m;
}
template <class F> static inline double to_double(u64 v) {
    const Number a = F::decode(v);
    if (a.kind == NOT_A_NUMBER) return NAN;
    const double m = a.kind == INFINITE ? INFINITY : std::ldexp((double)a.m, a.e);
    return a.s ? -m : m;
}
template <class F> static inline u64 from_double(double v) { // one rounding, from the 53 bits that v has
    if (std::isnan(v)) return F::nan;
    if (std::isinf(v)) return F::infinity(v < 0, false);
    int e;
    const double m = std::frexp(std::fabs(v), &e);
    return F::encode(std::signbit(v), (u64)std::ldexp(m, 53), e - 53, false, false);
}
// Distance of a result from the exact value, in units in the last place of the exact value's binade.
template <class F> static inline double ulps(double exact, u64 got) {
    const double found = to_double<F>(got);
    if (std::isnan(exact) || std::isnan(found)) return std::isnan(exact) && std::isnan(found) ? 0 : INFINITY;
    const u64 rounded = from_double<F>(exact);
    if (F::is_special(rounded) || F::is_special(got)) return rounded == (got & (2 * F::sign - 1)) ? 0 : INFINITY;
    int e;
    std::frexp(exact, &e);
    int unit = e - 1 - F::fraction;
    if (exact == 0 || unit < F::lsb) unit = F::lsb;
    return std::fabs(found - exact) / std::ldexp(1.0, unit);
}

// Classes of differences for floating-point results; the names are in floats.py, in this order.
enum Class {
    OTHER, NAN_PAYLOAD, ZERO_SIGN, SUBNORMAL_INPUT, SUBNORMAL_RESULT, OVERFLOW_RESULT, SPECIAL_OPERAND, ONE_ULP
};
// `special`: an operand is NaN or infinite. `flushed`: what is right if subnormal operands are read as zero.
template <class F> static inline int fp_class(u64 want, u64 got, bool special, u64 flushed, bool subnormal) {
    if (F::nan && F::is_nan(want) && F::is_nan(got)) return NAN_PAYLOAD;
    if (F::is_zero(want) && F::is_zero(got)) return ZERO_SIGN;
    if (subnormal && got == flushed) return SUBNORMAL_INPUT;
    if (special) return SPECIAL_OPERAND;
    if (subnormal && (got == flushed || got == F::flush(flushed) || (F::is_zero(got) && F::is_zero(F::flush(flushed)))))
        return SUBNORMAL_INPUT;
    if ((F::is_subnormal(want) || (want & (F::sign - 1)) == (1ull << F::fraction)) && F::is_zero(got))
        return SUBNORMAL_RESULT;
    if ((want & (F::sign - 1)) >= F::max && (got & (F::sign - 1)) >= F::max && (want & F::sign) == (got & F::sign))
        return OVERFLOW_RESULT;
    if (want - got == 1 || got - want == 1) return ONE_ULP;
    return OTHER;
}

// One block dot: 32 products summed exactly, scaled by two E8M0 scales, added to an FP32 accumulator, rounded once.
struct Block {
    int plus = 0, minus = 0, invalid = 0;
    __int128 sum = 0;
    template <class F> void add(u64 va, u64 vb) {
        const Number a = F::decode(va), b = F::decode(vb);
        const bool s = a.s != b.s;
        if (a.kind == NOT_A_NUMBER || b.kind == NOT_A_NUMBER) invalid = 1;
        else if (a.kind == INFINITE || b.kind == INFINITE) {
            if (F::is_zero(va) || F::is_zero(vb)) invalid = 1;
            else (s ? minus : plus) = 1;
        } else {
            const __int128 product = (__int128)(a.m * b.m) << (a.e + b.e - 2 * F::lsb);
            sum += s ? -product : product;
        }
    }
    u64 accumulate(u64 scale_a, u64 scale_b, int lsb, u64 accumulator) const {
        const Number c = FP32::decode(accumulator);
        if (invalid || (plus && minus) || scale_a == 255 || scale_b == 255 || c.kind == NOT_A_NUMBER) return FP32::nan;
        if (plus || minus) return c.kind == INFINITE && c.s != (minus != 0) ? FP32::nan : (minus ? FP32::sign : 0) | FP32::inf;
        if (c.kind == INFINITE) return accumulator;
        const bool s = sum < 0;
        return sum_wide<FP32>(s, s ? -(u128)sum : (u128)sum, (int)(scale_a + scale_b) - 254 + lsb, c.s, c.m, c.e, false);
    }
};
