// Values of leaves that depend on other nodes: see _model/node_trees.py and _engine/pooled_leaves.py.
#pragma once
#include <cmath>
#include <limits>

#include "kernels.hpp"

namespace leaftrace {

// Nodes of the trees of a step: leaves (M), and splits (S), deepest first, with the two nodes below each.
struct NodeSums {
    Index M, S, W;  // W: nodes
    const std::int32_t *leaf, *splits, *children;
};

// sums (W, B) over the leaves below each node, of x (M, B); zeros before.
inline void node_sums(const NodeSums& at, Index B, const double* x, double* LT_RESTRICT sums) {
    for (Index l = 0; l < at.M; ++l)
        for (Index b = 0; b < B; ++b) sums[at.leaf[l] * B + b] = x[l * B + b];
    for (Index k = 0; k < at.S; ++k) {
        const double *left = sums + at.children[2 * k] * B, *right = sums + at.children[2 * k + 1] * B;
        double* to = sums + at.splits[k] * B;
        LT_IVDEP
        for (Index b = 0; b < B; ++b) to[b] = left[b] + right[b];
    }
}

// s (W, B): from sums of g to steps; H (W, B) sums of h. slope, if not null: the derivative of a step in the sum of g.
inline void node_steps(Index W, Index B, const double* l2, const double* bounds, const double* LT_RESTRICT lam,
                       const double* H, double* s, double* slope) {
    const double l1 = bounds[0], longest = bounds[1], least = bounds[2];
    for (Index m = 0; m < W; ++m) {
        const double* LT_RESTRICT h = H + m * B;
        double* LT_RESTRICT g = s + m * B;
        const auto step = [&](Index b, double& total, double& to) {
            const double excess = std::fabs(g[b]) - l1;
            total = h[b] + lam[b] + l2[m];
            const bool free = (total > 0) & (least <= h[b]) & ((excess > 0) | (l1 == 0));
            total = total > 0 ? total : 1.0;
            to = free ? (g[b] > 0 ? -excess : g[b] < 0 ? excess : 0.0) / total : 0.0;
            return free;
        };
        if (slope) {
            for (Index b = 0; b < B; ++b) {
                double total, to;
                const bool free = step(b, total, to);
                slope[m * B + b] = free & (std::fabs(to) < longest) ? -1 / total : 0.0;
                g[b] = to > longest ? longest : to < -longest ? -longest : to;
            }
            continue;
        }
        LT_IVDEP
        for (Index b = 0; b < B; ++b) {
            double total, to;
            step(b, total, to);
            g[b] = to > longest ? longest : to < -longest ? -longest : to;
        }
    }
}

// Nodes whose outputs depend on others, in an order in which they can be computed, with their bounds: those of the
// k-th node are lower[lower_edges[k]] .. lower[lower_edges[k + 1] - 1], each the mean output of two nodes.
struct NodeOrder {
    Index K, N, M;
    const std::int32_t* nodes;
    const std::int64_t *lower_edges, *upper_edges;
    const std::int32_t *lower, *upper;   // (., 2)
    const std::int32_t *source, *own;    // (N)
    const double* share;                 // (N)
    const std::int32_t* value;           // (M)
};

// best (B) = the tightest of some bounds, which are the mean outputs of pairs of nodes; its number for column 0, or -1
// if there are none. sign 1: the largest, -1: the smallest.
inline Index tightest(Index begin, Index end, const std::int32_t* pairs, const double* outputs, Index B, double sign,
                      double* LT_RESTRICT best) {
    Index which = -1;
    if (begin == end) return which;
    for (Index b = 0; b < B; ++b) best[b] = -sign * std::numeric_limits<double>::infinity();
    for (Index p = begin; p < end; ++p) {
        const double *x = outputs + pairs[2 * p] * B, *y = outputs + pairs[2 * p + 1] * B;
        const double first = best[0];
        LT_IVDEP
        for (Index b = 0; b < B; ++b) {
            const double mean = 0.5 * (x[b] + y[b]);
            best[b] = sign * mean > sign * best[b] ? mean : best[b];
        }
        if (which < 0 || best[0] != first) which = p;
    }
    return which;
}

// out (M, B) outputs of the leaves from the steps s (W, B). bound (K), if not null: the bound that decides the output of
// a node in the only column, counted through the lower and then the upper ones, or -1. outputs, room: N B and 2 B numbers.
inline void node_outputs(const NodeOrder& at, Index B, const double* s, double* out, std::int32_t* bound,
                         double* outputs, double* room) {
    for (Index m = 0; m < at.N; ++m)
        for (Index b = 0; b < B; ++b) outputs[m * B + b] = s[at.own[m] * B + b];
    const Index lowers = at.lower_edges[at.K];
    double *LT_RESTRICT low = room, *LT_RESTRICT high = room + B;
    for (Index k = 0; k < at.K; ++k) {
        const Index m = at.nodes[k];
        const double share = at.share[m], *source = outputs + at.source[m] * B;
        double* to = outputs + m * B;
        if (share < 1) {
            LT_IVDEP
            for (Index b = 0; b < B; ++b) to[b] = share * to[b] + (1 - share) * source[b];
        }
        const Index from = tightest(at.lower_edges[k], at.lower_edges[k + 1], at.lower, outputs, B, 1, low);
        const Index until = tightest(at.upper_edges[k], at.upper_edges[k + 1], at.upper, outputs, B, -1, high);
        const bool is_low = from >= 0 && *to < *low, is_high = until >= 0 && !is_low && *to > *high;
        if (bound) bound[k] = static_cast<std::int32_t>(is_low ? from : is_high ? lowers + until : -1);
        if (from >= 0 && until >= 0) {
            LT_IVDEP
            for (Index b = 0; b < B; ++b) to[b] = to[b] < low[b] ? low[b] : to[b] > high[b] ? high[b] : to[b];
        } else if (from >= 0) {
            LT_IVDEP
            for (Index b = 0; b < B; ++b) to[b] = to[b] < low[b] ? low[b] : to[b];
        } else if (until >= 0) {
            LT_IVDEP
            for (Index b = 0; b < B; ++b) to[b] = to[b] > high[b] ? high[b] : to[b];
        }
    }
    for (Index l = 0; l < at.M; ++l)
        for (Index b = 0; b < B; ++b) out[l * B + b] = outputs[at.value[l] * B + b];
}

// out (M, B): isotonic regression of u with weights D, both (M, B), along each of C chains of n leaves. Neighbours that
// fall are pooled until none does. room: 3 n numbers.
inline void pool_chains(Index C, Index n, Index B, const std::int64_t* chains, double least_weight, const double* u,
                        const double* D, double* out, double* room) {
    double *weight = room, *sum = room + n, *count = room + 2 * n;
    for (Index c = 0; c < C; ++c)
        for (Index b = 0; b < B; ++b) {
            Index blocks = 0;
            for (Index i = 0; i < n; ++i, ++blocks) {
                const Index at = chains[c * n + i] * B + b;
                weight[blocks] = D[at] > least_weight ? D[at] : least_weight;
                sum[blocks] = weight[blocks] * u[at];
                count[blocks] = 1;
                for (; blocks > 0 && sum[blocks - 1] / weight[blocks - 1] >= sum[blocks] / weight[blocks]; --blocks) {
                    weight[blocks - 1] += weight[blocks];
                    sum[blocks - 1] += sum[blocks];
                    count[blocks - 1] += count[blocks];
                }
            }
            for (Index k = 0, i = 0; k < blocks; ++k)
                for (const Index end = i + static_cast<Index>(count[k]); i < end; ++i)
                    out[chains[c * n + i] * B + b] = sum[k] / weight[k];
        }
}

}  // namespace leaftrace
