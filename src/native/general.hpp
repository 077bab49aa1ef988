// Losses as functions of a score and a label: g and h, and their changes when the score changes by D, in
// difference form (no cancellation, also in float). A loss is constructed once for each row and called once
// for each column. The parameters c come from `changes` of the Python class, which has the formulas.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"
#include "losses.hpp"
#include "sweep.hpp"

#include <math.h>

#include <type_traits>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

LT_INLINE float root(float x) { return sqrtf(x); }
LT_INLINE double root(double x) { return sqrt(x); }

template <class Real>
LT_INLINE Real larger(Real a, Real b) {
    return a > b ? a : b;
}

template <class To, class From>
LT_INLINE To bits_of(From x) {
    static_assert(sizeof(To) == sizeof(From), "as many bits");
    To out;
    memcpy(&out, &x, sizeof(To));
    return out;
}

// log x for x >= 0, without a branch; the log of zero is that of the smallest normal number. x = 2^k m with
// m around 1, and log m = 2 atanh((m - 1) / (m + 1)).
template <class Real>
LT_INLINE Real log_of(Real x) {
    constexpr bool single = sizeof(Real) == 4;
    using Word = std::conditional_t<single, std::int32_t, std::int64_t>;
    using Bits = std::make_unsigned_t<Word>;  // differences and shifts wrap around, also for numbers that are not >= 0
    constexpr int digits = single ? 23 : 52, terms = single ? 5 : 11;
    const Real half_root = Real(0.70710678118654752);
    const Word k = static_cast<Word>(bits_of<Bits>(x) - bits_of<Bits>(half_root)) >> digits;
    const Real m = bits_of<Real>(bits_of<Bits>(x) - (static_cast<Bits>(k) << digits));
    const Real z = (m - 1) / (m + 1), square = z * z;
    Real sum = Real(2) / (2 * terms + 1);
    for (int i = terms - 1; i >= 0; --i) sum = sum * square + Real(2) / (2 * i + 1);
    return z * sum + static_cast<Real>(k) * Real(0.69314718055994531);
}

// log(1 + x), corrected for the rounding of 1 + x.
template <class Real>
LT_INLINE Real log1p_of(Real x) {
    const Real u = 1 + x, d = u - 1;
    return d == 0 ? x : log_of(u) * (x / (d == 0 ? Real(1) : d));
}

LT_INLINE double exp_of(double x) { return fast_exp(x); }
LT_INLINE float exp_of(float x) {
    const float magic = 12582912.0f;  // as in fast_exp
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float t = x * 1.44269504f + magic, k = t - magic;
    const float r = (x - k * 0.693145752f) - k * 1.42860677e-6f;
    float p = 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    return p * bits_of<float>((bits_of<std::uint32_t>(t) + 127) << 23);
}

// A loss that is piecewise linear in a number u with du/dA = m: three pieces, for u below c0, between, and
// above c1, each with g = m (a + b u) and h. The jumps of g from one piece to another and the distances to
// the breaks are computed in double.
template <class Real>
struct Pieces {
    double g, h;
    Real low, high, m, jump[3], slope[3], second[3];
    Pieces(const double* c, double u, double m_) : low(Real(c[0] - u)), high(Real(c[1] - u)), m(Real(m_)) {
        const double* here = c + 2 + 3 * (u < c[0] ? 0 : u > c[1] ? 2 : 1);
        g = m_ * (here[0] + here[1] * u);
        h = here[2];
        for (int i = 0; i < 3; ++i) {
            const double* there = c + 2 + 3 * i;
            jump[i] = Real((there[0] - here[0]) + (there[1] - here[1]) * u);
            slope[i] = Real(there[1]);
            second[i] = Real(there[2] - here[2]);
        }
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real by = m * D;
        const bool is_low = by < low, is_high = by > high;
        const Real from = is_low ? jump[0] : is_high ? jump[2] : jump[1];
        dg = m * (from + (is_low ? slope[0] : is_high ? slope[2] : slope[1]) * by);
        dh = is_low ? second[0] : is_high ? second[2] : second[1];
    }
};
template <class Real>
struct OfResidual : Pieces<Real> {
    OfResidual(const double* c, double A, double y) : Pieces<Real>(c, A - y, 1) {}
};
template <class Real>
struct OfMargin : Pieces<Real> {  // labels 0 and 1 stand for y = -1 and 1
    OfMargin(const double* c, double A, double y) : Pieces<Real>(c, (2 * y - 1) * A - 1, 2 * y - 1) {}
};
template <class Real>
struct OfRelative : Pieces<Real> {
    OfRelative(const double* c, double A, double y) : OfRelative(c, A, y, static_cast<float>(1 / larger(1.0, fabs(y)))) {}
    OfRelative(const double* c, double A, double y, double scale) : Pieces<Real>(c, scale * (A - y), scale) {}
};

