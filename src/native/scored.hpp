// The backward pass of one column over a step of one output and one tree, from the scores of rows: their effects are
// computed tile by tile and used at once. With more columns this is no faster than to store them.
#pragma once
#include "trees.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Numbers of `count` rows from row j0 on in float64, if necessary in `room`, which has ones before.
LT_CALLED const double* numbers(Column from, Index j0, Index count, double* LT_RESTRICT room) {
    if (from.wide) return from.wide + j0;
    if (from.narrow)
        for (Index i = 0; i < count; ++i) room[i] = from.narrow[j0 + i];
    return room;
}

template <class Real>
void backward_scored(LossKind kind, bool newton, Scored<Real> d, Real* LT_RESTRICT copies) {
    with_loss(kind, [&](auto* tag) {
        TileEffects<std::remove_pointer_t<decltype(tag)>, Real> effects{newton};
        constexpr Index tile = effects.tile;
        std::uint32_t leaf[tile];
        Real v[tile], u[tile];
        double labels[tile], weights[tile];
        for (Index i = 0; i < tile; ++i) labels[i] = weights[i] = 1;
        for (Index j0 = d.begin; j0 < d.end; j0 += tile) {
            const Index count = d.end - j0 < tile ? d.end - j0 : tile;
            double* LT_RESTRICT score = d.A + j0;
            Real* LT_RESTRICT a = d.abar + j0;
            copy_ids(d.leaf, j0, count, leaf);
            for (Index i = 0; i < count; ++i) score[i] -= d.values[leaf[i]];
            const double *y = numbers(d.y, j0, count, labels), *w = numbers(d.w, j0, count, weights);
            effects.compute({d.Q, d.M, d.shift, d.s, d.N}, leaf, score, y, w, count, v, u);
            for (Index i = 0; i < count; ++i) {
                a[i] += u[i] * d.fbar[leaf[i]];
                v[i] *= d.fbar[leaf[i]];
            }
            if (d.out) {
                Real* LT_RESTRICT to = d.out + j0;
                for (Index i = 0; i < count; ++i) to[i] += v[i];
            }
            if (!d.below) continue;
            copy_ids(d.next_leaf, j0, count, leaf);
            for (Index i = 0; i < count; ++i)  // four copies of the table of sums in turn, as in leaf_sums
                copies[(i & 3) * d.M_below + static_cast<Index>(leaf[i])] += a[i];
        }
    });
    for (Index l = 0; d.below && l < d.M_below; ++l)
        d.below[l] += (copies[l] + copies[d.M_below + l]) + (copies[2 * d.M_below + l] + copies[3 * d.M_below + l]);
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
