// The bindings, by what they are for, and the choice of the instruction set that they call.
#pragma once
#include <nanobind/nanobind.h>

#include <string>

#include "kernels.hpp"

namespace leaftrace {

extern std::string current_isa;  // in module.cpp

template <class Leaf, class Real>
const Kernels<Leaf, Real>& kernels() {
#ifdef LEAFTRACE_X86
    if (current_isa == "avx512") return avx512::kernels<Leaf, Real>();
    if (current_isa == "avx2") return avx2::kernels<Leaf, Real>();
#endif
    return baseline::kernels<Leaf, Real>();
}

// Call body(leaf, real) with null pointers of each type of ids and of numbers that kernels are compiled for.
template <class Body>
void for_each_type(const Body& body) {
    const auto with_leaf = [&](auto* leaf) {
        body(leaf, static_cast<float*>(nullptr));
        body(leaf, static_cast<double*>(nullptr));
    };
    with_leaf(static_cast<std::uint8_t*>(nullptr));
    with_leaf(static_cast<std::uint16_t*>(nullptr));
    with_leaf(static_cast<std::uint32_t*>(nullptr));
}

void bind_replay(nanobind::module_& m);
void bind_influence(nanobind::module_& m);
void bind_refit(nanobind::module_& m);
void bind_choice(nanobind::module_& m);
void bind_routes(nanobind::module_& m);
void bind_classes(nanobind::module_& m);

}  // namespace leaftrace
