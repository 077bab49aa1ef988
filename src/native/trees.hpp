// Passes of rows through many trees, one tile of rows after another, so that the data of a tile stays in the
// caches for all trees.
#pragma once
#include "lanes.hpp"
#include "losses.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

inline void tree_scores(StepLeaves at, const std::int64_t* offset, Index K, const double* LT_RESTRICT values,
                 double* LT_RESTRICT A) {
    constexpr Index tile = 512;
    for (Index j0 = 0; j0 < at.n; j0 += tile) {
        const Index j1 = at.n - j0 < tile ? at.n : j0 + tile;
        for (Index r = 0; r < at.R; ++r) {
            const double* LT_RESTRICT f = values + offset[r] * at.O;
            with_ids(at.tree(r), [&](const auto* LT_RESTRICT leaf) {
                if (K == 1)
                    for (Index j = j0; j < j1; ++j) A[j] += f[leaf[j]];
                else
                    for (Index j = j0; j < j1; ++j)
                        for (Index o = 0; o < at.O; ++o) A[j * K + at.first[r] + o] += f[leaf[j] * at.O + o];
            });
        }
    }
}

// An addition to the sum of a leaf has to wait for the previous one; the sums of eight trees at once do not wait
// for each other.
inline void tree_sums(StepLeaves at, const std::int64_t* offset, Index K, const double* LT_RESTRICT c,
               double* LT_RESTRICT out) {
    constexpr Index side = 8;
    Index r = 0;
    for (; K == 1 && r + side <= at.R; r += side)
        with_ids(at.tree(r), [&](const auto* LT_RESTRICT leaf) {
            for (Index j = 0; j < at.n; ++j)
                for (Index i = 0; i < side; ++i) out[offset[r + i] + leaf[i * at.stride + j]] += c[j];
        });
    for (; r < at.R; ++r)
        for (Index j = 0; j < at.n; ++j)
            for (Index o = 0; o < at.O; ++o)
                out[(offset[r] + at.tree(r)[j]) * at.O + o] += c[j * K + at.first[r] + o];
}

// Round g and h of rows to float32.
LT_CALLED void to_single(double* LT_RESTRICT g, double* LT_RESTRICT h, Index count) {
    for (Index i = 0; i < count; ++i) {
        g[i] = static_cast<float>(g[i]);
        h[i] = static_cast<float>(h[i]);
    }
}

// Vectorised loops move the scores of a tile of rows and compute their derivatives; a last loop adds each row to
// its leaf. Neighbouring rows often share a leaf, and adding to a number just stored waits for the store: rows use
// four copies of the table of sums in turn, which are added up at the end. `ones`: all weights are one, so that rows
// need not be counted.
inline void sum_derivatives(LossKind kind, Ids leaf, Ids before, const double* d_before, Index begin, Index end,
                     Index M, double* A, const double* y, const double* w, bool ones, int rounding, double* copies,
                     double* counts, double* sums) {
    for (Index i = 0; i < 16 * M; ++i) copies[i] = 0;
    for (Index i = 0; i < M; ++i) counts[i] = 0;
    with_loss(kind, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 128;
        double power[tile], g[tile], h[tile], k[tile];
        alignas(64) double terms[tile][4];
        std::uint32_t ids[tile];
        for (Index j0 = begin; j0 < end; j0 += tile) {
            const Index count = end - j0 < tile ? end - j0 : tile;
            double* LT_RESTRICT score = A + j0;
            const double *LT_RESTRICT label = y + j0, *LT_RESTRICT weight = w + j0;
            if (d_before) {
                copy_ids(before, j0, count, ids);
                for (Index i = 0; i < count; ++i) score[i] += d_before[ids[i]];
            }
            if (rounding & 4)
                for (Index i = 0; i < count; ++i) score[i] = static_cast<float>(score[i]);
            LT_IVDEP
            for (Index i = 0; i < count; ++i) power[i] = L::template power<double>(score[i]);
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                const L at = L::at_power(power[i], score[i], label[i]);
                g[i] = at.g;
                h[i] = at.h;
                k[i] = weight[i] * at.k;
            }
            if (rounding & 2) to_single(g, h, count);
            for (Index i = 0; i < count; ++i) {
                g[i] *= weight[i];
                h[i] *= weight[i];
            }
            if (rounding & 1) to_single(g, h, count);
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                terms[i][0] = g[i];
                terms[i][1] = h[i];
                terms[i][2] = k[i];
                terms[i][3] = weight[i];
            }
            copy_ids(leaf, j0, count, ids);
            for (Index i = 0; i < count; ++i)
                add<4>(copies + 4 * ((i & 3) * M + static_cast<Index>(ids[i])), terms[i], 1);
            if (!ones)
                for (Index i = 0; i < count; ++i) counts[ids[i]] += weight[i] > 0 ? 1.0 : 0.0;
        }
    });
    for (Index l = 0; l < M; ++l) {
        const double* LT_RESTRICT from = copies + 4 * l;
        double total[4];
        for (Index c = 0; c < 4; ++c)
            total[c] = (from[c] + from[c + 4 * M]) + (from[c + 8 * M] + from[c + 12 * M]);
        for (Index c = 0; c < 4; ++c) sums[8 * l + c] += total[c];
        sums[8 * l + 4] += ones ? total[3] : counts[l];
    }
}