// g = e - y exp(a A) + (c + d y) exp(b A).
template <class Real>
struct Exponentials {
    double g, h;
    Real a, b, u, v;
    Exponentials(const double* c, double A, double y) : a(Real(c[0])), b(Real(c[1])) {
        const double first = -y * fast_exp(c[0] * A), second = (c[2] + c[3] * y) * fast_exp(c[1] * A);
        g = c[4] + first + second;
        h = c[0] * first + c[1] * second;
        u = Real(first);
        v = Real(second);
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real du = u * expm1_of(a * D, Real()), dv = v * expm1_of(b * D, Real());
        dg = du + dv;
        dh = a * du + b * dv;
    }
};

// g = c (p - t), p = sigma(c x): x is the score and t the label, or (d = 1) x is the residual and t is 1/2.
template <class Real>
struct Sigmoid {
    double g, h;
    Real c, p, slope, step;
    Sigmoid(const double* n, double A, double y) : c(Real(n[0])) {
        const double x = n[0] * (A - n[1] * y), t = n[1] == 0 ? y : 0.5;
        const double e = fast_exp(x < 0 ? x : -x), large = 1 / (1 + e), small = e * large;
        const double p_ = x > 0 ? large : small, q = x > 0 ? small : large;
        g = n[0] * (p_ * (1 - t) - q * t);
        h = n[0] * n[0] * p_ * q;
        p = Real(p_);
        slope = Real(q - p_);
        step = Real(p_ * q);
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real E = expm1_of(c * D, Real()), dp = step * E / (p * E + 1);
        dg = c * dp;
        dh = c * c * dp * (slope - dp);
    }
};

// g = s z / o, h = 1 / o^3 with z = r / s and o = sqrt(1 + z^2). If z and z' have the same sign,
// o o' - z z' = (1 + z^2 + z'^2) / (o o' + z z'), which does not cancel.
template <class Real>
struct PseudoHuber {
    double g, h;
    Real s, inverse, z, o;
    PseudoHuber(const double* c, double A, double y) : s(Real(c[0])), inverse(Real(1 / c[0])) {
        const double z_ = (A - y) / c[0], o_ = sqrt(1 + z_ * z_);
        g = c[0] * z_ / o_;
        h = 1 / (o_ * o_ * o_);
        z = Real(z_);
        o = Real(o_);
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real d = D * inverse, to = z + d, p = root(1 + to * to), both = o * p, product = z * to;
        const Real less = product > 0 ? (1 + z * z + to * to) / (both + larger(product, Real(0))) : both - product;
        const Real over = 1 / (both * (o + p));
        dg = s * d * (1 + less) * over;
        dh = -d * (z + to) * (o * o + both + p * p) * over / (both * both);
    }
};

// g = c r / (|r| + c), h = c^2 / (|r| + c)^2.
template <class Real>
struct Fair {
    double g, h;
    Real c, r, a, over, sign;
    Fair(const double* n, double A, double y) : c(Real(n[0])) {
        const double r_ = A - y, over_ = n[0] / (fabs(r_) + n[0]);
        g = r_ * over_;
        h = over_ * over_;
        r = Real(r_);
        a = Real(fabs(r_));
        over = Real(over_);
        sign = r < 0 ? Real(-1) : Real(1);
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real to = r + D, a_to = to < 0 ? -to : to, over_to = c / (a_to + c);
        const bool crossed = sign * to < 0;
        const Real closer = crossed ? a - a_to : -sign * D;
        dg = over * over_to * (D + (crossed ? 2 * to * a / c : Real(0)));
        dh = closer / c * over * over_to * (over + over_to);
    }
};

// g = q sign(r) |r|^m, h = q m |r|^(m - 1), m = q - 1. A small change is a power of 1 + D / r.
template <class Real>
struct Power {
    double g, h;
    Real q, m, r, inverse, g0, h0;
    Power(const double* c, double A, double y) : q(Real(c[0])), m(Real(c[0] - 1)) {
        const double r_ = A - y, a = fabs(r_);
        h = c[0] * (c[0] - 1) * pow(a, c[0] - 2);
        g = h * r_ / (c[0] - 1);
        r = Real(r_);
        inverse = r == 0 ? Real(0) : 1 / r;
        g0 = Real(g);
        h0 = Real(h);
    }
    LT_INLINE void operator()(Real D, Real& dg, Real& dh) const {
        const Real x = D * inverse, to = r + D, size = x < 0 ? -x : x;
        const bool small = (r != 0) & (m * size < Real(0.25));
        const Real grown = log1p_of(small ? x : Real(0)), there = log_of(to < 0 ? -to : to);
        const Real h_to = q * m * exp_of((m - 1) * there), g_to = h_to * to / m;
        dg = small ? g0 * expm1_of(m * grown, Real()) : g_to - g0;
        dh = small ? h0 * expm1_of((m - 1) * grown, Real()) : h_to - h0;
    }
};

