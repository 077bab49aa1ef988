// The bindings, by what they are for, and the choice of the instruction set that they call.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "kernels.hpp"

namespace leaftrace {

extern std::string current_isa;  // in module.cpp

template <class Real>
const Kernels<Real>& kernels() {
#ifdef LEAFTRACE_X86
    if (current_isa == "avx512") return avx512::kernels<Real>();
    if (current_isa == "avx2") return avx2::kernels<Real>();
#endif
    return baseline::kernels<Real>();
}

// Call body(real) with null pointers of each type of numbers that kernels are compiled for.
template <class Body>
void for_each_type(const Body& body) {
    body(static_cast<float*>(nullptr));
    body(static_cast<double*>(nullptr));
}

void bind_replay(nanobind::module_& m);
void bind_influence(nanobind::module_& m);
void bind_refit(nanobind::module_& m);
void bind_choice(nanobind::module_& m);
void bind_routes(nanobind::module_& m);
void bind_classes(nanobind::module_& m);
void bind_ranks(nanobind::module_& m);
void bind_nodes(nanobind::module_& m);

}  // namespace leaftrace
