// Bit-parallel comparison of one circuit with one specification. Included by generated code (engine.py) that defines:
//   V, LANES, slots, want, got, N_SLOTS, SLOT_WIDTH, SLOT_OFFSET, N_OUT, OUT_WIDTH, IN_BITS, OUT_BITS, BOUNDED, CORNERS
//   dut(const V *in, V *out); expected(...); error_of(...); class_of(...)
// Lane p of a batch is bit p / GROUPS of 32-bit element p % GROUPS of a vector.
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

static V in_bits[IN_BITS], out_bits[OUT_BITS], word[32];

static inline u64 ones(int width) { return width == 64 ? ~0ull : (1ull << width) - 1; }

// 32x32 bit transposition of every group at once; its own inverse.
static inline void transpose(V *v) {
    u32 mask = 0x0000FFFF;
    for (int step = 16; step; step >>= 1, mask ^= mask << step)
        for (int k = 0; k < 32; k = (k + step + 1) & ~step) {
            const V t = ((v[k] >> step) ^ v[k + step]) & mask;
            v[k] ^= t << step;
            v[k + step] ^= t;
        }
}
static void to_bits(const u64 *lanes, int width, V *bits) {
    for (int part = 0; part < width; part += 32) {
        u32 *flat = (u32 *)word;
        for (int p = 0; p < LANES; p++) flat[p] = (u32)(lanes[p] >> part);
        transpose(word);
        memcpy(bits + part, word, sizeof(V) * (width - part < 32 ? width - part : 32));
    }
}
static void to_lanes(const V *bits, int width, u64 *lanes) {
    memset(lanes, 0, sizeof(u64) * LANES);
    for (int part = 0; part < width; part += 32) {
        const int count = width - part < 32 ? width - part : 32;
        memset(word, 0, sizeof word);
        memcpy(word, bits + part, sizeof(V) * count);
        transpose(word);
        const u32 *flat = (const u32 *)word;
        for (int p = 0; p < LANES; p++) lanes[p] |= (u64)flat[p] << part;
    }
}

struct Difference { u64 count = 0; u64 in[N_SLOTS]; u64 want[N_OUT]; u64 got[N_OUT]; };
static Difference differences[64];
static u64 checked, wrong;
static double worst, total_error;
static std::vector<u64> samples;

static void note(int p) {
    u64 in[N_SLOTS], w[N_OUT], g[N_OUT];
    for (int s = 0; s < N_SLOTS; s++) in[s] = slots[s][p];
    for (int o = 0; o < N_OUT; o++) w[o] = want[o][p], g[o] = got[o][p];
    Difference &d = differences[w[0] != g[0] ? class_of(in, w[0], g[0]) : 0];
    if (!d.count++) memcpy(d.in, in, sizeof in), memcpy(d.want, w, sizeof w), memcpy(d.got, g, sizeof g);
    wrong++;
}
static void judge(int count) { // slots, want and got are filled in
    if (BOUNDED) {
        for (int p = 0; p < count; p++) {
            const double error = error_of(p);
            if (error > worst) worst = error;
            total_error += error;
            if (!(error <= BOUND)) note(p);
        }
        return;
    }
    for (int p = 0; p < count; p++)
        for (int o = 0; o < N_OUT; o++)
            if (want[o][p] != got[o][p]) {
                note(p);
                break;
            }
}
static void fetch() {
    for (int o = 0, at = 0; o < N_OUT; at += OUT_WIDTH[o++]) to_lanes(out_bits + at, OUT_WIDTH[o], got[o]);
}
static void sample(int p) {
    for (int s = 0; s < N_SLOTS; s++) samples.push_back(slots[s][p]);
    for (int o = 0; o < N_OUT; o++) samples.push_back(want[o][p]);
}
static void batch() { // slots and in_bits are filled in
    expected();
    dut(in_bits, out_bits);
    checked += LANES;
    if (BOUNDED) {
        fetch();
        judge(LANES);
        return;
    }
    V different = {};
    V bits[64];
    for (int o = 0, at = 0; o < N_OUT; at += OUT_WIDTH[o++]) {
        to_bits(want[o], OUT_WIDTH[o], bits);
        for (int k = 0; k < OUT_WIDTH[o]; k++) different |= bits[k] ^ out_bits[at + k];
    }
    static const V none = {};
    if (!memcmp(&different, &none, sizeof none)) return;
    fetch();
    judge(LANES);
}