inline void replay_sums(LossKind kind, StepLeaves at, bool skip, const std::int64_t* edges, const double* values,
                 Index begin, Index end, double* A, const double* y, const double* w, int rounding, double* copies, double* sums) {
    constexpr Index tile = 4096;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index j1 = end - j0 < tile ? end : j0 + tile;
        bool ones = true;
        for (Index j = j0; j < j1; ++j) ones &= w[j] == 1;
        for (Index r = skip; r < at.R; ++r) {
            const Ids before = at.tree(r ? r - 1 : 0);
            const double* d_before = r ? values + edges[r - 1] : nullptr;
            const Index M = edges[r + 1] - edges[r];
            sum_derivatives(kind, at.tree(r), before, d_before, j0, j1, M, A, y, w, ones, rounding, copies,
                            copies + 16 * M, sums + 8 * edges[r]);
        }
    }
}

// The state of a score, as defined in _model/losses.py.
LT_INLINE void state_of(Squared*, double A, double* state) { state[0] = A; }
LT_INLINE void state_of(Poisson*, double A, double* state) { state[0] = fast_exp(A); }
LT_INLINE void state_of(Logistic*, double A, double* state) {
    const double e = fast_exp(A < 0 ? A : -A), large = 1 / (1 + e), small = e * large;
    state[0] = A > 0 ? large : small;
    state[1] = A > 0 ? small : large;
}

// The tables of a tree's linearised leaves, (Q, M) each.
struct LeafTables {
    Index Q, M;
    const double *shift, *s, *N;
};

// Direct and knock-on effects of up to `tile` rows in one tree, from their scores.
template <class L, class Real>
struct TileEffects {
    static constexpr Index tile = 512;
    bool newton;
    double state[tile * L::C];

    LT_CALLED void compute(LeafTables t, const std::uint32_t* leaf, const double* score, const double* y, const double* w,
                           Index count, Real* v, Real* u) {
        moves(t) ? at_moved(t, leaf, score, y, w, count, v, u) : at_scores(t, leaf, score, y, w, count, v, u);
    }

    // Whether inner iterations move the rows away from their scores.
    LT_CALLED static bool moves(LeafTables t) {
        bool moved = t.Q > 1;
        for (Index l = 0; l < t.M && !moved; ++l) moved = t.shift[l] != L::no_shift;
        return moved;
    }

    // A single iteration does not move the rows: their state is that of their scores.
    void at_scores(LeafTables t, const std::uint32_t* LT_RESTRICT leaf, const double* LT_RESTRICT score,
                   const double* LT_RESTRICT y, const double* LT_RESTRICT w, Index count, Real* LT_RESTRICT v,
                   Real* LT_RESTRICT u) {
        const double first = newton ? 0 : 1, second = newton ? 1 : 0;
        LT_IVDEP
        for (Index i = 0; i < count; ++i) state[i] = L::template power<Real>(score[i]);
        LT_IVDEP
        for (Index i = 0; i < count; ++i) {
            const L row = L::at_power(state[i], score[i], y[i]);
            const double s = t.s[leaf[i]], N = t.N[leaf[i]];
            v[i] = static_cast<Real>(N * (row.g + (first + second * row.h) * s));
            u[i] = static_cast<Real>(w[i] * N * (row.h + second * row.k * s));
        }
    }

    void at_moved(LeafTables t, const std::uint32_t* LT_RESTRICT leaf, const double* LT_RESTRICT score,
                  const double* LT_RESTRICT y, const double* LT_RESTRICT w, Index count, Real* LT_RESTRICT v,
                  Real* LT_RESTRICT u) {
        LT_IVDEP
        for (Index i = 0; i < count; ++i) state_of(static_cast<L*>(nullptr), score[i], state + i * L::C);
        for (Index i = 0; i < count; ++i) {
            double direct = 0, knock_on = 0;
            for (Index q = 0; q < t.Q; ++q) {
                const Index l = q * t.M + static_cast<Index>(leaf[i]);
                const L row(state + i * L::C, t.shift[l], y[i]);
                direct += t.N[l] * (row.g + (newton ? row.h : 1.0) * t.s[l]);
                knock_on += t.N[l] * (row.h + (newton ? row.k * t.s[l] : 0.0));
            }
            v[i] = static_cast<Real>(direct);
            u[i] = static_cast<Real>(w[i] * knock_on);
        }
    }
};

template <class Real>
void row_effects(LossKind kind, bool newton, StepLeaves at, Index begin, Index end, const std::int64_t* edges,
                 const double* values, const std::int64_t* tables, const double* shift, const double* s, const double* N,
                 double* LT_RESTRICT A, const double* y, const double* w, Real* V, Real* U) {
    with_loss(kind, [&](auto* tag) {
        TileEffects<std::remove_pointer_t<decltype(tag)>, Real> effects{newton};
        constexpr Index tile = effects.tile;
        std::uint32_t leaf[tile];
        for (Index j0 = begin; j0 < end; j0 += tile) {
            const Index count = end - j0 < tile ? end - j0 : tile;
            double* LT_RESTRICT score = A + (j0 - begin);
            for (Index r = 0; r < at.R; ++r) {
                if (r)  // the ids of the tree before are still here
                    for (Index i = 0; i < count; ++i) score[i] += values[edges[r - 1] + static_cast<Index>(leaf[i])];
                copy_ids(at.tree(r), j0, count, leaf);
                const Index M = edges[r + 1] - edges[r], Q = (tables[r + 1] - tables[r]) / M, l = tables[r];
                effects.compute({Q, M, shift + l, s + l, N + l}, leaf, score, y + j0, w + j0, count, V + r * at.n + j0,
                                U + r * at.n + j0);
            }
        }
    });
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
