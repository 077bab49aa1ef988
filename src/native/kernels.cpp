// Compiled once for each instruction set; LEAFTRACE_ISA names the namespace. Nothing from the standard library that
// could be shared with another copy is used here, so no copy can leak its instructions into another.
#include "kernels.hpp"

#include <type_traits>

#if defined(__GNUC__)
#define LT_RESTRICT __restrict__
#define LT_IVDEP _Pragma("GCC ivdep")
#define LT_INLINE inline __attribute__((always_inline))
#else
#define LT_RESTRICT __restrict
#define LT_IVDEP
#define LT_INLINE __forceinline
#endif

#if defined(__AVX512F__)
#define LT_NATIVE 64
#elif defined(__AVX__)
#define LT_NATIVE 32
#else
#define LT_NATIVE 16
#endif

extern "C" double exp(double);  // the library's, not a copy compiled here

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// ---- losses of one output: g, h, k from the state moved by a leaf's shift ----

struct Squared {
    static constexpr int C = 1;
    double g, h = 1, k = 0;
    Squared(const double* state, double shift, double y) : g(state[0] + shift - y) {}
    static constexpr double no_shift = 0;
};

struct Logistic {
    static constexpr int C = 2;
    double g, h, k;
    Logistic(const double* state, double shift, double y) {
        double p = state[0] * shift, q = state[1], sum = p + q;
        p /= sum;
        q /= sum;
        g = p * (1 - y) - q * y;
        h = p * q;
        k = h * (q - p);
    }
    static constexpr double no_shift = 1;
};

struct Poisson {
    static constexpr int C = 1;
    double g, h, k;
    Poisson(const double* state, double shift, double y) {
        h = k = state[0] * shift;
        g = h - y;
    }
    static constexpr double no_shift = 1;
};

// Call body(tag) with the loss's type.
template <class Body>
void with_loss(LossKind kind, const Body& body) {
    switch (kind) {
        case LossKind::squared: return body(static_cast<Squared*>(nullptr));
        case LossKind::logistic: return body(static_cast<Logistic*>(nullptr));
        case LossKind::poisson: return body(static_cast<Poisson*>(nullptr));
        case LossKind::softmax: return;  // several outputs: the NumPy twins
    }
}

// Neighbouring rows often share a leaf, and adding to a number just stored waits for it: four copies of the table take
// turns, and are added up at the end.
template <class Leaf>
void leaf_sums(RowData d, const Leaf* leaf, Index n, Index M, const double* shift, double* copies, double* sums) {
    with_loss(d.loss, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 128;  // the derivatives of a tile vectorise; then each row is one add of four numbers
        double terms[tile][4] = {};
        for (Index j0 = 0; j0 < n; j0 += tile) {
            const Index count = n - j0 < tile ? n - j0 : tile;
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                const Index j = j0 + i;
                const L at(d.state + j * L::C, shift ? shift[leaf[j]] : L::no_shift, d.y[j]);
                terms[i][0] = d.w[j] * at.g;
                terms[i][1] = d.w[j] * at.h;
                terms[i][2] = d.w[j] * at.k;
            }
            for (Index i = 0; i < count; ++i) {
                double* LT_RESTRICT to = copies + 4 * ((i & 3) * M + static_cast<Index>(leaf[j0 + i]));
                for (int c = 0; c < 4; ++c) to[c] += terms[i][c];
            }
        }
    });
    for (Index i = 0; i < 4 * M; ++i)
        sums[i] += (copies[i] + copies[i + 4 * M]) + (copies[i + 8 * M] + copies[i + 12 * M]);
}

template <class Leaf, class Real>
void row_effects(RowData d, bool newton, const Leaf* leaf, Index n, Index Q, Index M, const double* shift, const double* s,
                 const double* N, Real* V, Real* U) {
    with_loss(d.loss, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        for (Index j = 0; j < n; ++j) {
            double v = 0, u = 0;
            for (Index q = 0; q < Q; ++q) {
                const Index l = q * M + leaf[j];
                const L at(d.state + j * L::C, shift[l], d.y[j]);
                v += N[l] * (at.g + (newton ? at.h : 1.0) * s[l]);
                u += N[l] * (at.h + (newton ? at.k * s[l] : 0.0));
            }
            V[j] = static_cast<Real>(v);
            U[j] = static_cast<Real>(d.w[j] * u);
        }
    });
}

