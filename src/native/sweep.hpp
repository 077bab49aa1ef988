// Forward passes over the rows of a step: changes of scores, and sums over leaves of the changes that follow.
#pragma once
#include "lanes.hpp"

#include <type_traits>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// |x|, by clearing the sign bit: for x < 0 ? -x : x the compiler makes a comparison and a selection.
template <class Real, class Unit>
LT_INLINE Unit absolute(Unit x) {
#if defined(__GNUC__)
    if constexpr (sizeof(Unit) > sizeof(Real)) {
        using Word = std::conditional_t<sizeof(Real) == 4, std::uint32_t, std::uint64_t>;
        typedef Word Bits __attribute__((vector_size(sizeof(Unit)), may_alias));
        return (Unit)((Bits)x & (~Word(0) >> 1));
    }
#endif
    return x < 0 ? -x : x;
}

// Change x followed by change e.
template <bool exponential, class Unit>
LT_INLINE Unit composed(Unit x, Unit e) {
    return exponential ? x + (e + x * e) : x + e;
}

// exp(x) - 1 without a branch: a Taylor polynomial at x / 2^halvings, then (1 + e)^2 - 1 for each halving. This
// is for changes of scores, which are small: the relative error is below 1e-7 (float) and 1e-15 (double) for
// |x| <= 1, 2e-3 and 1e-10 for |x| <= 4.
template <class Unit, class Real>
LT_INLINE Unit expm1_of(Unit x, Real) {
    constexpr int degree = sizeof(Real) == 4 ? 6 : 13, halvings = sizeof(Real) == 4 ? 2 : 3;
    x *= Real(1) / (1 << halvings);
    Real c[degree + 1] = {1, 1};
    for (int k = 2; k <= degree; ++k) c[k] = c[k - 1] / k;
    Unit e = x * c[degree] + c[degree - 1];
    for (int k = degree - 2; k > 0; --k) e = x * e + c[k];
    e *= x;
    for (int k = 0; k < halvings; ++k) e = e * e + 2 * e;
    return e;
}

// A sweep calls body.row(j, l, r, D_j) for each row j and each tree r, where l is the row's leaf, and
// body.plain_row(j, l, D_j) where there is one output and one tree; Body::ranks says whether there is a fast pass that
// ranks leaves, too. Values are copied to locals before they are used:
// otherwise the compiler would load them again after every store through a pointer.

// One output, one tree a step.
template <int B, bool exponential, bool ranked, class Real, class Body>
void sweep_plain(const Sweep<Real> s, Body body) {
    using Unit = typename Lanes<Real, B>::Unit;
    constexpr int N = Lanes<Real, B>::N;
    constexpr Index tile = 256;
    std::uint32_t leaf[tile], before[tile];
    for (Index j0 = 0; j0 < s.at.n; j0 += tile) {
        const Index count = s.at.n - j0 < tile ? s.at.n - j0 : tile;
        copy_ids(s.at.ids, j0, count, leaf);
        if (s.d_before) copy_ids(s.before.ids, j0, count, before);
        for (Index i = 0; i < count; ++i) {
            const Index j = j0 + i, l = leaf[i];
            alignas(64) Unit x[N];  // for bodies that pass it on in memory: no vector crosses a cache line
            Unit* D = units<B>(s.D + j * B);
            LT_UNITS(B) x[i_] = D[i_];
            if (s.d_before) {
                const Unit* d = units<B>(s.d_before + static_cast<Index>(before[i]) * B);
                LT_UNITS(B) D[i_] = x[i_] = composed<exponential>(x[i_], d[i_]);
            }
            if (ranked) {
                Unit* to = units<B>(s.ranking + l * B);
                if (!s.pick || s.pick[j] != 0) LT_UNITS(B) to[i_] += absolute<Real>(x[i_]);
            }
            body.plain_row(j, l, x);
        }
    }
}

// Several outputs or trees: the changes of the step before, for `count` rows from row j0 on. This and the ranking do
// not depend on the body, so they are compiled once for all of them. `leaf` has room for the rows.
template <int B, bool exponential, class Real>
LT_CALLED void move_rows(const Sweep<Real>& s, Index j0, Index count, std::uint32_t* leaf) {
    const Index O = s.before.O, K = s.K;
    for (Index b = 0; b < s.before.R; ++b) {
        copy_ids(s.before.tree(b), j0, count, leaf);
        Real* D = s.D + (j0 * K + s.before.first[b]) * B;
        const Real* d_before = s.d_before;
        for (Index i = 0; i < count; ++i, D += K * B)
            for (Index o = 0; o < O; ++o) {
                auto to = units<B>(D + o * B);
                auto d = units<B>(d_before + (static_cast<Index>(leaf[i]) * O + o) * B);
                LT_UNITS(B) to[i_] = composed<exponential>(to[i_], d[i_]);
            }
    }
}

