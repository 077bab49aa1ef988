// Losses of one output: g, h, k from a row's state moved by a leaf's shift (see _model/losses.py).
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

#include <cstring>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// exp without a branch or a table, so that loops over rows vectorise: x = k ln 2 + r, a Taylor polynomial in
// r, and k is added to the exponent's bits. The relative error is below 4e-16 for |x| < 708; larger |x| are
// clipped.
LT_INLINE double fast_exp(double x) {
    const double magic = 6755399441055744.0;  // 1.5 * 2^52: adding it leaves the nearest integer in the low bits
    x = x < -708.0 ? -708.0 : x > 708.0 ? 708.0 : x;
    const double t = x * 1.4426950408889634 + magic, k = t - magic;
    const double r = (x - k * 0.693147180369123816490) - k * 1.90821492927058770002e-10;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    std::uint64_t bits;  // without a sign: shifting a negative number is undefined
    std::memcpy(&bits, &t, 8);
    bits = (bits + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, 8);
    return p * scale;
}

// The same for numbers that are rounded to float32 in the end: the polynomial is one of float32, with a relative error
// below 2e-7, as if x had been moved by so much.
template <class Real>
LT_INLINE double exp_to(double x) {
    if constexpr (sizeof(Real) == 8) return fast_exp(x);
    const double magic = 6755399441055744.0;
    x = x < -708.0 ? -708.0 : x > 708.0 ? 708.0 : x;
    const double t = x * 1.4426950408889634 + magic, k = t - magic;
    const float r = static_cast<float>(x - k * 0.6931471805599453);
    float p = 1.0f / 5040.0f;
    p = p * r + 1.0f / 720.0f;
    p = p * r + 1.0f / 120.0f;
    p = p * r + 1.0f / 24.0f;
    p = p * r + 1.0f / 6.0f;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    std::uint64_t bits;
    std::memcpy(&bits, &t, 8);
    bits = (bits + 1023) << 52;
    double scale;
    std::memcpy(&scale, &bits, 8);
    return p * scale;
}

struct Squared {
    static constexpr int C = 1;
    double g, h = 1, k = 0;
    Squared(const double* state, double shift, double y) : g(state[0] + shift - y) {}
    Squared(double A, double y) : g(A - y) {}
    // Derivatives in two steps, so that no loop over rows is long: a power of the score, and the rest.
    template <class Real>
    static double power(double A) { return A; }
    static Squared at_power(double, double A, double y) { return {A, y}; }
    static constexpr double no_shift = 0;
};

struct Logistic {
    static constexpr int C = 2;
    double g, h, k;
    Logistic(const double* state, double shift, double y) {
        const double p = state[0] * shift, q = state[1], sum = p + q;
        set(p / sum, q / sum, y);
    }
    Logistic(double A, double y) { *this = at_power(power<double>(A), A, y); }
    template <class Real>
    static double power(double A) { return exp_to<Real>(A < 0 ? A : -A); }
    static Logistic at_power(double e, double A, double y) {
        const double large = 1 / (1 + e), small = e * large;
        Logistic row;
        row.set(A > 0 ? large : small, A > 0 ? small : large, y);
        return row;
    }
    static constexpr double no_shift = 1;

private:
    Logistic() = default;
    void set(double p, double q, double y) {
        g = p * (1 - y) - q * y;
        h = p * q;
        k = h * (q - p);
    }
};

struct Poisson {
    static constexpr int C = 1;
    double g, h, k;
    Poisson(const double* state, double shift, double y) {
        h = k = state[0] * shift;
        g = h - y;
    }
    Poisson(double A, double y) {
        h = k = fast_exp(A);
        g = h - y;
    }
    template <class Real>
    static double power(double A) { return exp_to<Real>(A); }
    static Poisson at_power(double e, double, double y) { return {&e, 1, y}; }
    static constexpr double no_shift = 1;
};

// Call body(tag) with a null pointer whose type is that of the loss.
template <class Body>
void with_loss(LossKind kind, const Body& body) {
    switch (kind) {
        case LossKind::squared: return body(static_cast<Squared*>(nullptr));
        case LossKind::logistic: return body(static_cast<Logistic*>(nullptr));
        case LossKind::poisson: return body(static_cast<Poisson*>(nullptr));
        default: return;
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