// ---- blocks of B columns ----
// B numbers side by side are N units, each as wide as the machine's registers. Left to itself the compiler checks for
// overlapping arrays at every row, or unrolls without vectorising: explicit units are two to three times faster.

template <class Real, int B>
struct Lanes {
#if defined(__GNUC__)
    static constexpr int bytes = B * sizeof(Real) < LT_NATIVE ? B * sizeof(Real) : LT_NATIVE;
    typedef Real Unit __attribute__((vector_size(bytes), aligned(sizeof(Real)), may_alias));
#else
    using Unit = Real;
#endif
    static constexpr int N = B * sizeof(Real) / sizeof(Unit);
};
template <class Real>
struct Lanes<Real, 1> {
    using Unit = Real;
    static constexpr int N = 1;
};
template <int B, class Real>
LT_INLINE auto units(const Real* p) {
    return reinterpret_cast<const typename Lanes<Real, B>::Unit*>(p);
}
template <int B, class Real>
LT_INLINE auto units(Real* p) {
    return reinterpret_cast<typename Lanes<Real, B>::Unit*>(p);
}
#define LT_UNITS(B) for (int i_ = 0; i_ < Lanes<Real, B>::N; ++i_)

// to (O, B) += from (O, B).
template <int B, class Real>
LT_INLINE void add(Real* LT_RESTRICT to_, const Real* LT_RESTRICT from_, Index O) {
    for (Index o = 0; o < O; ++o) {
        auto to = units<B>(to_ + o * B);
        auto from = units<B>(from_ + o * B);
        LT_UNITS(B) to[i_] += from[i_];
    }
}

// to (B) += c from (B).
template <int B, class Real>
LT_INLINE void add_scaled(Real* LT_RESTRICT to_, Real c, const Real* LT_RESTRICT from_) {
    auto to = units<B>(to_);
    auto from = units<B>(from_);
    LT_UNITS(B) to[i_] += c * from[i_];
}

// One output, one tree a step: sizes known to the compiler.
template <class Leaf>
LT_INLINE bool is_plain(const StepLeaves<Leaf>& at, Index K) {
    return at.R == 1 && at.O == 1 && K == 1;
}

template <int B, bool plain, class Leaf, class Real>
void backward_rows(StepLeaves<Leaf> at, Index K_, const Real* U, const Real* fbar, Real* abar, StepLeaves<Leaf> next,
                   Real* fbar_next) {
    const Index K = plain ? 1 : K_, R = plain ? 1 : at.R, O = plain ? 1 : at.O, O_next = plain ? 1 : next.O;
    for (Index j = 0; j < at.n; ++j) {
        Real* LT_RESTRICT a = abar + j * K * B;
        for (Index r = 0; r < R; ++r) {
            const Real* u = U + (r * at.n + j) * O * K;
            const Real* f = fbar + at.tree(r)[j] * O * B;
            for (Index o = 0; o < O; ++o)
                for (Index k = 0; k < K; ++k) add_scaled<B>(a + k * B, u[o * K + k], f + o * B);
        }
        for (Index r = 0; r < next.R; ++r)
            add<B>(fbar_next + next.tree(r)[j] * O_next * B, a + (plain ? 0 : next.first[r]) * B, O_next);
    }
}