// The ranking of the leaves of one tree, by its outputs of `count` rows from row j0 on.
template <int B, class Real>
LT_CALLED void rank_rows(const Sweep<Real>& s, Index r, Index j0, Index count, const std::uint32_t* leaf) {
    const Index O = s.at.O, K = s.K;
    const Real* D = s.D + (j0 * K + s.at.first[r]) * B;
    const Real* pick = s.pick;
    Real* ranking = s.ranking;
    for (Index i = 0; i < count; ++i, D += K * B) {
        if (pick && pick[j0 + i] == 0) continue;
        auto to = units<B>(ranking + static_cast<Index>(leaf[i]) * B);
        for (Index o = 0; o < O; ++o) {
            auto x = units<B>(D + o * B);
            LT_UNITS(B) to[i_] += absolute<Real>(x[i_]);
        }
    }
}

// Call a body for `count` rows from row j0 on, in one tree.
template <class Body, int B, class Real>
void call_rows(const void* body_, const Sweep<Real>& s, Index r, Index j0, Index count, const std::uint32_t* leaf) {
    Body body = *static_cast<const Body*>(body_);
    const Index width = s.K * B;
    const Real* D = s.D + j0 * width;
    for (Index i = 0; i < count; ++i) body.row(j0 + i, leaf[i], r, units<B>(D + i * width));
}

// Rows are taken in tiles, which stay in the first cache for all passes over them. call is call_rows of a body.
template <int B, bool exponential, class Real, class Call>
LT_CALLED void sweep_any(const Sweep<Real>& s, Call call, const void* body) {
    constexpr Index tile = 64;
    std::uint32_t leaf[tile];
    for (Index j0 = 0; j0 < s.at.n; j0 += tile) {
        const Index count = s.at.n - j0 < tile ? s.at.n - j0 : tile;
        if (s.d_before) move_rows<B, exponential>(s, j0, count, leaf);
        for (Index r = 0; r < s.at.R; ++r) {
            copy_ids(s.at.tree(r), j0, count, leaf);
            if (s.ranking) rank_rows<B>(s, r, j0, count, leaf);
            call(body, s, r, j0, count, leaf);
        }
    }
}

template <int B, bool exponential, class Real, class Body>
void sweep(const Sweep<Real>& s, const Body& body) {
    if constexpr (!Body::several) {
        const bool plain = s.at.plain(s.K) && (!s.d_before || s.before.plain(s.K));
        if (plain && !s.ranking) return sweep_plain<B, exponential, false>(s, body);
        if constexpr (!exponential && Body::ranks)
            if (plain) return sweep_plain<B, false, true>(s, body);
    }
    sweep_any<B, exponential>(s, &call_rows<Body, B, Real>, &body);
}

template <int B, class Real>
struct TangentBody {
    static constexpr bool several = false, ranks = true;
    using Unit = typename Lanes<Real, B>::Unit;
    static constexpr int N = Lanes<Real, B>::N;
    const Index n, O, K;
    const Real* U;
    Real* out;
    LT_INLINE void plain_row(Index j, Index l, const Unit* D) {
        const Real u = U[j];
        Unit* LT_RESTRICT to = units<B>(out + l * B);
        LT_UNITS(B) to[i_] += u * D[i_];
    }
    LT_INLINE void row(Index j, Index l, Index r, const Unit* D) {
        const Real* u = U + (r * n + j) * O * K;
        for (Index o = 0; o < O; ++o) {
            Unit* LT_RESTRICT to = units<B>(out + (l * O + o) * B);
            for (Index k = 0; k < K; ++k) LT_UNITS(B) to[i_] += u[o * K + k] * D[k * N + i_];
        }
    }
};

// Changes of g and h of one output, in difference form, from a change x of a row's score:
//     exponential  x = exp(D) - 1
//     any          x = D, made exp(D) - 1 by expm1_of
//     small        x = D; D coth(D / 2) is a short polynomial
enum class Form { exponential, any, small };

// x coth(x / 2) = 2 + x^2 / 6 - x^4 / 360 + ... Exact to the rounding of float for |x| <= 0.5 (the best
// polynomial there), and of double for |x| <= 0.012 (Taylor's).
template <class Real, class Unit>
LT_INLINE Unit coth_of(Unit x) {
    constexpr bool single = sizeof(Real) == 4;
    const Unit square = x * x;
    return square * (square * Real(single ? -0.002753204093 : -1. / 360) + Real(single ? 0.166664376013 : 1. / 6)) + 2;
}

struct SquaredChange {
    static constexpr int C = 1;
    static constexpr bool exponential = false;  // does not use exp(D) - 1
    template <Form form, class Real>
    struct Row {
        LT_INLINE Row(const Real*, const Real*) {}
        template <class Unit>
        LT_INLINE void operator()(Unit x, Unit& dg, Unit& dh) const {
            dg = x;
            dh = 0 * x;
        }
    };
};

