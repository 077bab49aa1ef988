// Steps whose leaves depend on other nodes, backwards: see _engine/node_slopes.py. Included once for each instruction set.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// to (2, B) = slopes (2) times bar (B), and what reaches the split above, if there is one.
template <int B, class Real>
LT_INLINE void node_sums(const double* slopes, const Real* LT_RESTRICT bar, const Real* above, Real* LT_RESTRICT to) {
    for (int e = 0; e < 2; ++e) {
        const Real slope = static_cast<Real>(slopes[e]);
        auto sum = units<B>(to + e * B);
        auto from = units<B>(bar);
        LT_UNITS(B) sum[i_] = slope * from[i_];
        if (above) add<B>(to + e * B, above + e * B, 1);
    }
}

template <int B, class Real>
void node_adjoint(NodeStep step, const Real* fbar, Real* out, Real* bar, Real* sums) {
    for (Index l = 0; l < step.M; ++l)
        if (step.value[l] >= 0) add<B>(bar + step.value[l] * B, fbar + l * B, 1);
    for (Index d = 0; d < step.D; ++d)
        for (int side = 0; side < 2; ++side)
            add_scaled<B>(bar + step.pair[2 * d + side] * B, static_cast<Real>(step.half[d]), bar + step.nodes[d] * B);
    const auto reached = [&](Index above) { return above < 0 ? nullptr : sums + 2 * above * B; };
    for (Index k = 0; k < step.S; ++k) {
        const Index node = step.splits[k];
        node_sums<B>(step.slopes + 2 * node, bar + node * B, reached(step.split_above[k]), sums + 2 * k * B);
    }
    for (Index l = 0; l < step.M; ++l) {
        const Index node = step.leaf[l];
        node_sums<B>(step.slopes + 2 * node, bar + node * B, reached(step.leaf_above[l]), out + 2 * l * B);
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
