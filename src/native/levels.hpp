// The way of rows through symmetric trees, all nodes of a level of which compare the same column with the same threshold:
// a level is one bit of the leaf's number, and its comparisons vectorise over rows.
#pragma once
#include "lanes.hpp"

#include <math.h>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Set a bit in the ids of rows that are above a threshold.
LT_CALLED void set_bits(const float* LT_RESTRICT x, float threshold, std::uint32_t bit, std::uint32_t* LT_RESTRICT ids) {
    for (Index i = 0; i < level_tile; ++i) ids[i] |= x[i] > threshold ? bit : 0u;
}

template <class Id>
void store_ids(const std::uint32_t* LT_RESTRICT ids, Index count, Id* LT_RESTRICT to) {
    for (Index i = 0; i < count; ++i) to[i] = static_cast<Id>(ids[i]);
}

template <class Real>
void level_leaves(Levels at, const Real* LT_RESTRICT values, Index n, Index d, Index begin, Index end, float* LT_RESTRICT room,
                  MutableIds leaves) {
    std::uint32_t ids[level_tile];
    for (Index j0 = begin; j0 < end; j0 += level_tile) {
        const Index count = end - j0 < level_tile ? end - j0 : level_tile;
        for (Index c = 0; c < at.C; ++c)
            for (Index i = 0; i < count; ++i) {
                const float x = static_cast<float>(values[(j0 + i) * d + at.used[c]]);
                room[c * level_tile + i] = x != x && at.above[c] ? HUGE_VALF : x;
            }
        for (Index r = 0; r < at.R; ++r) {
            for (Index i = 0; i < level_tile; ++i) ids[i] = 0;
            for (Index k = at.edges[r]; k < at.edges[r + 1]; ++k)
                set_bits(room + at.place[k] * level_tile, at.threshold[k], 1u << (k - at.edges[r]), ids);
            unsigned char* to = leaves.data + (r * n + j0) * leaves.bytes;
            if (leaves.bytes == 1)
                store_ids(ids, count, to);
            else if (leaves.bytes == 2)
                store_ids(ids, count, reinterpret_cast<std::uint16_t*>(to));
            else
                store_ids(ids, count, reinterpret_cast<std::uint32_t*>(to));
        }
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
