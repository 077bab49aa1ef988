// The Python module: its bindings, and the best instruction set of this machine.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "bindings.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace leaftrace {
namespace {

const char* best_isa() {
#ifdef LEAFTRACE_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}

void set_isa(const std::string& isa) {
    const std::string best = best_isa();
    const auto rank = [](const std::string& s) { return s == "baseline" ? 0 : s == "avx2" ? 1 : s == "avx512" ? 2 : 3; };
    if (rank(isa) > rank(best)) throw std::invalid_argument("this machine has no instruction set '" + isa + "'");
    current_isa = isa;
}

}  // namespace

std::string current_isa = best_isa();

}  // namespace leaftrace

NB_MODULE(_native, m) {
    m.attr("__doc__") = "Native kernels; leaftrace._model.kernels.numpy says what each one computes.";
    m.def("isa", [] { return leaftrace::current_isa; });
    m.def("set_isa", &leaftrace::set_isa, "isa"_a);
    leaftrace::bind_replay(m);
    leaftrace::bind_influence(m);
    leaftrace::bind_refit(m);
    leaftrace::bind_choice(m);
    leaftrace::bind_routes(m);
    leaftrace::bind_ranks(m);
    leaftrace::bind_nodes(m);
    leaftrace::bind_classes(m);
}
