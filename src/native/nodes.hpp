// Steps whose leaves depend on other nodes, backwards: see _engine/node_slopes.py. Included once for each instruction set.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Whether any of B numbers is not zero.
template <int B, class Real>
LT_INLINE bool any_of(const Real* row) {
    bool any = false;
    for (int b = 0; b < B; ++b) any |= row[b] != 0;
    return any;
}

// bar (B) of a node, which holds nothing before its first number: += scale times from.
template <int B, class Real>
LT_INLINE void receive(Real* LT_RESTRICT bar, unsigned char& live, Real scale, const Real* LT_RESTRICT from) {
    if (live) {
        add_scaled<B>(bar, scale, from);
        return;
    }
    live = 1;
    auto to = units<B>(bar);
    auto row = units<B>(from);
    LT_UNITS(B) to[i_] = scale * row[i_];
}

// to (2, B) = slopes (2) times bar (B), and what reaches the split above; null where there is nothing.
template <int B, class Real>
LT_INLINE void node_sums(const double* slopes, const Real* LT_RESTRICT bar, const Real* above, Real* LT_RESTRICT to) {
    for (int e = 0; e < 2; ++e) {
        auto sum = units<B>(to + e * B);
        if (bar) {
            const Real slope = static_cast<Real>(slopes[e]);
            auto from = units<B>(bar);
            LT_UNITS(B) sum[i_] = slope * from[i_];
            if (above) add<B>(to + e * B, above + e * B, 1);
        } else {
            for (int b = 0; b < B; ++b) to[e * B + b] = above ? above[e * B + b] : Real(0);
        }
    }
}

// Few of the leaves of a deep tree are asked about at a time: what holds nothing is passed over.
template <int B, class Real>
void node_adjoint(NodeStep step, const Real* fbar, Real* out, Real* bar, Real* sums, unsigned char* live,
                  unsigned char* reached) {
    for (Index l = 0; l < step.M; ++l) {
        const Index node = step.value[l];
        if (node >= 0 && any_of<B>(fbar + l * B)) receive<B>(bar + node * B, live[node], Real(1), fbar + l * B);
    }
    for (Index d = 0; d < step.D; ++d) {
        const Index node = step.nodes[d];
        if (!live[node]) continue;
        const Real half = static_cast<Real>(step.half[d]);
        for (int side = 0; side < 2; ++side) {
            const Index other = step.pair[2 * d + side];
            receive<B>(bar + other * B, live[other], half, bar + node * B);
        }
    }
    const auto own = [&](Index node) { return live[node] ? bar + node * B : nullptr; };
    const auto above = [&](Index split) { return split >= 0 && reached[split] ? sums + 2 * split * B : nullptr; };
    for (Index k = 0; k < step.S; ++k) {
        const Index node = step.splits[k];
        const Real* from = above(step.split_above[k]);
        reached[k] = live[node] || from;
        if (reached[k]) node_sums<B>(step.slopes + 2 * node, own(node), from, sums + 2 * k * B);
    }
    for (Index l = 0; l < step.M; ++l) {
        const Index node = step.leaf[l];
        node_sums<B>(step.slopes + 2 * node, own(node), above(step.leaf_above[l]), out + 2 * l * B);
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