// A single column: as in leaf_sums, four copies of the table take turns.
template <class Leaf, class Real>
void backward_column(StepLeaves<Leaf> at, const Real* LT_RESTRICT U, const Real* LT_RESTRICT fbar,
                     Real* LT_RESTRICT abar, StepLeaves<Leaf> next, Index M, Real* LT_RESTRICT fbar_next,
                     Real* LT_RESTRICT copies) {
    const Leaf *LT_RESTRICT leaf = at.ids, *LT_RESTRICT next_leaf = next.ids;
    Index j = 0;
    if (next.R)
        for (; j + 4 <= at.n; j += 4)
            for (Index i = 0; i < 4; ++i) {
                const Real a = abar[j + i] + U[j + i] * fbar[leaf[j + i]];
                abar[j + i] = a;
                copies[i * M + next_leaf[j + i]] += a;
            }
    for (; j < at.n; ++j) {
        abar[j] += U[j] * fbar[leaf[j]];
        if (next.R) copies[next_leaf[j]] += abar[j];
    }
    for (Index l = 0; next.R && l < M; ++l)
        fbar_next[l] += (copies[l] + copies[M + l]) + (copies[2 * M + l] + copies[3 * M + l]);
}

template <int B, class Leaf, class Real>
void backward_step(StepLeaves<Leaf> at, Index K, const Real* U, const Real* fbar, Real* abar, StepLeaves<Leaf> next,
                   Index M, Real* fbar_next, Real* copies) {
    const bool plain = is_plain(at, K) && (next.R == 0 || is_plain(next, K));
    if (plain && B == 1) return backward_column(at, U, fbar, abar, next, M, fbar_next, copies);
    if (plain) return backward_rows<B, true>(at, K, U, fbar, abar, next, fbar_next);
    backward_rows<B, false>(at, K, U, fbar, abar, next, fbar_next);
}

template <int B, bool scalar, class Leaf, class Real>
void expand_rows(StepLeaves<Leaf> at, const std::int64_t* offset, const Real* V, const Real* fbar, Real* out) {
    constexpr Index tile = B == 1 ? 512 : 64;  // rows whose sums stay in the first cache while the trees go by
    const Index O = scalar ? 1 : at.O;
    for (Index j0 = 0; j0 < at.n; j0 += tile) {
        const Index j1 = j0 + tile < at.n ? j0 + tile : at.n;
        for (Index r = 0; r < at.R; ++r) {
            const Leaf* LT_RESTRICT leaf = at.tree(r);
            const Real* LT_RESTRICT f = fbar + offset[r] * O * B;
            const Real* LT_RESTRICT v = V + r * at.n * O;
            for (Index j = j0; j < j1; ++j)
                for (Index o = 0; o < O; ++o) add_scaled<B>(out + j * B, v[j * O + o], f + (leaf[j] * O + o) * B);
        }
    }
}

template <int B, class Leaf, class Real>
void expand(StepLeaves<Leaf> at, const std::int64_t* offset, const Real* V, const Real* fbar, Real* out) {
    if (at.O == 1) return expand_rows<B, true>(at, offset, V, fbar, out);
    expand_rows<B, false>(at, offset, V, fbar, out);
}

template <int B, class Leaf, class Real>
void advance(StepLeaves<Leaf> at, Index K, const Real* d, Real* D) {
    for (Index j = 0; j < at.n; ++j)
        for (Index r = 0; r < at.R; ++r)
            add<B>(D + (j * K + at.first[r]) * B, d + at.tree(r)[j] * at.O * B, at.O);
}

// ---- sweeps ----

template <class T>
LT_INLINE T absolute(T x) {
    return x < 0 ? -x : x;
}

// x then e: changes that follow each other.
template <bool exponential, class Unit>
LT_INLINE Unit composed(Unit x, Unit e) {
    return exponential ? x + (e + x * e) : x + e;
}

// exp(x) - 1 without a branch: a Taylor polynomial at x / 2^halvings, then (1 + e)^2 - 1 for each halving. Changes of
// scores are small: relative error below 1e-7 (float) and 1e-15 (double) for |x| <= 1, 2e-3 and 1e-10 for |x| <= 4.
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

// Both sweeps call body.row(j, l, r, D_j) for each row j and each tree r, l its leaf. What is read is copied to locals
// before it is used: a store through a pointer would otherwise make the compiler load everything again.

