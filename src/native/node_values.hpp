// Values of leaves that depend on other nodes: see _model/node_trees.py and _engine/pooled_leaves.py.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "kernels.hpp"

namespace leaftrace {

// Nodes of the trees of a step: leaves (M), and splits (S), deepest first, with the two nodes below each.
struct NodeSums {
    Index M, S, W;  // W: nodes
    const std::int32_t *leaf, *splits, *children;
};

// Numbers (nodes, B) with a column for each of several models. These often differ by a single row, so that most nodes have
// the same number in all columns: `same` (nodes) is 1 for these. They have one number in `first`, and no row until it is
// spread; other nodes have a row.
struct Columns {
    Index B;
    double *first, *rows;  // (nodes), (nodes, B)

    double* at(Index node, bool same) const { return same ? first + node : rows + node * B; }
    void spread(Index node, bool same) const {
        for (Index b = 0; same && b < B; ++b) rows[node * B + b] = first[node];
    }
};

// Numbers of leaves (M, B), or (M) if they are the same in all columns; but for R leaves of each column, whose ids (R, B)
// and own numbers (R, B) stand beside them.
struct LeafNumbers {
    Index B, R;
    bool dense;
    const double* x;
    const std::int32_t* ids;
    const double* own;

    const double* of(Index l) const { return x + (dense ? l * B : l); }
    bool same(Index l) const { return !dense || !std::memcmp(of(l), of(l) + 1, (B - 1) * sizeof(double)); }
};

// same (W): whether all columns of G and H are the same in the leaves below each node.
inline void mark_same(const NodeSums& at, LeafNumbers G, LeafNumbers H, std::uint8_t* same) {
    for (Index m = 0; m < at.W; ++m) same[m] = 1;
    for (Index l = 0; l < at.M; ++l) same[at.leaf[l]] = G.same(l) && H.same(l);
    for (Index i = 0; i < G.R * G.B; ++i) same[at.leaf[G.ids[i]]] = 0;
    for (Index k = 0; k < at.S; ++k) same[at.splits[k]] = same[at.children[2 * k]] & same[at.children[2 * k + 1]];
}

// Sums over the leaves below each node. Leaves with own numbers are not the same in all columns, if there are several.
inline void node_sums(const NodeSums& at, LeafNumbers x, const std::uint8_t* same, Columns sums) {
    const Index B = sums.B;
    for (Index m = 0; m < at.W; ++m)
        for (Index b = 0; b < (same[m] ? 1 : B); ++b) sums.at(m, same[m])[b] = 0;
    for (Index l = 0; l < at.M; ++l) {
        const Index m = at.leaf[l];
        for (Index b = 0; b < (same[m] ? 1 : B); ++b) sums.at(m, same[m])[b] = x.of(l)[x.dense ? b : 0];
    }
    for (Index i = 0; i < x.R * B; ++i) sums.at(at.leaf[x.ids[i]], false)[i % B] = x.own[i];
    for (Index k = 0; k < at.S; ++k) {
        const Index node = at.splits[k], left = at.children[2 * k], right = at.children[2 * k + 1];
        const bool one = same[node];
        if (!one) {
            sums.spread(left, same[left]);
            sums.spread(right, same[right]);
        }
        const double *x_left = sums.at(left, one), *x_right = sums.at(right, one);
        double* to = sums.at(node, one);
        const Index width = one ? 1 : B;
        LT_IVDEP
        for (Index b = 0; b < width; ++b) to[b] = x_left[b] + x_right[b];
    }
}

// From sums of g to steps s; H has sums of h. slope (W, B), if not null: the derivative of a step in the sum of g, where
// no node has the same number in all columns.
inline void node_steps(Index W, const double* l2, const double* bounds, const double* LT_RESTRICT lam,
                       const std::uint8_t* same, Columns H, Columns s, double* slope) {
    const double l1 = bounds[0], longest = bounds[1], least = bounds[2];
    for (Index m = 0; m < W; ++m) {
        const double* LT_RESTRICT h = H.at(m, same[m]);
        double* LT_RESTRICT g = s.at(m, same[m]);
        const Index width = same[m] ? 1 : s.B;
        const auto step = [&](Index b, double& total, double& to) {
            const double excess = std::fabs(g[b]) - l1;
            total = h[b] + lam[b] + l2[m];
            const bool free = (total > 0) & (least <= h[b]) & ((excess > 0) | (l1 == 0));
            total = total > 0 ? total : 1.0;
            to = free ? (g[b] > 0 ? -excess : g[b] < 0 ? excess : 0.0) / total : 0.0;
            return free;
        };
        if (slope) {
            for (Index b = 0; b < width; ++b) {
                double total, to;
                const bool free = step(b, total, to);
                slope[m * s.B + b] = free & (std::fabs(to) < longest) ? -1 / total : 0.0;
                g[b] = to > longest ? longest : to < -longest ? -longest : to;
            }
            continue;
        }
        LT_IVDEP
        for (Index b = 0; b < width; ++b) {
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

// best (width) = the tightest of some bounds, which are the mean outputs of pairs of nodes; its number for column 0, or
// -1 if there are none. sign 1: the largest, -1: the smallest.
inline Index tightest(Index begin, Index end, const std::int32_t* pairs, Columns outputs, Index width, bool one,
                      double sign, double* LT_RESTRICT best) {
    Index which = -1;
    if (begin == end) return which;
    for (Index b = 0; b < width; ++b) best[b] = -sign * std::numeric_limits<double>::infinity();
    for (Index p = begin; p < end; ++p) {
        const double *x = outputs.at(pairs[2 * p], one), *y = outputs.at(pairs[2 * p + 1], one);
        const double first = best[0];
        LT_IVDEP
        for (Index b = 0; b < width; ++b) {
            const double mean = 0.5 * (x[b] + y[b]);
            best[b] = sign * mean > sign * best[b] ? mean : best[b];
        }
        if (which < 0 || best[0] != first) which = p;
    }
    return which;
}

// Whether all that the output of the k-th node depends on is the same in all columns. If it is not, the nodes that it
// depends on are spread over all columns.
inline bool same_sources(const NodeOrder& at, Index k, Columns outputs, std::uint8_t* same) {
    const Index m = at.nodes[k];
    const auto each_source = [&](const auto& body) {
        if (at.share[m] < 1) body(at.source[m]);
        for (Index p = 2 * at.lower_edges[k]; p < 2 * at.lower_edges[k + 1]; ++p) body(at.lower[p]);
        for (Index p = 2 * at.upper_edges[k]; p < 2 * at.upper_edges[k + 1]; ++p) body(at.upper[p]);
    };
    bool all = same[m];
    each_source([&](Index from) { all &= same[from] != 0; });
    if (all) return true;
    each_source([&](Index from) {
        outputs.spread(from, same[from] == 1);
        if (same[from]) same[from] = 2;  // once
    });
    return false;
}

// The mean outputs of two nodes, which are a bound.
struct Mean {
    const double *x, *y;

    Mean(const std::int32_t* pair, Columns outputs, bool one) : x(outputs.at(pair[0], one)), y(outputs.at(pair[1], one)) {}
    double operator()(Index b) const { return 0.5 * (x[b] + y[b]); }
};

// to (width) = value within bounds, for a node that has at most one on each side: the usual case, in one loop.
template <class Value>
LT_INLINE void within_two(const NodeOrder& at, Index k, Columns outputs, Index width, bool one, Value value, double* to) {
    const Index below = at.lower_edges[k], above = at.upper_edges[k];
    const bool has_least = at.lower_edges[k + 1] > below, has_most = at.upper_edges[k + 1] > above;
    if (width == 1) {
        const double x = value(0), low = has_least ? Mean(at.lower + 2 * below, outputs, one)(0) : x;
        const double high = has_most ? Mean(at.upper + 2 * above, outputs, one)(0) : x;
        *to = x < low ? low : x > high ? high : x;
        return;
    }
    if (has_least && has_most) {
        const Mean least(at.lower + 2 * below, outputs, one), most(at.upper + 2 * above, outputs, one);
        LT_IVDEP
        for (Index b = 0; b < width; ++b) {
            const double x = value(b), low = least(b), high = most(b);
            to[b] = x < low ? low : x > high ? high : x;
        }
    } else if (has_least) {
        const Mean least(at.lower + 2 * below, outputs, one);
        LT_IVDEP
        for (Index b = 0; b < width; ++b) {
            const double x = value(b), low = least(b);
            to[b] = x < low ? low : x;
        }
    } else if (has_most) {
        const Mean most(at.upper + 2 * above, outputs, one);
        LT_IVDEP
        for (Index b = 0; b < width; ++b) {
            const double x = value(b), high = most(b);
            to[b] = x > high ? high : x;
        }
    } else {
        for (Index b = 0; b < width; ++b) to[b] = value(b);
    }
}

// out (M, B) outputs of the leaves from the steps s, less those in `before` (M), if it is not null. bound (K), if not
// null: the bound that decides the output of a node in the only column, counted through the lower and then the upper
// ones, or -1. room: 2 B numbers. same (W) of the steps, same_out (N) room for that of the outputs.
inline void node_outputs(const NodeOrder& at, Columns s, const std::uint8_t* same, const double* before, double* out,
                         std::int32_t* bound, Columns outputs, double* room, std::uint8_t* same_out) {
    const Index B = s.B, lowers = at.lower_edges[at.K];
    for (Index m = 0; m < at.N; ++m) {
        const bool one = same_out[m] = same[at.own[m]];
        for (Index b = 0; b < (one ? 1 : B); ++b) outputs.at(m, one)[b] = s.at(at.own[m], one)[b];
    }
    double *LT_RESTRICT low = room, *LT_RESTRICT high = room + B;
    for (Index k = 0; k < at.K; ++k) {
        const Index m = at.nodes[k], begin = at.lower_edges[k], end = at.lower_edges[k + 1];
        const Index upper_begin = at.upper_edges[k], upper_end = at.upper_edges[k + 1];
        const bool one = B > 1 && same_sources(at, k, outputs, same_out);
        const Index width = one ? 1 : B;
        const bool two = !bound && end - begin <= 1 && upper_end - upper_begin <= 1 && at.share[m] == 1;
        double* to = outputs.at(m, one);
        if (!one && same_out[m] == 1) {  // its step is the same in all columns, its output is not
            same_out[m] = 0;
            const double x = outputs.first[m];
            if (two) {
                within_two(at, k, outputs, width, one, [x](Index) { return x; }, to);
                continue;
            }
            outputs.spread(m, true);
        } else if (!one) {
            same_out[m] = 0;
        }
        if (two) {
            within_two(at, k, outputs, width, one, [to](Index b) { return to[b]; }, to);
            continue;
        }
        const double share = at.share[m], *source = outputs.at(at.source[m], one);
        if (share < 1) {
            LT_IVDEP
            for (Index b = 0; b < width; ++b) to[b] = share * to[b] + (1 - share) * source[b];
        }
        const Index from = tightest(begin, end, at.lower, outputs, width, one, 1, low);
        const Index until = tightest(upper_begin, upper_end, at.upper, outputs, width, one, -1, high);
        const bool is_low = from >= 0 && *to < *low, is_high = until >= 0 && !is_low && *to > *high;
        if (bound) bound[k] = static_cast<std::int32_t>(is_low ? from : is_high ? lowers + until : -1);
        if (from >= 0 && until >= 0) {
            LT_IVDEP
            for (Index b = 0; b < width; ++b) to[b] = to[b] < low[b] ? low[b] : to[b] > high[b] ? high[b] : to[b];
        } else if (from >= 0) {
            LT_IVDEP
            for (Index b = 0; b < width; ++b) to[b] = to[b] < low[b] ? low[b] : to[b];
        } else if (until >= 0) {
            LT_IVDEP
            for (Index b = 0; b < width; ++b) to[b] = to[b] > high[b] ? high[b] : to[b];
        }
    }
    for (Index l = 0; l < at.M; ++l) {
        const bool one = same_out[at.value[l]];
        const double* LT_RESTRICT from = outputs.at(at.value[l], one);
        const double less = before ? before[l] : 0;
        double* LT_RESTRICT to = out + l * B;
        if (one)
            for (Index b = 0; b < B; ++b) to[b] = *from - less;
        else
            for (Index b = 0; b < B; ++b) to[b] = from[b] - less;
    }
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