// g = d / x, h = (1 - d) / x^2, at least c, with x = 1 + A, at least 1e-6, and d = log x - log(1 + y).
template <class Real>
struct SquaredLog {
    double g, h;
    Real above, x, inverse, d, room;
    SquaredLog(const double* c, double A, double y) : above(Real(A + 1 - 1e-6)) {
        const double x_ = larger(A + 1 - 1e-6, 0.0) + 1e-6, d_ = log(x_) - log1p(y), j = (1 - d_) / (x_ * x_);
        g = d_ / x_;
        h = larger(j, c[0]);
        x = Real(x_);
        inverse = Real(1 / x_);
        d = Real(d_);
        room = Real(c[0] - j);
    }
    LT_INLINE void operator()(Real D_, Real& dg, Real& dh) const {
        const Real to = larger(above + D_, Real(0)) + Real(1e-6), least = larger(-above, Real(0));
        const Real D = larger(D_, -above) - least;
        const bool small = (D < 0 ? -D : D) < Real(0.5) * x;
        const Real L = small ? log1p_of(small ? D * inverse : Real(0)) : log_of(to * inverse), over = inverse / to;
        const Real dj = -(x * x * L + (1 - d) * D * (x + to)) * over * over;
        dg = (x * L - d * D) * over;
        dh = larger(dj, room) - larger(room, Real(0));
    }
};

// Call body(tag) with a null pointer whose type is that of the loss.
template <class Real, class Body>
void with_general(LossKind kind, const Body& body) {
    switch (kind) {
        case LossKind::residual: return body(static_cast<OfResidual<Real>*>(nullptr));
        case LossKind::margin: return body(static_cast<OfMargin<Real>*>(nullptr));
        case LossKind::relative: return body(static_cast<OfRelative<Real>*>(nullptr));
        case LossKind::exponentials: return body(static_cast<Exponentials<Real>*>(nullptr));
        case LossKind::sigmoid: return body(static_cast<Sigmoid<Real>*>(nullptr));
        case LossKind::pseudo_huber: return body(static_cast<PseudoHuber<Real>*>(nullptr));
        case LossKind::fair: return body(static_cast<Fair<Real>*>(nullptr));
        case LossKind::power: return body(static_cast<Power<Real>*>(nullptr));
        case LossKind::squared_log: return body(static_cast<SquaredLog<Real>*>(nullptr));
        default: return;
    }
}

// A function that computes the changes dg and dh of one row in B columns.
template <class Real>
using Change = void (*)(const double* numbers, double A, double y, const Real* D, Real* dg, Real* dh);

template <class L, int B, class Real>
void change_row(const double* numbers, double A, double y, const Real* LT_RESTRICT D, Real* LT_RESTRICT dg,
                Real* LT_RESTRICT dh) {
    const L at(numbers, A, y);
    LT_IVDEP
    for (int b = 0; b < B; ++b) at(D[b], dg[b], dh[b]);
}

// Sums of changes for outputs that do not depend on each other: one output, or K with targets of 0 and 1.
// The loss is called through a pointer, so that the pass is compiled once for all losses: one call a row is
// cheap compared with its B columns.
template <int B, class Real>
struct SeparateBody {
    static constexpr bool several = false, ranks = true;
    using Unit = typename Lanes<Real, B>::Unit;
    const Sweep<Real> s;
    const Changes<Real> c;
    const Change<Real> change;
    LT_INLINE void plain_row(Index j, Index l, const Unit* D) const { row(j, l, 0, D); }
    LT_INLINE void row(Index j, Index l, Index r, const Unit* D) const {
        const Index K = s.K, O = s.at.O, first = s.at.first[r];
        const Real wj = c.w[r * c.w_stride + j];
        for (Index a = 0; a < O; ++a) {
            const Index o = first + a;
            alignas(64) Real x_[B], dg_[B], dh_[B];
            Unit *x = units<B>(x_), *dg = units<B>(dg_), *dh = units<B>(dh_);
            const Unit* from = D + o * Lanes<Real, B>::N;
            LT_UNITS(B) x[i_] = from[i_];
            if (c.inner) {
                const Unit *used = units<B>(c.mask + l * B), *own = units<B>(c.inner + (l * O + a) * B);
                LT_UNITS(B) x[i_] = x[i_] * used[i_] + own[i_];
            }
            const double A = c.scores[j * K + o] + (c.shift ? c.shift[l * O + a] : Real(0));
            const double target = K == 1 ? c.y[j] : c.y[j] == static_cast<double>(o) ? 1.0 : 0.0;
            change(c.numbers, A, target, x_, dg_, dh_);
            Unit *LT_RESTRICT G = units<B>(c.dG + (l * O + a) * B), *LT_RESTRICT H = units<B>(c.dH + ((l * O + a) * O + a) * B);
            LT_UNITS(B) {
                G[i_] += wj * dg[i_];
                H[i_] += wj * dh[i_];
            }
        }
    }
};

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
