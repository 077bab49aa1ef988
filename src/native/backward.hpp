// The backward pass over one step from stored effects of rows, and the expansion of its result to rows: blocks of B
// columns.
#pragma once
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Rows begin .. end - 1 of a backward step.
template <int B, class Real, class Id>
void backward_rows(StepLeaves at, Id leaf, Index begin, Index end, Index K, const Real* U, const Real* fbar,
                   Real* abar, StepLeaves next, Id next_leaf, Real* fbar_next) {
    for (Index j = begin; j < end; ++j) {
        Real* LT_RESTRICT a = abar + j * K * B;
        for (Index r = 0; r < at.R; ++r) {
            const Real* u = U + (r * at.n + j) * at.O * K;
            const Real* f = fbar + static_cast<Index>(leaf[r * at.stride + j]) * at.O * B;
            for (Index o = 0; o < at.O; ++o)
                for (Index k = 0; k < K; ++k) add_scaled<B>(a + k * B, u[o * K + k], f + o * B);
        }
        for (Index r = 0; r < next.R; ++r)
            add<B>(fbar_next + static_cast<Index>(next_leaf[r * next.stride + j]) * next.O * B, a + next.first[r] * B, next.O);
    }
}

// Sums of c (O) times from (O, B) onto a row of B numbers, which stays in registers.
template <int B, int O, class Real>
LT_INLINE void add_products(Real* LT_RESTRICT to_, const Real* LT_RESTRICT c, const Real* LT_RESTRICT from_) {
    using Unit = typename Lanes<Real, B>::Unit;
    Unit* to = units<B>(to_);
    Unit sum[Lanes<Real, B>::N];
    LT_UNITS(B) sum[i_] = to[i_];
    for (int o = 0; o < O; ++o) {
        const Unit* from = units<B>(from_ + o * B);
        LT_UNITS(B) sum[i_] += c[o] * from[i_];
    }
    LT_UNITS(B) to[i_] = sum[i_];
}

// The same for one output and one tree a step, with O effects of a row.
template <int B, int O, class Real>
void backward_plain(StepLeaves at, Index begin, Index end, const Real* U, const Real* fbar, Real* abar, StepLeaves next,
                    Real* fbar_next) {
    constexpr Index tile = 256;
    std::uint32_t leaf[tile], next_leaf[tile];
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index count = end - j0 < tile ? end - j0 : tile;
        copy_ids(at.ids, j0, count, leaf);
        if (next.R) copy_ids(next.ids, j0, count, next_leaf);
        for (Index i = 0; i < count; ++i) {
            Real* LT_RESTRICT a = abar + (j0 + i) * B;
            add_products<B, O>(a, U + (j0 + i) * O, fbar + static_cast<Index>(leaf[i]) * O * B);
            if (next.R) add<B>(fbar_next + static_cast<Index>(next_leaf[i]) * B, a, 1);
        }
    }
}

// The same for a single column, with four copies of the table of sums in turn as in leaf_sums.
template <int O, class Leaf, class Real>
void backward_column(const Leaf* LT_RESTRICT leaf, Index begin, Index end, const Real* LT_RESTRICT U,
                     const Real* LT_RESTRICT fbar, Real* LT_RESTRICT abar, const Leaf* LT_RESTRICT next_leaf, Index M,
                     Real* LT_RESTRICT fbar_next, Real* LT_RESTRICT copies) {
    const auto moved = [&](Index j) {
        Real a = abar[j];
        for (int o = 0; o < O; ++o) a += U[j * O + o] * fbar[static_cast<Index>(leaf[j]) * O + o];
        return a;
    };
    Index j = begin;
    if (next_leaf)
        for (; j + 4 <= end; j += 4)
            for (Index i = 0; i < 4; ++i) {
                const Real a = moved(j + i);
                abar[j + i] = a;
                copies[i * M + next_leaf[j + i]] += a;
            }
    for (; j < end; ++j) {
        abar[j] = moved(j);
        if (next_leaf) copies[next_leaf[j]] += abar[j];
    }
    for (Index l = 0; next_leaf && l < M; ++l)
        fbar_next[l] += (copies[l] + copies[M + l]) + (copies[2 * M + l] + copies[3 * M + l]);
    for (Index l = 0; next_leaf && l < 4 * M; ++l) copies[l] = 0;
}

