// Steps whose leaves depend on other nodes, backwards: see _engine/node_slopes.py. Included once for each instruction set.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// to (2, B) += slopes (2) times bar (B).
template <int B, class Real>
LT_INLINE void add_own(const double* slopes, const Real* bar, Real* to) {
    for (int e = 0; e < 2; ++e) add_scaled<B>(to + e * B, static_cast<Real>(slopes[e]), bar);
}

// Queries often are about few leaves. Nodes that they do not reach are left out: reached has a 1 for the others, and
// last the nearest split at or above each split that was, or -1.
template <int B, class Real>
void node_adjoint(NodeStep step, const Real* fbar, Real* out, Real* bar, Real* sums, std::int32_t* reached,
                  std::int32_t* last) {
    for (Index l = 0; l < step.M; ++l) {
        const Index node = step.value[l];
        bool any = false;
        for (int b = 0; b < B; ++b) any |= fbar[l * B + b] != 0;
        if (node < 0 || !any) continue;
        add<B>(bar + node * B, fbar + l * B, 1);
        reached[node] = 1;
    }
    for (Index d = 0; d < step.D; ++d) {
        if (!reached[step.nodes[d]]) continue;
        for (int side = 0; side < 2; ++side) {
            const Index to = step.pair[2 * d + side];
            add_scaled<B>(bar + to * B, static_cast<Real>(step.half[d]), bar + step.nodes[d] * B);
            reached[to] = 1;
        }
    }
    for (Index k = 0; k < step.S; ++k) {
        const Index node = step.splits[k], above = step.split_above[k] < 0 ? -1 : last[step.split_above[k]];
        last[k] = static_cast<std::int32_t>(reached[node] ? k : above);
        if (!reached[node]) continue;
        if (above >= 0) add<B>(sums + 2 * k * B, sums + 2 * above * B, 2);
        add_own<B>(step.slopes + 2 * node, bar + node * B, sums + 2 * k * B);
    }
    for (Index l = 0; l < step.M; ++l) {
        const Index node = step.leaf[l], above = step.leaf_above[l] < 0 ? -1 : last[step.leaf_above[l]];
        if (above >= 0) add<B>(out + 2 * l * B, sums + 2 * above * B, 2);
        if (reached[node]) add_own<B>(step.slopes + 2 * node, bar + node * B, out + 2 * l * B);
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