struct LogisticChange {
    static constexpr int C = 2;
    static constexpr bool exponential = true;
    template <Form form, class Real>
    struct Row {
        Real h, slope, p;  // pq, q - p, p
        LT_INLINE Row(const Real* state, const Real* shift) {
            p = state[0];
            Real q = state[1];
            if (shift) {
                p *= *shift;
                const Real sum = p + q;
                p /= sum;
                q /= sum;
            }
            h = p * q;
            slope = q - p;
        }
        template <class Unit>
        LT_INLINE void operator()(Unit x, Unit& dg, Unit& dh) const {
            if (form == Form::small)
                dg = (2 * h) * x / (coth_of<Real>(x) - slope * x);
            else
                dg = h * x / (p * x + 1);
            dh = dg * (slope - dg);
        }
    };
};

struct PoissonChange {
    static constexpr int C = 1;
    static constexpr bool exponential = true;
    template <Form form, class Real>
    struct Row {
        Real h;
        LT_INLINE Row(const Real* state, const Real* shift) : h(state[0] * (shift ? *shift : 1)) {}
        template <class Unit>
        LT_INLINE void operator()(Unit x, Unit& dg, Unit& dh) const {
            dg = dh = form == Form::small ? (2 * h) * x / (coth_of<Real>(x) - x) : h * x;
        }
    };
};

template <class Change, Form form, bool within, int B, class Real>  // within: in an inner iteration
struct ChangeBody {
    static constexpr bool several = false, ranks = !within;  // leaves are ranked before their inner iterations
    using Unit = typename Lanes<Real, B>::Unit;
    const Changes<Real> c;
    LT_INLINE void plain_row(Index j, Index l, const Unit* D) const { row(j, l, 0, D); }
    LT_INLINE void row(Index j, Index l, Index r, const Unit* D) const {
        const typename Change::template Row<form, Real> at(c.state + j * Change::C, within ? c.shift + l : nullptr);
        const Real wj = c.w[r * c.w_stride + j];
        Unit *LT_RESTRICT G = units<B>(c.dG + l * B), *LT_RESTRICT H = units<B>(c.dH + l * B);
        LT_UNITS(B) {
            Unit dg, dh, x = D[i_];
            if (within)
                x = composed<form == Form::exponential>(x * units<B>(c.mask + l * B)[i_], units<B>(c.inner + l * B)[i_]);
            if (Change::exponential && form == Form::any) x = expm1_of(x, Real());
            at(x, dg, dh);
            G[i_] += wj * dg;
            H[i_] += wj * dh;
        }
    }
};

// Several outputs. With E = exp(D) - 1: dp = p (E - mean) / (1 + mean), mean = sum p E;
// dh = diag(dp) - dp (p + dp)' - p dp'.
template <bool exponential, int B, class Real>
struct SoftmaxBody {
    static constexpr bool several = true;  // outputs
    using Unit = typename Lanes<Real, B>::Unit;
    static constexpr int N = Lanes<Real, B>::N;
    const Sweep<Real> s;
    const Real *state, *w, *shift, *inner, *mask;
    const Index w_stride;
    Real *dG, *dH;
    Real *p, *dp_;  // (K), (K, B)
    LT_INLINE void row(Index j, Index l, Index r, const Unit* E) {
        const Index K = s.K, O = s.at.O, first = s.at.first[r];
        Unit* LT_RESTRICT dp = units<B>(dp_);
        Real total = 0;
        for (Index k = 0; k < K; ++k) {
            p[k] = state[j * K + k] * (shift ? shift[l * K + k] : 1);
            total += p[k];
        }
        Unit mean[N] = {};
        for (Index k = 0; k < K; ++k) {
            p[k] /= total;
            const Unit* step = inner ? units<B>(inner + (l * K + k) * B) : nullptr;
            const Unit* used = inner ? units<B>(mask + l * B) : nullptr;
            LT_UNITS(B) {
                Unit x = inner ? composed<exponential>(E[k * N + i_] * used[i_], step[i_]) : E[k * N + i_];
                if (!exponential) x = expm1_of(x, Real());
                dp[k * N + i_] = x;
                mean[i_] += p[k] * x;
            }
        }
        Unit mean_reciprocal[N];
        LT_UNITS(B) mean_reciprocal[i_] = 1 / (1 + mean[i_]);
        for (Index k = 0; k < K; ++k)
            LT_UNITS(B) dp[k * N + i_] = p[k] * (dp[k * N + i_] - mean[i_]) * mean_reciprocal[i_];
        const Real wj = w[r * w_stride + j];
        for (Index a = 0; a < O; ++a) {
            const Unit* xa = dp + (first + a) * N;
            const Real pa = p[first + a];
            Unit* LT_RESTRICT G = units<B>(dG + (l * O + a) * B);
            LT_UNITS(B) G[i_] += wj * xa[i_];
            for (Index i = 0; i < O; ++i) {
                const Unit* xi = dp + (first + i) * N;
                const Real pi = p[first + i], same = a == i;
                Unit* LT_RESTRICT H = units<B>(dH + ((l * O + a) * O + i) * B);
                LT_UNITS(B) H[i_] += wj * (same * xa[i_] - xa[i_] * (pi + xi[i_]) - pa * xi[i_]);
            }
        }
    }
};

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
