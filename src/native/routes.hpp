// The way of rows through trees: in which leaf of each tree a row ends. It has no arithmetic that vectorises, so it
// is compiled once for all instruction sets.
#pragma once
#include <cmath>
#include <limits>
#include <vector>

#include "kernels.hpp"

namespace leaftrace {

// How an inner node sends rows, as bit flags: missing values go left; zeros are missing, too; categories are compared.
constexpr std::uint8_t missing_left = 1, zero_missing = 2, by_category = 4;
constexpr double largest_zero = 1e-35f;

// A node as rows meet it. Slots number the nodes of a tree: N inner ones, then the leaves, which lead to themselves.
template <class Real>
struct RouteNode {
    Real threshold;
    std::int32_t column;
    std::int32_t child[2];  // left, right
    std::uint8_t flags;
};

// All inner nodes of all trees: see _model/routes.py.
struct Routes {
    const std::int64_t* edges;  // (R + 1)
    const std::int32_t* column;
    const double* threshold;
    const std::int32_t* children;  // (N, 2)
    const std::uint8_t* flags;
    const std::int64_t* words;  // (N + 1) the words of a node in bits
    const std::uint32_t* bits;
    Index R;
    Index inner(Index r) const { return edges[r + 1] - edges[r]; }
};

// The largest number of this type that is at most x: values of the type compare with both alike.
template <class Real>
Real rounded_down(double x) {
    const Real found = static_cast<Real>(x);
    return found > x ? std::nextafter(found, -std::numeric_limits<Real>::infinity()) : found;
}

// The 2 N + 1 nodes of each tree, one tree after another. The nodes of tree r begin at 2 edges[r] + r.
template <class Real>
std::vector<RouteNode<Real>> route_nodes(const Routes& at) {
    std::vector<RouteNode<Real>> nodes;
    nodes.reserve(static_cast<std::size_t>(2 * at.edges[at.R] + at.R));
    for (Index r = 0; r < at.R; ++r) {
        for (Index k = at.edges[r]; k < at.edges[r + 1]; ++k)
            nodes.push_back({rounded_down<Real>(at.threshold[k]), at.column[k], {at.children[2 * k], at.children[2 * k + 1]},
                             at.flags[k]});
        for (Index l = at.inner(r); l <= 2 * at.inner(r); ++l) {
            const auto self = static_cast<std::int32_t>(l);
            nodes.push_back({Real(0), 0, {self, self}, 0});
        }
    }
    return nodes;
}

// Whether the bit of a category is set. Numbers are cut to whole ones; those outside the bits are in no set.
inline bool has_category(double x, const std::uint32_t* bits, std::int64_t words) {
    if (!(x > -1 && x < 32.0 * static_cast<double>(words))) return false;
    const auto category = static_cast<std::int64_t>(x);
    return bits[category / 32] >> (category % 32) & 1;
}

// The side of a value: 0 left, 1 right. Without categories and zeros that are missing, `plain` leaves them out.
template <bool plain, class Real>
inline int side_of(const RouteNode<Real>& node, Real x, const Routes& at, Index k) {
    bool missing = x != x;
    bool right = !(x <= node.threshold);
    if (!plain) {
        if (node.flags & by_category)
            right = !has_category(static_cast<double>(x), at.bits + at.words[k], at.words[k + 1] - at.words[k]);
        else
            missing |= (node.flags & zero_missing) && std::fabs(static_cast<double>(x)) <= largest_zero;
    }
    return missing ? !(node.flags & missing_left) : right;
}

// Write an id to an array of ids that have 1, 2 or 4 bytes.
inline void store_id(unsigned char* ids, int bytes, Index at, Index id) {
    if (bytes == 1)
        ids[at] = static_cast<std::uint8_t>(id);
    else if (bytes == 2)
        reinterpret_cast<std::uint16_t*>(ids)[at] = static_cast<std::uint16_t>(id);
    else
        reinterpret_cast<std::uint32_t*>(ids)[at] = static_cast<std::uint32_t>(id);
}

// leaves[r * n + j] = offset[r] + leaf of row j in tree r, for the rows begin .. end - 1. A row waits for each of its
// comparisons, so several rows go through a tree side by side, all as many levels as the deepest of them needs.
template <bool plain, class Real>
void find_leaves(const Routes& at, const std::vector<RouteNode<Real>>& all, const Real* values, Index d, Index n,
                 const std::int64_t* offset, Index begin, Index end, unsigned char* leaves, int bytes) {
    constexpr Index tile = 256, side = 8;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index j1 = end - j0 < tile ? end : j0 + tile;
        for (Index r = 0; r < at.R; ++r) {
            const RouteNode<Real>* nodes = all.data() + 2 * at.edges[r] + r;
            const auto inner = static_cast<std::int32_t>(at.inner(r));
            for (Index j = j0; j < j1; j += side) {
                const Index count = j1 - j < side ? j1 - j : side;
                std::int32_t slot[side] = {};
                for (bool moving = inner > 0; moving;) {
                    moving = false;
                    for (Index i = 0; i < side; ++i) {
                        const RouteNode<Real>& node = nodes[slot[i]];
                        const Real x = values[(i < count ? j + i : j) * d + node.column];
                        slot[i] = node.child[side_of<plain>(node, x, at, at.edges[r] + slot[i])];
                        moving |= slot[i] < inner;
                    }
                }
                for (Index i = 0; i < count; ++i) store_id(leaves, bytes, r * n + j + i, offset[r] + slot[i] - inner);
            }
        }
    }
}

}  // namespace leaftrace
