// Effects of rows of losses with several outputs, from their scores. The work is in exponentials and in writing the
// effects, so it is compiled once for all instruction sets.
#pragma once
#include <cmath>
#include <vector>

#include "kernels.hpp"

namespace leaftrace {

// All steps of an ensemble: the trees of step t are trees[t] .. trees[t + 1] - 1, its leaves edges[t] .. edges[t + 1] - 1,
// and its tables (Q, M, ...) have the leaf rows tables[t] .. tables[t + 1] - 1.
struct ClassSteps {
    StepLeaves at;
    Index T, K;
    const std::int64_t *trees, *edges, *tables;
    const double* values;       // (all leaves, O)
    const double *shift, *s, *N;  // (J, O), (J, O), (J, O, O)
};

// Probabilities p (K) of a row's classes: softmax of its scores.
inline void softmax(const double* A, Index K, double* p) {
    double top = A[0], sum = 0;
    for (Index k = 1; k < K; ++k) top = A[k] > top ? A[k] : top;
    for (Index k = 0; k < K; ++k) sum += p[k] = std::exp(A[k] - top);
    for (Index k = 0; k < K; ++k) p[k] /= sum;
}

// The same after the leaf's steps so far, of which shift has the exponentials.
inline void moved_softmax(const double* p, const double* shift, Index K, double* to) {
    double sum = 0;
    for (Index k = 0; k < K; ++k) sum += to[k] = p[k] * shift[k];
    for (Index k = 0; k < K; ++k) to[k] /= sum;
}

// Add the effects of a row, of class y and weight w, in a leaf with s (O) and N (O, O) of the outputs from `first`:
// v (O) and u (O, K), as in _model/kernels/numpy_classes.py. With h s = r and r = p (s - p.s), the slope of the leaf's
// gradient is diag(p + r) - (p + r) p' - p r'. r has room for K numbers.
template <class Real>
void add_row_effects(bool newton, const double* p, Index K, Index y, double w, Index first, Index O, const double* s,
                     const double* N, double* r, Real* v, Real* u) {
    double mean = 0;
    for (Index b = 0; b < O; ++b) mean += p[first + b] * s[b];
    // The gradient rule has h = 1, whose derivative is zero.
    for (Index k = 0; k < K; ++k) {
        const double step = k >= first && k < first + O ? s[k - first] : 0;
        r[k] = newton ? p[k] * (step - mean) : 0;
    }
    for (Index a = 0; a < O; ++a) {
        double direct = 0, of_p = 0, of_both = 0;
        for (Index b = 0; b < O; ++b) {
            const Index k = first + b;
            const double n = N[a * O + b];
            direct += n * (p[k] - (k == y ? 1 : 0) + (newton ? r[k] : s[b]));
            of_p += n * p[k];
            of_both += n * (p[k] + r[k]);
        }
        v[a] += static_cast<Real>(direct);
        Real* to = u + a * K;
        for (Index k = 0; k < K; ++k) {
            const bool own = k >= first && k < first + O;
            const double slope = own ? N[a * O + k - first] * (p[k] + r[k]) : 0;
            to[k] += static_cast<Real>(w * (slope - p[k] * of_both - r[k] * of_p));
        }
    }
}

// V (R, n, O) and U (R, n, O, K) of the rows begin .. end - 1; A (end - begin, K) has the scores of these rows before
// the first step, and moves on to those before the last.
template <class Real>
void softmax_effects(const ClassSteps& steps, bool newton, Index begin, Index end, double* A, const double* y,
                     const double* w, Real* V, Real* U) {
    const StepLeaves& at = steps.at;
    const Index K = steps.K, O = at.O, n = at.n;
    constexpr Index tile = 256;
    std::vector<double> room(static_cast<std::size_t>(tile * K + 2 * K));
    double *p = room.data(), *moved = p + tile * K, *r = moved + K;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index count = end - j0 < tile ? end - j0 : tile;
        double* scores = A + (j0 - begin) * K;
        for (Index t = 0; t < steps.T; ++t) {
            for (Index q = t ? steps.trees[t - 1] : 0; t && q < steps.trees[t]; ++q)
                for (Index i = 0; i < count; ++i) {
                    const double* f = steps.values + (steps.edges[t - 1] + at.tree(q)[j0 + i]) * O;
                    for (Index o = 0; o < O; ++o) scores[i * K + at.first[q] + o] += f[o];
                }
            for (Index i = 0; i < count; ++i) softmax(scores + i * K, K, p + i * K);
            const Index M = steps.edges[t + 1] - steps.edges[t];
            for (Index tree = steps.trees[t]; tree < steps.trees[t + 1]; ++tree) {
                const Ids leaf = at.tree(tree) + j0;
                for (Index i = 0; i < count; ++i) {
                    const Index j = j0 + i;
                    Real* v = V + (tree * n + j) * O;
                    Real* u = U + (tree * n + j) * O * K;
                    for (Index a = 0; a < O; ++a) v[a] = 0;
                    for (Index a = 0; a < O * K; ++a) u[a] = 0;
                    for (Index row = steps.tables[t] + leaf[i]; row < steps.tables[t + 1]; row += M) {
                        const bool inner = row >= steps.tables[t] + M;
                        if (inner) moved_softmax(p + i * K, steps.shift + row * O, K, moved);
                        add_row_effects(newton, inner ? moved : p + i * K, K, static_cast<Index>(y[j]), w[j], at.first[tree],
                                        O, steps.s + row * O, steps.N + row * O * O, r, v, u);
                    }
                }
            }
        }
    }
}

