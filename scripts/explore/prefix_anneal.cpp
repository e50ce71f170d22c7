// Simulated annealing over parallel prefix graphs of bounded depth: as few nodes as possible.
// A graph is a set of spans (i..j), one bit mask a row i. Each span is joined from the next higher one present in its row
// and a span (k-1..j) of a lower row, which `legalise` adds. The state is the set of spans that no other span needs;
// everything else follows, so removing one removes what was there for its sake.
// Usage: prefix_anneal WIDTH DEPTH SEED TEMPERATURE STEPS TARGET   prints "size j..." rows of the best graph.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
typedef unsigned __int128 Row;
typedef uint64_t u64;
enum { MAX = 128 };

static int width, limit;
static u64 state;
static u64 random64() { // SplitMix64
    u64 z = (state += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
static inline Row bit(int j) { return (Row)1 << j; }
static inline int top(Row m) { return (u64)(m >> 64) ? 127 - __builtin_clzll((u64)(m >> 64)) : 63 - __builtin_clzll((u64)m); }
static inline int count(Row m) { return __builtin_popcountll((u64)m) + __builtin_popcountll((u64)(m >> 64)); }

struct Graph { Row row[MAX]; };
static Row needed[MAX];

static int legalise(Graph &g) { // returns the number of nodes
    int size = 0;
    memset(needed, 0, sizeof(Row) * width);
    for (int i = width - 1; i > 0; i--) {
        Row m = (g.row[i] | 1) & ~bit(i);
        g.row[i] = m;
        for (int upper = i; m;) {
            const int j = top(m);
            m &= ~bit(j);
            if (j < upper - 1) g.row[upper - 1] |= bit(j);
            needed[upper - 1] |= bit(j);
            upper = j;
            size++;
        }
    }
    return size;
}
static bool shallow(const Graph &g) {
    static unsigned char level[MAX][MAX];
    for (int i = 0; i < width; i++) {
        level[i][i] = 0;
        Row m = g.row[i];
        for (int upper = i, own = 0; m;) {
            const int j = top(m);
            m &= ~bit(j);
            const int lower = level[upper - 1][j];
            own = (own > lower ? own : lower) + 1;
            if (own > limit) return false;
            level[i][j] = own;
            upper = j;
        }
    }
    return true;
}
static void free_spans(const Graph &g, Graph &base) {
    for (int i = 0; i < width; i++) base.row[i] = g.row[i] & ~needed[i] & ~(Row)1;
}
static void change(Graph &g) {
    for (int times = 1 + (random64() % 4 == 0) + (random64() % 16 == 0); times; times--) {
        int i, j;
        if (random64() & 1) { // take a span out, at times put another near it
            int tries = 0;
            do i = 2 + random64() % (width - 2);
            while (!g.row[i] && ++tries < 200);
            if (!g.row[i]) continue;
            Row m = g.row[i];
            for (int skip = random64() % count(m); skip; skip--) m &= ~bit(top(m));
            j = top(m);
            g.row[i] &= ~bit(j);
            if (random64() & 1) {
                const int near = j + (random64() & 1 ? 1 : -1) * (int)(1 + random64() % 3);
                if (near > 0 && near < i) g.row[i] |= bit(near);
            }
        } else {
            i = 2 + random64() % (width - 2);
            g.row[i] ^= bit(1 + random64() % (i - 1));
        }
    }
}
int main(int argc, char **argv) {
    if (argc != 7) return 2;
    width = atoi(argv[1]), limit = atoi(argv[2]), state = strtoull(argv[3], 0, 0);
    const double temperature = atof(argv[4]);
    const u64 steps = strtoull(argv[5], 0, 0);
    const int target = atoi(argv[6]);
    if (width < 3 || width > MAX || limit < top(width - 1) + 1) return 2;
    Graph current, base, best;
    memset(&current, 0, sizeof current);
    for (int i = 1; i < width; i++) // Sklansky's graph
        for (int k = 0; bit(k) <= (Row)i; k++)
            if (i >> k & 1) current.row[i] |= bit(i >> k << k);
    int size = legalise(current), least = size;
    best = current;
    free_spans(current, base);
    for (u64 step = 0; step < steps && least > target; step++) {
        Graph next = base;
        change(next);
        const int found = legalise(next);
        if (found > size && std::exp((size - found) / temperature) * 18446744073709551615.0 <= random64()) continue;
        if (!shallow(next)) continue;
        size = found;
        current = next;
        free_spans(current, base);
        if (size < least) least = size, best = current;
    }
    printf("%d\n", least);
    for (int i = 0; i < width; i++) {
        for (int j = 0; j < i; j++) if (best.row[i] & bit(j)) printf("%d ", j);
        printf("\n");
    }
    return 0;
}
