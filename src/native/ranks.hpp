// Values of given ranks among the rows of each leaf: medians and quantiles.
#pragma once
#include <algorithm>
#include <vector>

#include "kernels.hpp"

namespace leaftrace {

// Order of numbers in which those that are none come last.
inline bool ranks_below(double a, double b) { return a < b || (a == a && b != b); }

// out (M, 2): the value of rank low[m] among the x (n) of leaf m, and the next larger one, or the same if there is none.
// start (M + 1) is where the rows of each leaf begin if rows are in the order of their leaves. Leaves without rows: zero.
inline void rank_pairs(Ids leaf, Index n, Index M, const double* x, const std::vector<Index>& start,
                       const std::int64_t* low, double* out) {
    std::vector<double> room(static_cast<std::size_t>(n));
    std::vector<Index> next(start.begin(), start.end());
    with_ids(leaf, [&](const auto* id) {
        for (Index j = 0; j < n; ++j) room[static_cast<std::size_t>(next[id[j]]++)] = x[j];
    });
    for (Index m = 0; m < M; ++m) {
        double *begin = room.data() + start[m], *end = room.data() + start[m + 1], *at = begin + low[m];
        if (begin == end) {
            out[2 * m] = out[2 * m + 1] = 0;
            continue;
        }
        std::nth_element(begin, at, end, ranks_below);
        out[2 * m] = *at;
        out[2 * m + 1] = at + 1 < end ? *std::min_element(at + 1, end, ranks_below) : *at;
    }
}

}  // namespace leaftrace
