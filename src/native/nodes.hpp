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

// Queries often are about few leaves. Nodes that they do not reach have no derivatives, and leaves below the same splits
// that they reach have the same ones: these are kept once, as a row. last: the row of each split, which is that of the
// split above if it is not reached.
template <int B, class Real>
Index node_rows(NodeStep step, const Real* fbar, Index first, Real* rows, std::int32_t* place, Real* bar,
                std::int32_t* number, std::int32_t* last) {
    std::int32_t reached = 0;
    const auto bar_of = [&](Index node) {
        if (!number[node]) {
            for (int b = 0; b < B; ++b) bar[reached * B + b] = 0;
            number[node] = ++reached;
        }
        return bar + (number[node] - 1) * B;
    };
    Index used = first;
    const auto new_row = [&](Index node, std::int32_t above) {
        Real* row = rows + 2 * used * B;
        for (int b = 0; b < 2 * B; ++b) row[b] = rows[2 * above * B + b];
        add_own<B>(step.slopes + 2 * node, bar_of(node), row);
        return static_cast<std::int32_t>(used++);
    };
    for (Index l = 0; l < step.M; ++l) {
        int any = 0;
        for (int b = 0; b < B; ++b) any |= fbar[l * B + b] != 0;
        if (any && step.value[l] >= 0) add<B>(bar_of(step.value[l]), fbar + l * B, 1);
    }
    for (Index d = 0; d < step.D; ++d) {
        if (!number[step.nodes[d]]) continue;
        for (int side = 0; side < 2; ++side) {
            Real* to = bar_of(step.pair[2 * d + side]);
            add_scaled<B>(to, static_cast<Real>(step.half[d]), bar_of(step.nodes[d]));
        }
    }
    for (Index k = 0; k < step.S; ++k) {
        const std::int32_t above = step.split_above[k] < 0 ? 0 : last[step.split_above[k]];
        last[k] = number[step.splits[k]] ? new_row(step.splits[k], above) : above;
    }
    for (Index l = 0; l < step.M; ++l) {
        const std::int32_t above = step.leaf_above[l] < 0 ? 0 : last[step.leaf_above[l]];
        place[l] = number[step.leaf[l]] ? new_row(step.leaf[l], above) : above;
    }
    return used;
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
