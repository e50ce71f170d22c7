// Moves 32-bit words between the vector file and a model's ports, for Verilator's and CXXRTL's types.
#include <cstdint>
#include <cstdio>
#include <vector>
typedef uint32_t u32;

#if VERILATED
static void put(CData &port, const u32 *w) { port = (CData)*w; }
static void put(SData &port, const u32 *w) { port = (SData)*w; }
static void put(IData &port, const u32 *w) { port = *w; }
static void put(QData &port, const u32 *w) { port = w[0] | (QData)w[1] << 32; }
template <std::size_t N> static void put(VlWide<N> &port, const u32 *w) { for (std::size_t i = 0; i < N; i++) port[i] = w[i]; }
static void get(const CData &port, u32 *w) { *w = port; }
static void get(const SData &port, u32 *w) { *w = port; }
static void get(const IData &port, u32 *w) { *w = port; }
static void get(const QData &port, u32 *w) { w[0] = (u32)port; w[1] = (u32)(port >> 32); }
template <std::size_t N> static void get(const VlWide<N> &port, u32 *w) { for (std::size_t i = 0; i < N; i++) w[i] = port[i]; }
static void settle(Model &model) { model.eval(); }
#else
template <std::size_t N> static void put(cxxrtl::value<N> &port, const u32 *w) { for (std::size_t i = 0; i < port.chunks; i++) port.data[i] = w[i]; }
template <std::size_t N> static void get(const cxxrtl::value<N> &port, u32 *w) { for (std::size_t i = 0; i < port.chunks; i++) w[i] = port.data[i]; }
template <std::size_t N> static void get(const cxxrtl::wire<N> &port, u32 *w) { get(port.curr, w); }
static void settle(Model &model) { model.step(); }
#endif
