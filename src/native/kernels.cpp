// Compiled once for each instruction set; LEAFTRACE_ISA names the namespace. Nothing from the standard library that
// could be shared with another copy is used here, so no copy can leak its instructions into another.
#include "kernels.hpp"

#include <type_traits>

#if defined(__GNUC__)
#define LT_RESTRICT __restrict__
#define LT_LANES _Pragma("GCC ivdep")
#else
#define LT_RESTRICT __restrict
#define LT_LANES
#endif

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
            LT_LANES
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

// ---- blocks of B columns: B is a template argument so that the lane loops vectorise ----

template <int B, class Leaf, class Real>
void add_leaf_sums(const StepLeaves<Leaf>& at, Index K, Index j, const Real* LT_RESTRICT a, Real* LT_RESTRICT sums) {
    (void)K;
    for (Index r = 0; r < at.R; ++r) {
        Real* LT_RESTRICT f = sums + at.tree(r)[j] * at.O * B;
        const Real* LT_RESTRICT from = a + at.first[r] * B;
        for (Index i = 0; i < at.O; ++i) {
            LT_LANES
            for (int b = 0; b < B; ++b) f[i * B + b] += from[i * B + b];
        }
    }
}

template <int B, class Leaf, class Real>
void backward_step(StepLeaves<Leaf> at, Index K, const Real* U, const Real* fbar, Real* abar, StepLeaves<Leaf> next,
                   Real* fbar_next) {
    for (Index j = 0; j < at.n; ++j) {
        Real* LT_RESTRICT a = abar + j * K * B;
        for (Index r = 0; r < at.R; ++r) {
            const Real* LT_RESTRICT u = U + (r * at.n + j) * at.O * K;
            const Real* LT_RESTRICT f = fbar + at.tree(r)[j] * at.O * B;
            for (Index o = 0; o < at.O; ++o)
                for (Index k = 0; k < K; ++k) {
                    const Real c = u[o * K + k];
                    LT_LANES
                    for (int b = 0; b < B; ++b) a[k * B + b] += c * f[o * B + b];
                }
        }
        if (next.ids) add_leaf_sums<B>(next, K, j, a, fbar_next);
    }
}

template <int B, class Leaf, class Real>
void expand(StepLeaves<Leaf> at, const std::int64_t* offset, const Real* V, const Real* fbar, Real* out) {
    constexpr Index tile = 64;  // rows whose sums stay in the first cache while the trees go by
    for (Index j0 = 0; j0 < at.n; j0 += tile) {
        const Index j1 = j0 + tile < at.n ? j0 + tile : at.n;
        for (Index r = 0; r < at.R; ++r) {
            const Leaf* leaf = at.tree(r);
            const Real* f_tree = fbar + offset[r] * at.O * B;
            for (Index j = j0; j < j1; ++j) {
                Real* LT_RESTRICT to = out + j * B;
                const Real* LT_RESTRICT f = f_tree + leaf[j] * at.O * B;
                for (Index o = 0; o < at.O; ++o) {
                    const Real v = V[(r * at.n + j) * at.O + o];
                    LT_LANES
                    for (int b = 0; b < B; ++b) to[b] += v * f[o * B + b];
                }
            }
        }
    }
}

template <int B, class Leaf, class Real>
void advance(StepLeaves<Leaf> at, Index K, const Real* d, bool exponential, Real* E) {
    const Real c = exponential ? 1 : 0;
    for (Index j = 0; j < at.n; ++j)
        for (Index r = 0; r < at.R; ++r) {
            const Real* LT_RESTRICT step = d + at.tree(r)[j] * at.O * B;
            Real* LT_RESTRICT e = E + (j * K + at.first[r]) * B;
            for (Index o = 0; o < at.O; ++o) {
                LT_LANES
                for (int b = 0; b < B; ++b) {
                    const Real x = step[o * B + b];
                    e[o * B + b] += x + c * e[o * B + b] * x;
                }
            }
        }
}

template <class Real>
Real absolute(Real x) {
    return x < 0 ? -x : x;
}

template <int B, class Leaf, class Real>
void abs_sums(StepLeaves<Leaf> at, Index K, const Real* pick, const Real* D, Real* out) {
    for (Index j = 0; j < at.n; ++j) {
        if (pick[j] == 0) continue;
        for (Index r = 0; r < at.R; ++r) {
            Real* LT_RESTRICT to = out + at.tree(r)[j] * B;
            const Real* LT_RESTRICT d = D + (j * K + at.first[r]) * B;
            for (Index o = 0; o < at.O; ++o) {
                LT_LANES
                for (int b = 0; b < B; ++b) to[b] += absolute(d[o * B + b]);
            }
        }
    }
}

