// The leaf equations solved without a removed row, a different one in each column of a block.
#pragma once
#include "general.hpp"
#include "lanes.hpp"
#include "losses.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// g and h of a general loss at a score.
LT_CALLED void general_terms(LossKind kind, const double* numbers, double A, double y, double* g, double* h) {
    with_general<double>(kind, [&](auto* tag) {
        const std::remove_pointer_t<decltype(tag)> at(numbers, A, y);
        *g = at.g;
        *h = at.h;
    });
}

// w g (O) and w h (O, O) of removed row b in tree r, at its moved score.
template <class Real>
LT_CALLED void own_terms(const Removal<Real>& e, Index r, Index b, double* p, double* g, double* h) {
    const Index O = e.O, K = e.K, first = e.first[r], B = e.B;
    const double *move = e.move + r * K * B + b, y = e.y[b], w = e.w[r * e.w_stride + b];
    for (Index i = 0; i < O * O; ++i) h[i] = 0;
    if (e.kind == LossKind::softmax) {
        double total = 0, top = move[0];
        for (Index k = 1; k < K; ++k) top = larger(top, move[k * B]);
        for (Index k = 0; k < K; ++k) total += p[k] = e.state[b * K + k] * fast_exp(move[k * B] - top);
        for (Index k = 0; k < K; ++k) p[k] /= total;
        for (Index a = 0; a < O; ++a) {
            const double pa = p[first + a];
            g[a] = w * (y == static_cast<double>(first + a) ? pa - 1 : pa);
            for (Index c = 0; c < O; ++c) h[a * O + c] = w * pa * ((a == c ? 1.0 : 0.0) - p[first + c]);
        }
    } else if (is_general(e.kind)) {
        for (Index a = 0; a < O; ++a) {
            const Index o = first + a;
            const double target = K == 1 ? y : y == static_cast<double>(o) ? 1.0 : 0.0;
            general_terms(e.kind, e.numbers, e.state[b * K + o] + move[o * B], target, g + a, h + a * O + a);
            g[a] *= w;
            h[a * O + a] *= w;
        }
    } else {
        with_loss(e.kind, [&](auto* tag) {
            using L = std::remove_pointer_t<decltype(tag)>;
            const L at(e.state + b * L::C, L::no_shift == 1 ? fast_exp(*move) : *move, y);
            g[0] = w * at.g;
            h[0] = w * at.h;
        });
    }
    for (Index a = 0; !e.newton && a < O; ++a)
        for (Index c = 0; c < O; ++c) h[a * O + c] = a == c ? w : 0;
}

// dS += c ds of one output o of leaf l, for columns begin .. end - 1, with g and h subtracted from the sums and
// `gone` rows from the leaf.
template <bool limited, class Real>
LT_INLINE void one_output_leaf(const Removal<Real>& e, Index l, Index o, Index begin, Index end, double g, double h,
                               double gone) {
    const Index O = e.O, B = e.B, at = l * O + o;
    const Real *LT_RESTRICT dG = e.dG + at * B, *LT_RESTRICT dH = e.dH + (at * O + o) * B;
    const double *LT_RESTRICT dlam = e.dlam, s = e.s[at], D = e.D[at * O + o], second = e.newton ? 1.0 : 0.0, c = e.c;
    double* LT_RESTRICT dS = e.dS + at * B;
    const bool alive = e.rows[l] - gone > 0;
    if (limited) {
        const double lam = e.lam[l], l1 = e.bounds[0], longest = e.bounds[1], least = e.bounds[2], G = e.G[at];
        const double moves = e.fixed[l] ? 0.0 : c;
        LT_IVDEP
        for (Index b = begin; b < end; ++b) {
            const double sum = G + (dG[b] - g), H = D + (second * dH[b] - h) - lam, total = H + lam + dlam[b];
            const double shrunk = (sum < 0 ? -sum : sum) - l1;
            const bool free = (total > 0) & (least <= H) & ((shrunk > 0) | (l1 == 0));
            double to = free ? (sum < 0 ? shrunk : -shrunk) / (total > 0 ? total : 1.0) : 0.0;
            to = to > longest ? longest : to < -longest ? -longest : to;
            dS[b] += moves * ((alive ? to : 0.0) - s);
        }
        return;
    }
    LT_IVDEP
    for (Index b = begin; b < end; ++b) {
        const double G = dG[b] - g, H = second * dH[b] - h + dlam[b], total = D + H;
        const bool ok = alive & (total > 0);
        dS[b] += c * (ok ? -(G + H * s) / (ok ? total : 1.0) : -s);
    }
}