// Slots from a counter: the last slot takes the lowest bits.
static void exhaustive(u64 start, u64 count) {
    const int low = __builtin_ctz(LANES / 32);
    V base[64];
    for (int k = 0; k < 64; k++)
        for (int g = 0; g < LANES / 32; g++) {
            u32 w = 0;
            for (int r = 0; r < 32; r++) w |= (u32)((u64)(r * (LANES / 32) + g) >> k & 1) << r;
            ((u32 *)&base[k])[g] = w;
        }
    const int lane_bits = low + 5;
    u64 batches = 0;
    for (u64 at = start; at < start + count; at += LANES, batches++) {
        for (int s = 0; s < N_SLOTS; s++) {
            const int off = SLOT_OFFSET[s], width = SLOT_WIDTH[s];
            const u64 m = ones(width);
            for (int p = 0; p < LANES; p++) slots[s][p] = ((at + p) >> off) & m;
            for (int k = 0; k < width; k++) {
                const int bit = off + k;
                in_bits[SLOT_BIT[s] + k] = bit < lane_bits ? base[bit] : (V){} - (u32)((at >> bit) & 1);
            }
        }
        batch();
        if (!(batches & (batches - 1)) || batches % 65537 == 0) sample((int)((batches * 37) % LANES));
    }
}

static u64 state;
static inline u64 random64() { // SplitMix64
    u64 z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
// Uniform; one in four near a power of two, an end of the range, or a run of equal bits.
static inline u64 operand(int width) {
    const u64 r = random64(), value = random64();
    if ((r & 3) != 0) return value & ones(width);
    const int bit = (int)((r >> 8) % width);
    u64 v;
    switch (r >> 2 & 7) {
    case 0: v = (1ull << bit) + (r >> 32 & 3) - 1; break;
    case 1: v = ~(1ull << bit); break;
    case 2: v = r >> 20 & 3; break;
    case 3: v = ~(r >> 20 & 3); break;
    case 4: v = ones(width) >> 1; v += r >> 20 & 1; break;
    case 5: v = value << bit; break;
    case 6: v = value | ones(bit); break;
    default: v = (i64)(value << (63 - bit)) >> (63 - bit); break;
    }
    return v & ones(width);
}
static void random_batches(u64 seed, u64 batches) {
    state = seed * 0xD1342543DE82EF95ull + 1;
    for (u64 i = 0; i < batches; i++) {
        for (int s = 0; s < N_SLOTS; s++) {
            for (int p = 0; p < LANES; p++) slots[s][p] = operand(SLOT_WIDTH[s]);
            V bits[64];
            to_bits(slots[s], SLOT_WIDTH[s], bits);
            memcpy(in_bits + SLOT_BIT[s], bits, sizeof(V) * SLOT_WIDTH[s]);
        }
        batch();
        if (i < 64 || !(i & (i - 1))) sample((int)(i * 37 % LANES));
    }
}
// Operands and results that a simulator gave: rows of N_SLOTS + N_OUT values.
static int from_file(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) return 1;
    u64 row[N_SLOTS + N_OUT];
    int count = 0;
    for (bool more = true; more;) {
        more = fread(row, sizeof row, 1, file) == 1;
        if (more) {
            for (int s = 0; s < N_SLOTS; s++) slots[s][count] = row[s];
            for (int o = 0; o < N_OUT; o++) got[o][count] = row[N_SLOTS + o];
            count++;
        }
        if (count == LANES || (!more && count)) {
            expected();
            judge(count);
            if (checked < (u64)LANES * 8) for (int p = 0; p < count; p += 7) sample(p);
            checked += count;
            count = 0;
        }
    }
    fclose(file);
    return 0;
}

static void list(const char *name, const u64 *values, int count) {
    printf("\"%s\": [", name);
    for (int i = 0; i < count; i++) printf("%s\"%" PRIx64 "\"", i ? ", " : "", values[i]);
    printf("]");
}
int main(int argc, char **argv) {
    if (argc == 4 && !strcmp(argv[1], "exhaustive")) exhaustive(strtoull(argv[2], 0, 0), strtoull(argv[3], 0, 0));
    else if (argc == 4 && !strcmp(argv[1], "random")) random_batches(strtoull(argv[2], 0, 0), strtoull(argv[3], 0, 0));
    else if (argc == 3 && !strcmp(argv[1], "file")) { if (from_file(argv[2])) return 2; }
    else return 2;
    printf("{\"checked\": %" PRIu64 ", \"wrong\": %" PRIu64 ", \"worst\": %.9g, \"mean\": %.9g, \"lanes\": %d, \"classes\": {",
           checked, wrong, worst > 1e300 ? 1e300 : worst, checked && worst < 1e300 ? total_error / checked : 0.0, LANES);
    bool first = true;
    for (int c = 0; c < 64; c++) {
        const Difference &d = differences[c];
        if (!d.count) continue;
        printf("%s\"%d\": {\"count\": %" PRIu64 ", ", first ? "" : ", ", c, d.count);
        list("inputs", d.in, N_SLOTS);
        printf(", ");
        list("want", d.want, N_OUT);
        printf(", ");
        list("got", d.got, N_OUT);
        printf("}");
        first = false;
    }
    printf("}, ");
    list("samples", samples.data(), (int)samples.size());
    printf("}\n");
    return 0;
}
