// Passes of rows through many trees, one tile of rows after another, so that the data of a tile stays in the
// caches for all trees.
#pragma once
#include "lanes.hpp"
#include "losses.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

template <class Leaf>
void tree_scores(StepLeaves<Leaf> at, const std::int64_t* offset, Index K, const double* LT_RESTRICT values,
                 double* LT_RESTRICT A) {
    constexpr Index tile = 512;
    for (Index j0 = 0; j0 < at.n; j0 += tile) {
        const Index j1 = at.n - j0 < tile ? at.n : j0 + tile;
        for (Index r = 0; r < at.R; ++r) {
            const Leaf* LT_RESTRICT leaf = at.tree(r);
            const double* LT_RESTRICT f = values + offset[r] * at.O;
            if (K == 1)
                for (Index j = j0; j < j1; ++j) A[j] += f[leaf[j]];
            else
                for (Index j = j0; j < j1; ++j)
                    for (Index o = 0; o < at.O; ++o) A[j * K + at.first[r] + o] += f[leaf[j] * at.O + o];
        }
    }
}

// An addition to the sum of a leaf has to wait for the previous one; the sums of eight trees at once do not wait
// for each other.
template <class Leaf>
void tree_sums(StepLeaves<Leaf> at, const std::int64_t* offset, Index K, const double* LT_RESTRICT c,
               double* LT_RESTRICT out) {
    constexpr Index side = 8;
    Index r = 0;
    for (; K == 1 && r + side <= at.R; r += side)
        for (Index j = 0; j < at.n; ++j)
            for (Index i = 0; i < side; ++i) out[offset[r + i] + at.tree(r + i)[j]] += c[j];
    for (; r < at.R; ++r)
        for (Index j = 0; j < at.n; ++j)
            for (Index o = 0; o < at.O; ++o)
                out[(offset[r] + at.tree(r)[j]) * at.O + o] += c[j * K + at.first[r] + o];
}

// Vectorised loops move the scores of a tile of rows and compute their derivatives; a last loop adds each row to
// its leaf. Neighbouring rows often share a leaf, and adding to a number just stored waits for the store: rows use
// four copies of the table of sums in turn, which are added up at the end.
template <class Leaf>
void sum_derivatives(LossKind kind, const Leaf* leaf, const Leaf* before, const double* d_before, Index begin, Index end,
                     Index M, double* A, const double* y, const double* w, int rounding, double* copies, double* sums) {
    for (Index i = 0; i < 32 * M; ++i) copies[i] = 0;
    with_loss(kind, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 128;
        double moved[tile], g[tile], h[tile], k[tile];
        for (Index j0 = begin; j0 < end; j0 += tile) {
            const Index count = end - j0 < tile ? end - j0 : tile;
            if (before)
                for (Index i = 0; i < count; ++i) moved[i] = A[j0 + i] + d_before[before[j0 + i]];
            else
                for (Index i = 0; i < count; ++i) moved[i] = A[j0 + i];
            if (rounding & 4)
                for (Index i = 0; i < count; ++i) moved[i] = static_cast<float>(moved[i]);
            for (Index i = 0; i < count; ++i) A[j0 + i] = moved[i];
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                const L at(moved[i], y[j0 + i]);
                g[i] = at.g;
                h[i] = at.h;
                k[i] = at.k;
            }
            if (rounding & 2)
                for (Index i = 0; i < count; ++i) {
                    g[i] = static_cast<float>(g[i]);
                    h[i] = static_cast<float>(h[i]);
                }
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                g[i] *= w[j0 + i];
                h[i] *= w[j0 + i];
                k[i] *= w[j0 + i];
            }
            if (rounding & 1)
                for (Index i = 0; i < count; ++i) {
                    g[i] = static_cast<float>(g[i]);
                    h[i] = static_cast<float>(h[i]);
                }
            for (Index i = 0; i < count; ++i) {
                double* LT_RESTRICT to = copies + 8 * ((i & 3) * M + static_cast<Index>(leaf[j0 + i]));
                const double wi = w[j0 + i];
                to[0] += g[i];
                to[1] += h[i];
                to[2] += k[i];
                to[3] += wi;
                to[4] += wi > 0 ? 1.0 : 0.0;
            }
        }
    });
    for (Index i = 0; i < 8 * M; ++i)
        sums[i] += (copies[i] + copies[i + 8 * M]) + (copies[i + 16 * M] + copies[i + 24 * M]);
}

template <class Leaf>
void replay_sums(LossKind kind, StepLeaves<Leaf> at, bool skip, const std::int64_t* edges, const double* values,
                 Index begin, Index end, double* A, const double* y, const double* w, int rounding, double* copies, double* sums) {
    constexpr Index tile = 4096;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index j1 = end - j0 < tile ? end : j0 + tile;
        for (Index r = skip; r < at.R; ++r) {
            const Leaf* before = r ? at.tree(r - 1) : nullptr;
            const double* d_before = r ? values + edges[r - 1] : nullptr;
            sum_derivatives(kind, at.tree(r), before, d_before, j0, j1, edges[r + 1] - edges[r], A, y, w, rounding, copies,
                            sums + 8 * edges[r]);
        }
    }
}

// The state of a score, as defined in _model/losses.py.
inline void state_of(Squared*, double A, double* state) { state[0] = A; }
inline void state_of(Poisson*, double A, double* state) { state[0] = fast_exp(A); }
inline void state_of(Logistic*, double A, double* state) {
    const double e = fast_exp(A < 0 ? A : -A), large = 1 / (1 + e), small = e * large;
    state[0] = A > 0 ? large : small;
    state[1] = A > 0 ? small : large;
}

template <class Leaf, class Real>
void row_effects(LossKind kind, bool newton, StepLeaves<Leaf> at, Index begin, Index end, const std::int64_t* edges,
                 const double* values, const std::int64_t* tables, const double* shift, const double* s, const double* N,
                 double* LT_RESTRICT A, const double* y, const double* w, Real* V, Real* U) {
    with_loss(kind, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 512;
        double state[tile * L::C];
        for (Index j0 = begin; j0 < end; j0 += tile) {
            const Index count = end - j0 < tile ? end - j0 : tile;
            double* LT_RESTRICT score = A + (j0 - begin);
            for (Index r = 0; r < at.R; ++r) {
                const Leaf* LT_RESTRICT leaf = at.tree(r) + j0;
                if (r)
                    for (Index i = 0; i < count; ++i) score[i] += values[edges[r - 1] + at.tree(r - 1)[j0 + i]];
                LT_IVDEP
                for (Index i = 0; i < count; ++i) state_of(tag, score[i], state + i * L::C);
                const Index M = edges[r + 1] - edges[r], Q = (tables[r + 1] - tables[r]) / M;
                Real *LT_RESTRICT v = V + r * at.n + j0, *LT_RESTRICT u = U + r * at.n + j0;
                for (Index i = 0; i < count; ++i) {
                    double direct = 0, knock_on = 0;
                    for (Index q = 0; q < Q; ++q) {
                        const Index l = tables[r] + q * M + static_cast<Index>(leaf[i]);
                        const L row(state + i * L::C, shift[l], y[j0 + i]);
                        direct += N[l] * (row.g + (newton ? row.h : 1.0) * s[l]);
                        knock_on += N[l] * (row.h + (newton ? row.k * s[l] : 0.0));
                    }
                    v[i] = static_cast<Real>(direct);
                    u[i] = static_cast<Real>(w[j0 + i] * knock_on);
                }
            }
        }
    });
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
