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

// V fbar and U fbar of up to `tile` rows in one step, from their scores before it.
template <class L, class Real>
struct TileProducts {
    using Effects = TileEffects<L, Real>;
    static constexpr Index tile = Effects::tile;
    Effects effects;
    LeafTables t;
    const Real* fbar;
    bool moved;  // whether inner iterations move the rows away from their scores
    // In each leaf N fbar and N s fbar, by which g, h and k are multiplied if the rows are not moved.
    double *of_g, *of_h;

    TileProducts(bool newton, LeafTables tables, const Real* f, double* room)
        : effects{newton}, t(tables), fbar(f), moved(Effects::moves(tables)), of_g(room), of_h(room + tables.M) {
        for (Index l = 0; l < t.M; ++l) {
            of_g[l] = t.N[l] * fbar[l];
            of_h[l] = t.N[l] * t.s[l] * fbar[l];
        }
    }

    void compute(const std::uint32_t* leaf, const double* score, const double* y, const double* w, Index count, Real* v,
                 Real* u) {
        if (!moved) return at_scores(leaf, score, y, w, count, v, u);
        effects.at_moved(t, leaf, score, y, w, count, v, u);
        for (Index i = 0; i < count; ++i) {
            v[i] *= fbar[leaf[i]];
            u[i] *= fbar[leaf[i]];
        }
    }

    LT_CALLED void at_scores(const std::uint32_t* LT_RESTRICT leaf, const double* LT_RESTRICT score,
                             const double* LT_RESTRICT y, const double* LT_RESTRICT w, Index count, Real* LT_RESTRICT v,
                             Real* LT_RESTRICT u) {
        const double first = effects.newton ? 0 : 1, second = effects.newton ? 1 : 0;
        const double *LT_RESTRICT a = of_g, *LT_RESTRICT b = of_h;
        double* LT_RESTRICT power = effects.state;
        LT_IVDEP
        for (Index i = 0; i < count; ++i) power[i] = L::template power<Real>(score[i]);
        LT_IVDEP
        for (Index i = 0; i < count; ++i) {
            const L row = L::at_power(power[i], score[i], y[i]);
            const double of_g = a[leaf[i]], of_h = b[leaf[i]];
            v[i] = static_cast<Real>(of_g * row.g + of_h * (first + second * row.h));
            u[i] = static_cast<Real>(w[i] * (of_g * row.h + of_h * (second * row.k)));
        }
    }
};

// Rows begin .. end - 1; `copies` of the table of sums in turn, as in leaf_sums.
template <class L, class Real>
void scored_rows(TileProducts<L, Real>& products, const Scored<Real>& d, Index begin, Index end, Real* LT_RESTRICT copies) {
    constexpr Index tile = products.tile;
    std::uint32_t leaf[tile];
    Real v[tile], u[tile];
    double labels[tile], weights[tile];
    for (Index i = 0; i < tile; ++i) labels[i] = weights[i] = 1;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index count = end - j0 < tile ? end - j0 : tile;
        double* LT_RESTRICT score = d.A + j0;
        Real* LT_RESTRICT a = d.abar + j0;
        copy_ids(d.leaf, j0, count, leaf);
        for (Index i = 0; i < count; ++i) score[i] -= d.values[leaf[i]];
        const double *y = numbers(d.y, j0, count, labels), *w = numbers(d.w, j0, count, weights);
        products.compute(leaf, score, y, w, count, v, u);
        for (Index i = 0; i < count; ++i) a[i] += u[i];
        if (d.out) {
            Real* LT_RESTRICT to = d.out + j0;
            for (Index i = 0; i < count; ++i) to[i] += v[i];
        }
        if (!d.below) continue;
        copy_ids(d.next_leaf, j0, count, leaf);
        for (Index i = 0; i < count; ++i) copies[(i & 3) * d.M_below + static_cast<Index>(leaf[i])] += a[i];
    }
}

template <class Real>
void backward_scored(LossKind kind, bool newton, Scored<Real> d, double* room, Real* LT_RESTRICT copies) {
    with_loss(kind, [&](auto* tag) {
        TileProducts<std::remove_pointer_t<decltype(tag)>, Real> products(newton, {d.Q, d.M, d.shift, d.s, d.N}, d.fbar, room);
        const Index M = d.M_below;
        Real* LT_RESTRICT sums = d.below;  // of the present block
        for (Index begin = d.begin, end; begin < d.end; begin = end) {
            end = d.end - begin < d.block ? d.end : begin + d.block;
            scored_rows(products, d, begin, end, copies);
            if (!sums) continue;
            for (Index l = 0; l < M; ++l)
                sums[l] += (copies[l] + copies[M + l]) + (copies[2 * M + l] + copies[3 * M + l]);
            for (Index l = 0; l < 4 * M; ++l) copies[l] = 0;
            sums += M;
        }
    });
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