template <int B, class Leaf, class Real>
void tangent_sums(StepLeaves<Leaf> at, Index K, const Real* U, const Real* D, Real* out) {
    for (Index j = 0; j < at.n; ++j)
        for (Index r = 0; r < at.R; ++r) {
            const Real* LT_RESTRICT u = U + (r * at.n + j) * at.O * K;
            const Real* LT_RESTRICT d = D + j * K * B;
            Real* LT_RESTRICT to = out + at.tree(r)[j] * at.O * B;
            for (Index o = 0; o < at.O; ++o)
                for (Index k = 0; k < K; ++k) {
                    const Real c = u[o * K + k];
                    LT_LANES
                    for (int b = 0; b < B; ++b) to[o * B + b] += c * d[k * B + b];
                }
        }
}

// ---- changes of g and h in difference form ----

struct SquaredChange {
    static constexpr int C = 1;
    static constexpr bool exponential = false;
    template <class Real>
    struct Row {
        Row(const Real*, const Real*) {}
        void operator()(Real E, Real& dg, Real& dh) const { dg = E, dh = 0; }
    };
};

struct LogisticChange {
    static constexpr int C = 2;
    static constexpr bool exponential = true;
    template <class Real>
    struct Row {
        Real p, q;
        Row(const Real* state, const Real* shift) : p(state[0]), q(state[1]) {
            if (!shift) return;
            p *= *shift;
            const Real sum = p + q;
            p /= sum, q /= sum;
        }
        void operator()(Real E, Real& dg, Real& dh) const {
            dg = p * q * E / (q + p * (1 + E));
            dh = dg * (q - p - dg);
        }
    };
};

struct PoissonChange {
    static constexpr int C = 1;
    static constexpr bool exponential = true;
    template <class Real>
    struct Row {
        Real x;
        Row(const Real* state, const Real* shift) : x(state[0] * (shift ? *shift : 1)) {}
        void operator()(Real E, Real& dg, Real& dh) const { dg = dh = x * E; }
    };
};

template <class Change, int B, class Leaf, class Real>
void change_sums_one(StepLeaves<Leaf> at, const Real* state, const Real* w, const Real* shift, const Real* e,
                     const Real* mask, const Real* E, Real* dG, Real* dH) {
    for (Index i = 0; i < at.R * at.n; ++i) {
        const Index j = i % at.n, l = at.tree(i / at.n)[j];
        const typename Change::template Row<Real> row(state + j * Change::C, shift ? shift + l : nullptr);
        const Real wj = w[j];
        const Real* LT_RESTRICT Ej = E + j * B;
        Real* LT_RESTRICT G = dG + l * B;
        Real* LT_RESTRICT H = dH + l * B;
        if (!e) {
            LT_LANES
            for (int b = 0; b < B; ++b) {
                Real dg, dh;
                row(Ej[b], dg, dh);
                G[b] += wj * dg;
                H[b] += wj * dh;
            }
        } else {
            const Real* LT_RESTRICT el = e + l * B;
            const Real* LT_RESTRICT ml = mask + l * B;
            LT_LANES
            for (int b = 0; b < B; ++b) {
                const Real from = ml[b] * Ej[b];
                Real dg, dh;
                row(from + el[b] + (Change::exponential ? from * el[b] : 0), dg, dh);
                G[b] += wj * dg;
                H[b] += wj * dh;
            }
        }
    }
}