// One output, one tree a step.
template <int B, bool exponential, class Leaf, class Real, class Body>
void sweep_plain(const Sweep<Leaf, Real> s, Body body) {
    using Unit = typename Lanes<Real, B>::Unit;
    constexpr int N = Lanes<Real, B>::N;
    const Leaf *leaf = s.at.ids, *before = s.before.ids;
    const Index n = s.at.n;
    for (Index j = 0; j < n; ++j) {
        const Index l = leaf[j];
        Unit x[N];
        Unit* D = units<B>(s.D + j * B);
        LT_UNITS(B) x[i_] = D[i_];
        if (s.d_before) {
            const Unit* d = units<B>(s.d_before + before[j] * B);
            LT_UNITS(B) D[i_] = x[i_] = composed<exponential>(x[i_], d[i_]);
        }
        if (s.ranking) {
            const Real pick = s.pick[j];
            Unit* to = units<B>(s.ranking + l * B);
            LT_UNITS(B) to[i_] += pick * absolute(x[i_]);
        }
        body.row(j, l, 0, x);
    }
}

template <int B, bool exponential, class Leaf, class Real, class Body>
void sweep_any(const Sweep<Leaf, Real> s, Body body) {
    using Unit = typename Lanes<Real, B>::Unit;
    constexpr int N = Lanes<Real, B>::N;
    for (Index j = 0; j < s.at.n; ++j) {
        Unit* D = units<B>(s.D + j * s.K * B);
        for (Index b = 0; s.d_before && b < s.before.R; ++b) {
            const Unit* d = units<B>(s.d_before + s.before.tree(b)[j] * s.before.O * B);
            Unit* to = D + s.before.first[b] * N;
            for (Index c = 0; c < s.before.O * N; ++c) to[c] = composed<exponential>(to[c], d[c]);
        }
        for (Index r = 0; r < s.at.R; ++r) {
            const Index l = s.at.tree(r)[j];
            for (Index o = 0; s.ranking && o < s.at.O; ++o) {
                Unit* to = units<B>(s.ranking + l * B);
                LT_UNITS(B) to[i_] += s.pick[j] * absolute(D[(s.at.first[r] + o) * N + i_]);
            }
            body.row(j, l, r, D);
        }
    }
}

template <int B, bool exponential, class Leaf, class Real, class Body>
void sweep(const Sweep<Leaf, Real>& s, const Body& body) {
    const bool plain = is_plain(s.at, s.K) && (!s.d_before || is_plain(s.before, s.K));
    if (plain) return sweep_plain<B, exponential>(s, body);
    sweep_any<B, exponential>(s, body);
}

template <int B, class Leaf, class Real>
struct TangentBody {
    using Unit = typename Lanes<Real, B>::Unit;
    static constexpr int N = Lanes<Real, B>::N;
    const Index n, O, K;
    const Real* U;
    Real* out;
    LT_INLINE void row(Index j, Index l, Index r, const Unit* D) {
        const Real* u = U + (r * n + j) * O * K;
        for (Index o = 0; o < O; ++o) {
            Unit* LT_RESTRICT to = units<B>(out + (l * O + o) * B);
            for (Index k = 0; k < K; ++k) LT_UNITS(B) to[i_] += u[o * K + k] * D[k * N + i_];
        }
    }
};

// Changes of g and h of one output, in difference form.
struct SquaredChange {
    static constexpr int C = 1;
    static constexpr bool exponential = false;  // works with exp(D) - 1
    template <class Real>
    struct Row {
        LT_INLINE Row(const Real*, const Real*) {}
        template <class Unit>
        LT_INLINE void operator()(Unit D, Unit& dg, Unit& dh) const {
            dg = D;
            dh = 0 * D;
        }
    };
};