// A row's derivatives in its own scores (K): of outputs that do not depend on each other.
struct OwnTerms {
    const double *g, *j, *h, *k;  // (n, K)
};

// Add to V (n, O) and U (n, O, K) the effects of rows in one tree, which writes to the outputs from `first`, and whose
// leaves have s (M, O) and N (M, O, O). The gradient rule (not newton) has h = 1 and k = 0.
template <class Real>
void separate_effects(bool newton, Ids leaf, Index n, Index first, Index O, Index K, const OwnTerms& terms,
                      const double* s, const double* N, const double* w, Real* V, Real* U) {
    std::vector<double> room(static_cast<std::size_t>(2 * O));
    double *direct = room.data(), *slope = direct + O;
    for (Index i = 0; i < n; ++i) {
        const Index m = leaf[i];
        for (Index b = 0; b < O; ++b) {
            const Index at = i * K + first + b;
            const double step = s[m * O + b];
            direct[b] = terms.g[at] + (newton ? terms.h[at] * step : step);
            slope[b] = w[i] * (terms.j[at] + (newton ? terms.k[at] * step : 0));
        }
        for (Index a = 0; a < O; ++a) {
            const double* row = N + (m * O + a) * O;
            double sum = 0;
            for (Index b = 0; b < O; ++b) {
                sum += row[b] * direct[b];
                U[(i * O + a) * K + first + b] += static_cast<Real>(row[b] * slope[b]);
            }
            V[i * O + a] += static_cast<Real>(sum);
        }
    }
}

// Where a library keeps numbers in float32: flags of `Rounding`.
struct Rounded {
    Index flags;

    static double f32(double x) { return static_cast<double>(static_cast<float>(x)); }
    double term(double x, double w, const double* drawn) const {
        const bool last = flags & 8;  // draws are multiplied with terms that were rounded
        if (drawn && !last) w *= *drawn;
        x = w * (flags & 2 ? f32(x) : x);
        if (flags & 1) x = f32(x);
        return drawn && last ? f32(x * *drawn) : x;
    }
};

// G (M, O) += terms of g, H (M, O) += terms of h, over the rows of each leaf of the trees of a step; g, h (n, K) are the
// derivatives of each output, drawn (R, n) how often each tree drew a row, or null.
inline void output_sums(const Rounded& rounded, const StepLeaves& at, Index K, const double* g, const double* h,
                        const double* w, const double* drawn, double* G, double* H) {
    constexpr Index tile = 256;
    for (Index j0 = 0; j0 < at.n; j0 += tile) {
        const Index j1 = at.n - j0 < tile ? at.n : j0 + tile;
        for (Index r = 0; r < at.R; ++r)
            with_ids(at.tree(r), [&](const auto* leaf) {
                for (Index j = j0; j < j1; ++j) {
                    const double* draws = drawn ? drawn + r * at.n + j : nullptr;
                    for (Index o = 0; o < at.O; ++o) {
                        const Index k = j * K + at.first[r] + o, m = static_cast<Index>(leaf[j]) * at.O + o;
                        G[m] += rounded.term(g[k], w[j], draws);
                        H[m] += rounded.term(h[k], w[j], draws);
                    }
                }
            });
    }
}

// out (M, 2) += weights, and numbers of rows of non-zero weight, over the rows of each leaf of the trees of a step.
inline void weight_sums(const StepLeaves& at, const double* w, const double* drawn, double* out) {
    for (Index r = 0; r < at.R; ++r)
        with_ids(at.tree(r), [&](const auto* leaf) {
            for (Index j = 0; j < at.n; ++j) {
                const double weight = drawn ? w[j] * drawn[r * at.n + j] : w[j];
                out[2 * static_cast<Index>(leaf[j])] += weight;
                out[2 * static_cast<Index>(leaf[j]) + 1] += weight > 0;
            }
        });
}

}  // namespace leaftrace