// The same for a leaf whose outputs are solved together, all columns side by side: elimination without pivots,
// as the matrices are symmetric and positive. room: (O + 2) O B numbers.
template <class Real>
void joint_leaf(const Removal<Real>& e, Index l, Index begin, Index end, const double* g, const double* h, double gone,
                double* LT_RESTRICT room) {
    const Index O = e.O, B = e.B;
    double *LT_RESTRICT T = room, *LT_RESTRICT x = room + O * O * B, *LT_RESTRICT ok = x + O * B;  // (O, O, B), (O, B), (B)
    const double* s = e.s + l * O;
    for (Index b = begin; b < end; ++b) ok[b] = e.rows[l] - gone > 0 ? 1.0 : 0.0;
    for (Index a = 0; a < O; ++a) {
        const Real* LT_RESTRICT dG = e.dG + (l * O + a) * B;
        LT_IVDEP
        for (Index b = begin; b < end; ++b) x[a * B + b] = -(dG[b] - (g ? g[a] : 0.0));
        for (Index i = 0; i < O; ++i) {
            const Real* LT_RESTRICT dH = e.dH + ((l * O + a) * O + i) * B;
            const double D = e.D[(l * O + a) * O + i], own = h ? h[a * O + i] : 0.0, second = e.newton ? 1.0 : 0.0;
            const double diagonal = a == i ? 1.0 : 0.0;
            LT_IVDEP
            for (Index b = begin; b < end; ++b) {
                const double dD = second * dH[b] - own + diagonal * e.dlam[b];
                x[a * B + b] -= dD * s[i];
                T[(a * O + i) * B + b] = D + dD;
            }
        }
        LT_IVDEP
        for (Index b = begin; b < end; ++b) ok[b] = T[(a * O + a) * B + b] > 0 ? ok[b] : 0.0;
    }
    for (Index a = 0; a < O; ++a)
        for (Index i = a + 1; i < O; ++i) {
            double *LT_RESTRICT to = T + i * O * B, *LT_RESTRICT from = T + a * O * B;
            LT_IVDEP
            for (Index b = begin; b < end; ++b) {
                const double factor = to[a * B + b] / from[a * B + b];
                for (Index k = a + 1; k < O; ++k) to[k * B + b] -= factor * from[k * B + b];
                x[i * B + b] -= factor * x[a * B + b];
            }
        }
    for (Index a = O - 1; a >= 0; --a) {
        const double* LT_RESTRICT row = T + a * O * B;
        double* LT_RESTRICT dS = e.dS + (l * O + a) * B;
        LT_IVDEP
        for (Index b = begin; b < end; ++b) {
            for (Index k = a + 1; k < O; ++k) x[a * B + b] -= row[k * B + b] * x[k * B + b];
            x[a * B + b] /= row[a * B + b];
            dS[b] += e.c * (ok[b] > 0 ? x[a * B + b] : -s[a]);
        }
    }
}

// Solve all leaves as if they lost no row, then solve those that hold the removed rows again.
template <class Real>
void removal_step(const Removal<Real> e, double* scratch) {
    const Index O = e.O, B = e.B;
    double *p = scratch, *g = p + e.K, *h = g + O, *before = h + O * O, *room = before + e.R * O * B;
    const bool joint = O > 1 && !(e.bounds && e.diagonal);
    const auto leaf = [&](Index l, Index begin, Index end, const double* g_, const double* h_, double gone) {
        if (joint) return joint_leaf(e, l, begin, end, g_, h_, gone, room);
        for (Index o = 0; o < O; ++o) {
            const double go = g_ ? g_[o] : 0.0, ho = h_ ? h_[o * O + o] : 0.0;
            if (e.bounds)
                one_output_leaf<true>(e, l, o, begin, end, go, ho, gone);
            else
                one_output_leaf<false>(e, l, o, begin, end, go, ho, gone);
        }
    };
    for (Index i = 0; i < e.R * B; ++i)
        for (Index o = 0; o < O; ++o) before[i * O + o] = e.dS[(e.own[i] * O + o) * B + i % B];
    for (Index l = 0; l < e.M; ++l) leaf(l, 0, B, nullptr, nullptr, 0);
    for (Index r = 0; r < e.R; ++r)
        for (Index b = 0; b < B; ++b) {
            const Index l = e.own[r * B + b];
            for (Index o = 0; o < O; ++o) e.dS[(l * O + o) * B + b] = before[(r * B + b) * O + o];
            own_terms(e, r, b, p, g, h);
            leaf(l, b, b + 1, g, h, e.w[r * e.w_stride + b] > 0 ? 1.0 : 0.0);
        }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