struct LogisticChange {
    static constexpr int C = 2;
    static constexpr bool exponential = true;  // works with exp(D) - 1
    template <class Real>
    struct Row {
        Real p, q;
        LT_INLINE Row(const Real* state, const Real* shift) : p(state[0]), q(state[1]) {
            if (!shift) return;
            p *= *shift;
            const Real sum = p + q;
            p /= sum;
            q /= sum;
        }
        template <class Unit>
        LT_INLINE void operator()(Unit E, Unit& dg, Unit& dh) const {
            dg = (p * q) * E / (p * E + (p + q));
            dh = dg * ((q - p) - dg);
        }
    };
};

struct PoissonChange {
    static constexpr int C = 1;
    static constexpr bool exponential = true;  // works with exp(D) - 1
    template <class Real>
    struct Row {
        Real x;
        LT_INLINE Row(const Real* state, const Real* shift) : x(state[0] * (shift ? *shift : 1)) {}
        template <class Unit>
        LT_INLINE void operator()(Unit E, Unit& dg, Unit& dh) const {
            dg = dh = x * E;
        }
    };
};

// `exponential`: changes come as exp(D) - 1; otherwise as D.
template <class Change, bool exponential, int B, class Real>
struct ChangeBody {
    using Unit = typename Lanes<Real, B>::Unit;
    const Real *state, *w, *shift, *inner, *mask;
    Real *dG, *dH;
    LT_INLINE void row(Index j, Index l, Index, const Unit* E) const {
        const typename Change::template Row<Real> at(state + j * Change::C, shift ? shift + l : nullptr);
        const Real wj = w[j];
        const Unit *step = units<B>(inner + l * B), *used = units<B>(mask + l * B);
        Unit *LT_RESTRICT G = units<B>(dG + l * B), *LT_RESTRICT H = units<B>(dH + l * B);
        LT_UNITS(B) {
            Unit dg, dh, x = inner ? composed<exponential>(E[i_] * used[i_], step[i_]) : E[i_];
            if (Change::exponential && !exponential) x = expm1_of(x, Real());
            at(x, dg, dh);
            G[i_] += wj * dg;
            H[i_] += wj * dh;
        }
    }
};

// Several outputs. With E = exp(D) - 1: dp = p (E - mean) / (1 + mean), mean = sum p E;
// dh = diag(dp) - dp (p + dp)' - p dp'.
template <bool exponential, int B, class Leaf, class Real>
struct SoftmaxBody {
    using Unit = typename Lanes<Real, B>::Unit;
    static constexpr int N = Lanes<Real, B>::N;
    const Sweep<Leaf, Real> s;
    const Real *state, *w, *shift, *inner, *mask;
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
            const Unit *step = units<B>(inner + (l * K + k) * B), *used = units<B>(mask + l * B);
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
        const Real wj = w[j];
        for (Index a = 0; a < O; ++a) {
            const Unit* xa = dp + (first + a) * N;
            const Real pa = p[first + a];
            Unit* LT_RESTRICT G = units<B>(dG + (l * O + a) * B);
            LT_UNITS(B) G[i_] += wj * xa[i_];
            for (Index c = 0; c < O; ++c) {
                const Unit* xc = dp + (first + c) * N;
                const Real pc = p[first + c], same = a == c;
                Unit* LT_RESTRICT H = units<B>(dH + ((l * O + a) * O + c) * B);
                LT_UNITS(B) H[i_] += wj * (same * xa[i_] - xa[i_] * (pc + xc[i_]) - pa * xc[i_]);
            }
        }
    }
};

// One output. What the removed row was, at its moved score, leaves the sums of its leaf; then each leaf is solved.
template <class Leaf, class Real>
void removal_step(LossKind kind, bool newton, Index M, Index B, const Leaf* own, const double* own_state,
                  const double* move, const double* y, const double* w, const double* s, const double* D,
                  const double* rows, const double* dlam, double c, const Real* dG, const Real* dH, double* dS) {
    with_loss(kind, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        for (Index b = 0; b < B; ++b) {
            const L at(own_state + b * L::C, L::no_shift == 1 ? exp(move[b]) : move[b], y[b]);
            const double g = w[b] * at.g, h = w[b] * (newton ? at.h : 1.0);
            for (Index l = 0; l < M; ++l) {
                const bool here = own[b] == l;
                const double G = dG[l * B + b] - (here ? g : 0.0);
                const double H = (newton ? dH[l * B + b] : 0.0) - (here ? h : 0.0) + dlam[b];
                const bool alive = rows[l] - (here && w[b] > 0 ? 1.0 : 0.0) > 0 && D[l] + H > 0;
                dS[l * B + b] += c * (alive ? -(G + H * s[l]) / (D[l] + H) : -s[l]);
            }
        }
    });
}

