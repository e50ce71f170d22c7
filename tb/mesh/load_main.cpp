// Wires side x side verilated nodes (see load.py) into a mesh, runs one load point, prints the sums as JSON.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "Vtop.h"

double sc_time_stamp() { return 0; }

int main(int argc, char** argv) {
    if (argc != 9 && argc != 10) {
        std::fprintf(stderr, "usage: load side pattern rate length seed warm cycles drain [flits gathered]\n");
        return 2;
    }
    const int side = std::atoi(argv[1]), nodes = side * side;
    const int gathered = argc > 9 ? std::atoi(argv[9]) : 0;  // by an all-gather on class 1, after `warm` cycles
    const long warm = std::atol(argv[6]), cycles = std::atol(argv[7]), drain = std::atol(argv[8]);
    std::vector<std::unique_ptr<VerilatedContext>> contexts;
    std::vector<std::unique_ptr<Vtop>> mesh;
    for (int n = 0; n < nodes; ++n) {
        contexts.push_back(std::make_unique<VerilatedContext>());
        mesh.push_back(std::make_unique<Vtop>(contexts.back().get()));
        Vtop& node = *mesh.back();
        node.columns = node.rows = side;
        node.x = n % side;
        node.y = n / side;
        const int pattern = std::atoi(argv[2]), length = std::atoi(argv[4]);
        node.pattern = pattern > 5 ? 5 : pattern;
        node.rate = std::atoi(argv[3]);
        node.length = pattern == 5 ? (n ? 0 : length)                                // multicast from node 0
                      : pattern == 6 ? length / nodes + (n < length % nodes) : length;  // all-gather
        node.seed = std::atoi(argv[5]);
        node.share = gathered / nodes + (n < gathered % nodes);
    }
    // Side `out` of node `a` meets side `in` of node `b`; flits one way, credits back. Verilator writes __ as ___05F.
#define PORT(node, port, side, name) (node).port##___05F##side##___05F##name
#define JOIN(a, out, b, in)                              \
    PORT(b, i, in, valid) = PORT(a, o, out, valid);      \
    PORT(b, i, in, channel) = PORT(a, o, out, channel);  \
    PORT(b, i, in, flit) = PORT(a, o, out, flit);        \
    PORT(a, o, out, credit) = PORT(b, i, in, credit);
    for (long t = -4; t < warm + cycles + drain; ++t) {
        for (int n = 0; n < nodes; ++n) {
            Vtop& node = *mesh[n];
            node.rst = t < 0;
            node.hold = t < warm;
            node.measure = t >= warm && t < warm + cycles;
            if (n % side + 1 < side) {
                Vtop& east = *mesh[n + 1];
                JOIN(node, 0, east, 1)
                JOIN(east, 1, node, 0)
            }
            if (n / side + 1 < side) {
                Vtop& north = *mesh[n + side];
                JOIN(node, 2, north, 3)
                JOIN(north, 3, node, 2)
            }
        }
        for (auto& node : mesh) {
            node->clk = 0;
            node->eval();
            node->clk = 1;
            node->eval();
        }
    }
    uint64_t flits = 0, born = 0, packets = 0, latency = 0, errors = 0, finished = 0;
    uint64_t gather_flits = 0, gather_finished = 0, gather_errors = 0;
    for (auto& node : mesh) {
        flits += node->flits;
        born += node->born;
        packets += node->packets;
        latency += node->latency;
        errors += node->errors;
        if (node->finished > finished) finished = node->finished;
        gather_flits += node->gather_flits;
        gather_errors += node->gather_errors;
        if (node->gather_finished > gather_finished) gather_finished = node->gather_finished;
    }
    std::printf("{\"flits\": %lu, \"born\": %lu, \"packets\": %lu, \"latency\": %lu, \"errors\": %lu, \"finished\": %lu, ",
                flits, born, packets, latency, errors, finished);
    std::printf("\"gather_flits\": %lu, \"gather_finished\": %lu, \"gather_errors\": %lu}\n", gather_flits,
                gather_finished, gather_errors);
}
