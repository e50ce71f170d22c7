// The run: reset, then one row of operands a cycle; outputs are read before the rising edge.
#if TRACE
#include <cxxrtl/cxxrtl_vcd.h>
#include <fstream>
static cxxrtl::vcd_writer writer;
static uint64_t now;
static void show() { writer.sample(now += 5); }
static void open_trace(Model &model) {
    cxxrtl::debug_items items;
    model.debug_info(&items, nullptr, "");
    writer.timescale(1, "ns");
    writer.add(items);
}
static void close_trace() { std::ofstream("trace.vcd") << writer.buffer; }
#else
static void show() {}
static void open_trace(Model &) {}
static void close_trace() {}
#endif

static void edge(Model &model) {
    clock(model, 1);
    settle(model);
    show();
    clock(model, 0);
    settle(model);
}
int main(int argc, char **argv) {
    if (argc != 3) return 2;
#if VERILATED
    VerilatedContext context;
    context.randReset(2);
    context.randSeed(1);
    Model model{&context};
#else
    Model model;
#endif
    FILE *vectors = fopen(argv[1], "rb"), *results = fopen(argv[2], "wb");
    if (!vectors || !results) return 2;
    std::vector<u32> in(IN + 1), out(OUT + 1);
    open_trace(model);
    drive(model, in.data());
    clock(model, 0);
    reset(model, 1);
    settle(model);
    for (int i = 0; CLOCKED && i < RESET_CYCLES; i++) {
        show();
        edge(model);
    }
    reset(model, 0);
    while (fread(in.data(), 4, IN, vectors) == IN) {
        drive(model, in.data());
        settle(model);
        show();
        fetch(model, out.data());
        if (fwrite(out.data(), 4, OUT, results) != OUT) return 3;
        if (CLOCKED) edge(model);
    }
    show();
    close_trace();
    return fclose(results) ? 3 : 0;
}
