// Runs a cocotb simulation inside the process of the Python executable.
//
// cocotb wants Python as a shared library, and Debian's python3 comes without one: its C API is in the executable.
// So the model is a shared library that is preloaded into that executable and takes the place of its main function.
// Python itself is then initialised by cocotb, as in any other simulator.
#include <dlfcn.h>
#include <stdlib.h>

#define main simulation_main
#include "verilator.cpp"
#undef main

extern "C" __attribute__((visibility("default"))) int __libc_start_main(int (*)(int, char**, char**), int argc,
                                                                        char** argv, void (*init)(), void (*fini)(),
                                                                        void (*rtld_fini)(), void* stack_end) {
    using Main = int (*)(int, char**, char**);
    using Start = int (*)(Main, int, char**, void (*)(), void (*)(), void (*)(), void*);
    const Main instead = [](int count, char** values, char**) {
        unsetenv("LD_PRELOAD");  // programs that a testbench starts are to run as themselves
        return simulation_main(count, values);
    };
    const Start start = reinterpret_cast<Start>(dlsym(RTLD_NEXT, "__libc_start_main"));
    return start(instead, argc, argv, init, fini, rtld_fini, stack_end);
}
