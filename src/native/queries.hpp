// Steps of the backward pass over losses that couple the rows of a query. Included once for each instruction set.
#pragma once
#include "kernels.hpp"
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Add the rows of `out`, which are stride numbers apart, to the sums of their leaves in the step below.
template <int B, class Real>
LT_INLINE void add_below(Ids leaf, Index begin, Index end, const Real* out, Index stride, Real* below) {
    if (!below) return;
    for (Index i = begin; i < end; ++i) add<B>(below + leaf[i] * B, out + i * stride, 1);
}

// out (width, B) += `count` columns from K on, `size` numbers apart, times the x of their leaves. The sums stay in
// registers: enough of them to hide the latency of an addition, few enough for the registers.
template <int B, int width, class Real>
LT_INLINE void product_rows(const Real* LT_RESTRICT K, Index size, Index count, const std::uint32_t* LT_RESTRICT leaf,
                            const Real* LT_RESTRICT x, Real* LT_RESTRICT out) {
    using Unit = typename Lanes<Real, B>::Unit;
    Unit sum[width][Lanes<Real, B>::N] = {};
    for (Index j = 0; j < count; ++j) {
        const Unit* from = units<B>(x + static_cast<Index>(leaf[j]) * B);
        for (int a = 0; a < width; ++a) {
            const Real c = K[j * size + a];
            LT_UNITS(B) sum[a][i_] += c * from[i_];
        }
    }
    for (int a = 0; a < width; ++a) {
        Unit* to = units<B>(out + a * B);
        LT_UNITS(B) to[i_] += sum[a][i_];
    }
}

// The same for a single column: rows lie side by side, in tiles that stay in the first cache.
template <class Real>
void product_column(const Real* LT_RESTRICT K, Index size, Index count, const std::uint32_t* LT_RESTRICT leaf,
                    const Real* LT_RESTRICT x, Real* LT_RESTRICT out) {
    constexpr Index tile = 256;
    for (Index i0 = 0; i0 < size; i0 += tile) {
        const Index rows = size - i0 < tile ? size - i0 : tile;
        for (Index j = 0; j < count; ++j) {
            const Real c = x[leaf[j]];
            const Real* LT_RESTRICT column = K + j * size + i0;
            LT_IVDEP
            for (Index i = 0; i < rows; ++i) out[i0 + i] += c * column[i];
        }
    }
}

template <int B, class Real>
void query_products(QueryRows rows, const std::int64_t* columns, const Real* K, const Real* x, Real* out, Real* below,
                    std::uint32_t* leaf) {
    for (Index q = 0; q < rows.Q; ++q) {
        const Index begin = rows.edges[q], size = rows.edges[q + 1] - begin, count = columns[q + 1] - columns[q];
        copy_ids(rows.leaf, columns[q], count, leaf);
        if constexpr (B == 1) {
            product_column(K, size, count, leaf, x, out + begin);
        } else {
            Index i = 0;
            if constexpr (B == 8)
                for (; i + 8 <= size; i += 8) product_rows<B, 8>(K + i, size, count, leaf, x, out + (begin + i) * B);
            for (; i + 4 <= size; i += 4) product_rows<B, 4>(K + i, size, count, leaf, x, out + (begin + i) * B);
            for (; i < size; ++i) product_rows<B, 1>(K + i, size, count, leaf, x, out + (begin + i) * B);
        }
        K += size * count;
        add_below<B>(rows.next_leaf, begin, begin + size, out, B, below);
    }
}

template <int B, class Real>
void query_shares(QueryRows rows, Index R, Index E, const Real* right, const Real* own, const Real* left, const Real* x,
                  Real* out, Real* below, Real* sums) {
    using Unit = typename Lanes<Real, B>::Unit;
    constexpr int N = Lanes<Real, B>::N;
    for (Index q = 0; q < rows.Q; ++q) {
        const Index begin = rows.edges[q], end = rows.edges[q + 1];
        for (Index r = 0; r < R; ++r) {
            Unit sum[N] = {};
            for (Index j = begin; j < end; ++j) {
                const Unit* from = units<B>(x + rows.leaf[j] * B);
                const Real c = right[j * R + r];
                LT_UNITS(B) sum[i_] += c * from[i_];
            }
            Unit* to = units<B>(sums + r * B);
            LT_UNITS(B) to[i_] = sum[i_];
        }
        for (Index i = begin; i < end; ++i) {
            const Unit* from = units<B>(x + rows.leaf[i] * B);
            for (Index e = i * E; e < (i + 1) * E; ++e) {
                Unit* to = units<B>(out + e * B);
                Unit sum[N];
                LT_UNITS(B) sum[i_] = to[i_] + own[e] * from[i_];
                for (Index r = 0; r < R; ++r) {
                    const Unit* shared = units<B>(sums + r * B);
                    const Real c = left[e * R + r];
                    LT_UNITS(B) sum[i_] += c * shared[i_];
                }
                LT_UNITS(B) to[i_] = sum[i_];
            }
        }
        add_below<B>(rows.next_leaf, begin, end, out, E * B, below);
    }
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