// Several outputs. dp = p (E - mean) / (1 + mean), mean = sum p E; dh = diag(dp) - dp (p + dp)' - p dp'.
template <int B, class Leaf, class Real>
void change_sums_softmax(StepLeaves<Leaf> at, Index K, const Real* state, const Real* w, const Real* shift,
                         const Real* e, const Real* mask, const Real* E, Real* dG, Real* dH, Real* scratch) {
    Real* LT_RESTRICT x = scratch;           // (K, B) changes of this row, then dp
    Real* LT_RESTRICT p = scratch + K * B;   // (K)
    for (Index j = 0; j < at.n; ++j) {
        Real total = 0;
        for (Index k = 0; k < K; ++k) {
            p[k] = state[j * K + k] * (shift ? shift[at.tree(0)[j] * K + k] : 1);
            total += p[k];
        }
        Real mean[B] = {};
        for (Index k = 0; k < K; ++k) {
            p[k] /= total;
            const Real* LT_RESTRICT Ej = E + (j * K + k) * B;
            Real* LT_RESTRICT xk = x + k * B;
            if (e) {
                const Real* LT_RESTRICT ek = e + (at.tree(0)[j] * K + k) * B;
                const Real* LT_RESTRICT ml = mask + at.tree(0)[j] * B;
                LT_LANES
                for (int b = 0; b < B; ++b) xk[b] = ml[b] * Ej[b] * (1 + ek[b]) + ek[b];
            } else {
                LT_LANES
                for (int b = 0; b < B; ++b) xk[b] = Ej[b];
            }
            LT_LANES
            for (int b = 0; b < B; ++b) mean[b] += p[k] * xk[b];
        }
        for (Index k = 0; k < K; ++k) {
            Real* LT_RESTRICT xk = x + k * B;
            LT_LANES
            for (int b = 0; b < B; ++b) xk[b] = p[k] * (xk[b] - mean[b]) / (1 + mean[b]);
        }
        const Real wj = w[j];
        for (Index r = 0; r < at.R; ++r) {
            const Index l = at.tree(r)[j], first = at.first[r];
            for (Index a = 0; a < at.O; ++a) {
                const Real* LT_RESTRICT xa = x + (first + a) * B;
                const Real pa = p[first + a];
                Real* LT_RESTRICT G = dG + (l * at.O + a) * B;
                LT_LANES
                for (int b = 0; b < B; ++b) G[b] += wj * xa[b];
                for (Index c = 0; c < at.O; ++c) {
                    const Real* LT_RESTRICT xc = x + (first + c) * B;
                    const Real pc = p[first + c], same = a == c;
                    Real* LT_RESTRICT H = dH + ((l * at.O + a) * at.O + c) * B;
                    LT_LANES
                    for (int b = 0; b < B; ++b)
                        H[b] += wj * (same * xa[b] - xa[b] * (pc + xc[b]) - pa * xc[b]);
                }
            }
        }
    }
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
    static void backward(At at, Index K, Index B, const Real* U, const Real* f, Real* a, At next, Real* fn) {
        with_block(B, [&](auto* tag) { backward_step<LT_B>(at, K, U, f, a, next, fn); });
    }
    static void expand_(At at, Index B, const std::int64_t* offset, const Real* V, const Real* f, Real* out) {
        with_block(B, [&](auto* tag) { expand<LT_B>(at, offset, V, f, out); });
    }
    static void advance_(At at, Index K, Index B, const Real* d, bool exponential, Real* E) {
        with_block(B, [&](auto* tag) { advance<LT_B>(at, K, d, exponential, E); });
    }
    static void abs_(At at, Index K, Index B, const Real* pick, const Real* D, Real* out) {
        with_block(B, [&](auto* tag) { abs_sums<LT_B>(at, K, pick, D, out); });
    }
    static void tangent(At at, Index K, Index B, const Real* U, const Real* D, Real* out) {
        with_block(B, [&](auto* tag) { tangent_sums<LT_B>(at, K, U, D, out); });
    }
    static void change(At at, LossKind kind, Index K, Index B, const Real* state, const Real* w, const Real* shift,
                       const Real* e, const Real* mask, const Real* E, Real* dG, Real* dH, Real* scratch) {
        with_block(B, [&](auto* tag) {
            switch (kind) {
                case LossKind::squared:
                    return change_sums_one<SquaredChange, LT_B>(at, state, w, shift, e, mask, E, dG, dH);
                case LossKind::logistic:
                    return change_sums_one<LogisticChange, LT_B>(at, state, w, shift, e, mask, E, dG, dH);
                case LossKind::poisson:
                    return change_sums_one<PoissonChange, LT_B>(at, state, w, shift, e, mask, E, dG, dH);
                case LossKind::softmax:
                    return change_sums_softmax<LT_B>(at, K, state, w, shift, e, mask, E, dG, dH, scratch);
            }
        });
    }
};

}  // namespace

template <class Leaf, class Real>
const Kernels<Leaf, Real>& kernels() {
    using At = Entry<Leaf, Real>;
    static constexpr Kernels<Leaf, Real> table{leaf_sums<Leaf>, row_effects<Leaf, Real>,
                                               At::backward,    At::expand_,      At::advance_,
                                               At::abs_,        At::tangent,      At::change};
    return table;
}

template const Kernels<std::uint8_t, float>& kernels();
template const Kernels<std::uint8_t, double>& kernels();
template const Kernels<std::uint16_t, float>& kernels();
template const Kernels<std::uint16_t, double>& kernels();

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