// ---- run-time B to compile-time B ----

template <class Body>
void with_block(Index B, const Body& body) {
    switch (B) {
        case 1: return body(static_cast<char (*)[1]>(nullptr));
        case 8: return body(static_cast<char (*)[8]>(nullptr));
        case 32: return body(static_cast<char (*)[32]>(nullptr));
    }
}
#define LT_B (sizeof(*tag))

template <class Leaf, class Real>
struct Entry {
    using At = StepLeaves<Leaf>;
    static void backward(At at, Index K, Index B, const Real* U, const Real* f, Real* a, At next, Index M, Real* fn,
                         Real* copies) {
        with_block(B, [&](auto* tag) { backward_step<LT_B>(at, K, U, f, a, next, M, fn, copies); });
    }
    static void expand_(At at, Index B, const std::int64_t* offset, const Real* V, const Real* f, Real* out) {
        with_block(B, [&](auto* tag) { expand<LT_B>(at, offset, V, f, out); });
    }
    static void advance_(At at, Index K, Index B, const Real* d, Real* D) {
        with_block(B, [&](auto* tag) { advance<LT_B>(at, K, d, D); });
    }
    static void tangent(Sweep<Leaf, Real> s, const Real* U, Real* out) {
        with_block(s.B, [&](auto* tag) { sweep<LT_B, false>(s, TangentBody<LT_B, Leaf, Real>{s.at.n, s.at.O, s.K, U, out}); });
    }
    static void change(Sweep<Leaf, Real> s, LossKind kind, const Real* state, const Real* w, const Real* shift,
                       const Real* inner, const Real* mask, Real* dG, Real* dH, Real* scratch) {
        const auto one = [&](auto change, auto* tag) {
            using Change = decltype(change);
            if constexpr (Change::exponential)
                if (s.exponential) {
                    using Body = ChangeBody<Change, true, LT_B, Real>;
                    return sweep<LT_B, true>(s, Body{state, w, shift, inner, mask, dG, dH});
                }
            using Body = ChangeBody<Change, false, LT_B, Real>;
            sweep<LT_B, false>(s, Body{state, w, shift, inner, mask, dG, dH});
        };
        const auto several = [&](auto exponential, auto* tag) {
            using Body = SoftmaxBody<exponential.value, LT_B, Leaf, Real>;
            sweep<LT_B, exponential.value>(s, Body{s, state, w, shift, inner, mask, dG, dH, scratch, scratch + s.K});
        };
        with_block(s.B, [&](auto* tag) {
            switch (kind) {
                case LossKind::squared: return one(SquaredChange{}, tag);
                case LossKind::logistic: return one(LogisticChange{}, tag);
                case LossKind::poisson: return one(PoissonChange{}, tag);
                case LossKind::softmax:
                    return s.exponential ? several(std::true_type{}, tag) : several(std::false_type{}, tag);
            }
        });
    }
};

}  // namespace

template <class Leaf, class Real>
const Kernels<Leaf, Real>& kernels() {
    using At = Entry<Leaf, Real>;
    static constexpr Kernels<Leaf, Real> table{leaf_sums<Leaf>, row_effects<Leaf, Real>,
                                               At::backward,    At::expand_,
                                               removal_step<Leaf, Real>, At::advance_,
                                               At::tangent,     At::change};
    return table;
}

template const Kernels<std::uint8_t, float>& kernels();
template const Kernels<std::uint8_t, double>& kernels();
template const Kernels<std::uint16_t, float>& kernels();
template const Kernels<std::uint16_t, double>& kernels();

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