// One of these two, for one column or several; the latter adds to copies alone.
template <int B, int O, class Real>
void backward_one_tree(StepLeaves at, Index begin, Index end, const Real* U, const Real* fbar, Real* abar,
                       StepLeaves next, Index M, Real* fbar_next, Real* copies) {
    if constexpr (B == 1)
        with_ids_of<1>(at.ids, next.ids, [&](auto leaf, auto next_leaf) {
            backward_column<O>(leaf, begin, end, U, fbar, abar, next.R ? next_leaf : nullptr, M, fbar_next, copies);
        });
    else
        backward_plain<B, O>(at, begin, end, U, fbar, abar, next, copies);
}

// Sums over leaves are taken block by block: in float32, a sum of a million rows one by one has lost five digits.
// A block has several rows for each leaf, so that adding its table costs little.
template <int B, class Real>
void backward_step(StepLeaves at, Index K, const Real* U, const Real* fbar, Real* abar, StepLeaves next,
                   Index M, Real* fbar_next, Real* copies) {
    const bool plain_next = next.R == 0 || next.plain(K);
    const Index block = 4 * M > 4096 ? 4 * M : 4096;
    const Index table = next.R ? M * next.O * B : 0;
    for (Index begin = 0; begin < at.n; begin += block) {
        const Index end = at.n - begin < block ? at.n : begin + block;
        if (plain_next && at.plain(K))
            backward_one_tree<B, 1>(at, begin, end, U, fbar, abar, next, M, fbar_next, copies);
        else if (plain_next && at.paired(K))
            backward_one_tree<B, 2>(at, begin, end, U, fbar, abar, next, M, fbar_next, copies);
        else
            with_ids_of<B>(at.ids, next.ids, [&](auto leaf, auto next_leaf) {
                backward_rows<B>(at, leaf, begin, end, K, U, fbar, abar, next, next_leaf, copies);
            });
        for (Index i = 0; i < table; ++i) {
            fbar_next[i] += copies[i];
            copies[i] = 0;
        }
    }
}

// `fixed` is O if the compiler is to know it, otherwise 0.
template <int B, int fixed, class Real>
void expand_rows(StepLeaves at, Index begin, Index end, const std::int64_t* offset, const std::int32_t* place,
                 const Real* V, const Real* fbar, Real* out) {
    constexpr Index tile = B == 1 ? 512 : 64;  // the sums of so many rows stay in the first cache for all trees
    const Index O = fixed ? fixed : at.O;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index j1 = j0 + tile < end ? j0 + tile : end;
        for (Index r = 0; r < at.R; ++r) {
            const Real* LT_RESTRICT f = place ? fbar : fbar + offset[r] * O * B;
            const Real* LT_RESTRICT v = V + (r * at.n + j0) * O;
            const auto add_tree = [&](const auto* LT_RESTRICT leaf) {
                for (Index i = 0; i < j1 - j0; ++i) {
                    const Real* LT_RESTRICT row = f + static_cast<Index>(leaf[i]) * O * B;
                    if constexpr (fixed != 0)
                        add_products<B, fixed>(out + (j0 + i) * B, v + i * O, row);
                    else
                        for (Index o = 0; o < O; ++o) add_scaled<B>(out + (j0 + i) * B, v[i * O + o], row + o * B);
                }
            };
            if constexpr (B == 1 && fixed == 1)
                if (!place) {
                    with_ids(at.tree(r) + j0, add_tree);
                    continue;
                }
            std::uint32_t ids[tile];
            copy_ids(at.tree(r), j0, j1 - j0, ids);
            if (place)
                for (Index i = 0; i < j1 - j0; ++i) ids[i] = static_cast<std::uint32_t>(place[offset[r] + ids[i]]);
            add_tree(static_cast<const std::uint32_t*>(ids));
        }
    }
}

template <int B, class Real>
void expand(StepLeaves at, Index begin, Index end, const std::int64_t* offset, const std::int32_t* place, const Real* V,
            const Real* fbar, Real* out) {
    if (at.O == 1) return expand_rows<B, 1>(at, begin, end, offset, place, V, fbar, out);
    if (at.O == 2) return expand_rows<B, 2>(at, begin, end, offset, place, V, fbar, out);
    expand_rows<B, 0>(at, begin, end, offset, place, V, fbar, out);
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
