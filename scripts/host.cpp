// Runs a cocotb simulation inside the process of the Python executable.
//
// cocotb wants Python as a shared library, and Debian's python3 comes without one: its C API is in the executable.
// So the model is a shared library that is preloaded into that executable and takes the place of its main function.
// Python itself is then initialised by cocotb, as in any other simulator.
//
// To measure what the testbench costs, SERRANO_RECORD=<file> writes down every change of the top's inputs, and
// SERRANO_REPLAY=<file> plays them to the same model in a loop without Python, as fast as it goes.
#include <dlfcn.h>
#include <stdlib.h>

#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>
#include <vector>

#define main simulation_main
#include "verilator.cpp"
#undef main

namespace {

// The top's ports of one direction, in the simulator's order, which is the same in each run of a model.
std::vector<vpiHandle> ports(int direction) {
    std::vector<vpiHandle> found;
    const char* const top = getenv("COCOTB_TOPLEVEL");
    vpiHandle scope = nullptr, modules = vpi_iterate(vpiModule, nullptr);
    while (vpiHandle module = modules ? vpi_scan(modules) : nullptr) {
        if (top && !strcmp(vpi_get_str(vpiName, module), top)) scope = module;
    }
    vpiHandle signals = scope ? vpi_iterate(vpiReg, scope) : nullptr;
    while (vpiHandle signal = signals ? vpi_scan(signals) : nullptr) {
        if (vpi_get(vpiDirection, signal) == direction) found.push_back(signal);
    }
    return found;
}

std::string hexadecimal(vpiHandle signal) {
    s_vpi_value value{vpiHexStrVal, {}};
    vpi_get_value(signal, &value);
    return value.value.str;
}

std::string values_of(const std::vector<vpiHandle>& signals) {
    std::string text;
    for (vpiHandle signal : signals) text += vpi_get_str(vpiName, signal) + ("=" + hexadecimal(signal) + " ");
    return text;
}

// -- Recording ------------------------------------------------------------------------------------------------------

std::ofstream record;
std::vector<vpiHandle> recorded, watched;  // looked up at the start: at the end a model may no longer list them

PLI_INT32 changed(t_cb_data* data) {
    const size_t index = reinterpret_cast<size_t>(data->user_data);
    record << index << ' ' << hexadecimal(recorded[index]) << '\n';
    return 0;
}

PLI_INT32 start_record(t_cb_data*) {
    recorded = ports(vpiInput);
    watched = ports(vpiOutput);
    for (size_t index = 0; index < recorded.size(); index++) {
        t_cb_data data{};
        data.reason = cbValueChange;
        data.cb_rtn = changed;
        data.obj = recorded[index];
        data.user_data = reinterpret_cast<PLI_BYTE8*>(index);
        vpi_register_cb(&data);
    }
    return 0;
}

PLI_INT32 end_record(t_cb_data*) {
    record << "outputs " << values_of(watched) << '\n';
    record.close();
    return 0;
}

void on(int reason, PLI_INT32 (*routine)(t_cb_data*)) {
    t_cb_data data{};
    data.reason = reason;
    data.cb_rtn = routine;
    vpi_register_cb(&data);
}

// -- Replaying ------------------------------------------------------------------------------------------------------

struct Change {
    vpiHandle signal;
    bool clock;
    std::vector<s_vpi_vecval> words;
};

Change parse(vpiHandle signal, const std::string& digits) {
    const bool clock = !strcmp(vpi_get_str(vpiName, signal), "clk");
    Change change{signal, clock, std::vector<s_vpi_vecval>((digits.size() + 7) / 8)};
    for (size_t word = 0; word < change.words.size(); word++) {
        const size_t end = digits.size() - 8 * word, begin = end > 8 ? end - 8 : 0;
        change.words[word] = {static_cast<PLI_INT32>(std::stoul(digits.substr(begin, end - begin), nullptr, 16)), 0};
    }
    return change;
}

int replay(int count, char** values, const char* path) {
    Verilated::commandArgs(count, values);
    Vtop top{""};
    const std::vector<vpiHandle> inputs = ports(vpiInput), results = ports(vpiOutput);
    std::vector<Change> changes;
    std::ifstream file{path};
    std::string first, second, expected, line;
    while (std::getline(file, line)) {
        std::istringstream{line} >> first >> second;
        if (first == "outputs") { expected = line.substr(8); break; }
        changes.push_back(parse(inputs.at(std::stoul(first)), second));
    }
    long edges = 0;
    bool edge = false;  // the clock changed and the model has not been evaluated since
    top.eval();
    const auto begin = std::chrono::steady_clock::now();
    for (const Change& change : changes) {
        if (edge) top.eval();
        s_vpi_value value{vpiVectorVal, {}};
        value.value.vector = const_cast<s_vpi_vecval*>(change.words.data());
        vpi_put_value(change.signal, &value, nullptr, vpiNoDelay);
        edge = change.clock;
        edges += edge && change.words[0].aval & 1;
    }
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    // A test that ends at an edge leaves it unevaluated.
    bool same = values_of(results) == expected;
    if (edge) top.eval();
    same = same || values_of(results) == expected;
    printf("{\"cycles\": %ld, \"seconds\": %.6f, \"same\": %s}\n", edges, seconds.count(), same ? "true" : "false");
    return 0;
}

int run(int count, char** values) {
    unsetenv("LD_PRELOAD");  // programs that a testbench starts are to run as themselves
    if (const char* path = getenv("SERRANO_REPLAY")) return replay(count, values, path);
    if (const char* path = getenv("SERRANO_RECORD")) {
        record.open(path);
        on(cbStartOfSimulation, start_record);
        on(cbEndOfSimulation, end_record);
    }
    return simulation_main(count, values);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int __libc_start_main(int (*)(int, char**, char**), int argc,
                                                                        char** argv, void (*init)(), void (*fini)(),
                                                                        void (*rtld_fini)(), void* stack_end) {
    using Main = int (*)(int, char**, char**);
    using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
    const Main instead = [](int count, char** values, char**) { return run(count, values); };
    const Start start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
    return start(instead, argc, argv, init, fini, rtld_fini, stack_end);
}
