// Losses of one output: g, h, k from a row's state moved by a leaf's shift (see _losses.py).
#pragma once
#include "kernels.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

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

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
