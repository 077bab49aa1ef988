// This file is compiled once for each instruction set; LEAFTRACE_ISA is the name of the namespace. It uses
// nothing from the standard library that the linker could share between the copies: instructions of one copy
// would get into another.
#include "kernels.hpp"

#include "backward.hpp"
#include "general.hpp"
#include "lanes.hpp"
#include "levels.hpp"
#include "losses.hpp"
#include "nodes.hpp"
#include "queries.hpp"
#include "removal.hpp"
#include "scored.hpp"
#include "sweep.hpp"
#include "trees.hpp"

#include <type_traits>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Neighbouring rows often share a leaf, and adding to a number just stored waits for the store: rows use four
// copies of the table of sums in turn, which are added up at the end.
void leaf_sums(RowData d, Ids leaf, Index n, Index M, const double* shift, double* copies, double* sums) {
    with_loss(d.loss, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 128;  // derivatives of a tile are vectorised; then each row adds four numbers
        double terms[tile][4] = {};
        std::uint32_t ids[tile];
        for (Index j0 = 0; j0 < n; j0 += tile) {
            const Index count = n - j0 < tile ? n - j0 : tile;
            copy_ids(leaf, j0, count, ids);
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                const Index j = j0 + i;
                const L at(d.state + j * L::C, shift[ids[i]], d.y[j]);
                terms[i][0] = d.w[j] * at.g;
                terms[i][1] = d.w[j] * at.h;
                terms[i][2] = d.w[j] * at.k;
            }
            for (Index i = 0; i < count; ++i) {
                double* LT_RESTRICT to = copies + 4 * ((i & 3) * M + static_cast<Index>(ids[i]));
                for (int c = 0; c < 4; ++c) to[c] += terms[i][c];
            }
        }
    });
    for (Index i = 0; i < 4 * M; ++i)
        sums[i] += (copies[i] + copies[i + 4 * M]) + (copies[i + 8 * M] + copies[i + 12 * M]);
}

template <int B, class Real>
void advance(StepLeaves at, Index K, const Real* d, Real* D) {
    for (Index j = 0; j < at.n; ++j)
        for (Index r = 0; r < at.R; ++r)
            add<B>(D + (j * K + at.first[r]) * B, d + at.tree(r)[j] * at.O * B, at.O);
}

// Rows are taken leaf by leaf, so that the sums of a leaf (M O numbers) stay in the cache.
template <bool scalar, class Leaf, class Real>
void pair_rows(const Leaf* ids, Index trees, Index earlier, const std::int64_t* offset, const std::int32_t* first,
               const std::int64_t* order, const std::int64_t* edges, Index L, Index M, Index O_, const Real* u, Index stride,
               double* LT_RESTRICT sums, Real* LT_RESTRICT out) {
    const Index O = scalar ? 1 : O_;
    for (Index l = 0; l < L; ++l) {
        for (Index i = 0; i < M * O; ++i) sums[i] = 0;
        for (Index i = edges[l]; i < edges[l + 1]; ++i) {
            const Leaf* LT_RESTRICT row = ids + order[i] * trees;
            const Real* LT_RESTRICT uj = u + order[i] * stride;
            const double value = uj[0];
            for (Index r = 0; r < earlier; ++r) {
                double* to = sums + (offset[r] + static_cast<Index>(row[r])) * O;
                if (scalar)
                    *to += value;
                else
                    for (Index o = 0; o < O; ++o) to[o] += uj[first[r] + o];
            }
        }
        for (Index i = 0; i < M * O; ++i) out[l * M * O + i] = static_cast<Real>(sums[i]);
    }
}

template <class Real>
void pair_sums(Ids ids_, Index trees, Index earlier, const std::int64_t* offset, const std::int32_t* first,
               const std::int64_t* order, const std::int64_t* edges, Index L, Index M, Index O, const Real* u, Index stride,
               double* sums, Real* out) {
    bool scalar = O == 1;
    for (Index r = 0; r < earlier; ++r) scalar = scalar && first[r] == 0;
    with_ids(ids_, [&](const auto* ids) {
        if (scalar) return pair_rows<true>(ids, trees, earlier, offset, first, order, edges, L, M, O, u, stride, sums, out);
        pair_rows<false>(ids, trees, earlier, offset, first, order, edges, L, M, O, u, stride, sums, out);
    });
}

// Keep the k largest sums of each column in order by inserting one number after another; then mark the leaves
// above the last of them, and as many of those equal to it as there is room for. All columns go side by side.
template <class Real>
void top_leaves(Index M, Index B, Index k, const Real* LT_RESTRICT sums, Real* LT_RESTRICT mask, Real* LT_RESTRICT best,
                Real* LT_RESTRICT room) {
    for (Index i = 0; i < k * B; ++i) best[i] = -1;  // sums are not negative
    for (Index l = 0; l < M; ++l) {
        for (Index b = 0; b < B; ++b) room[b] = sums[l * B + b];
        for (Index i = 0; i < k; ++i) {
            Real* LT_RESTRICT top = best + i * B;
            LT_IVDEP
            for (Index b = 0; b < B; ++b) {
                const Real x = room[b], y = top[b];
                top[b] = x > y ? x : y;
                room[b] = x > y ? y : x;
            }
        }
    }
    const Real* LT_RESTRICT last = best + (k - 1) * B;
    for (Index b = 0; b < B; ++b) room[b] = static_cast<Real>(k);
    for (Index l = 0; l < M; ++l) {
        LT_IVDEP
        for (Index b = 0; b < B; ++b) room[b] -= sums[l * B + b] > last[b] ? Real(1) : Real(0);
    }
    for (Index l = 0; l < M; ++l) {
        LT_IVDEP
        for (Index b = 0; b < B; ++b) {
            const Real x = sums[l * B + b], edge = last[b], left = room[b];
            const Real equal = (x == edge) & (left > 0) ? Real(1) : Real(0);
            mask[l * B + b] = x > edge ? Real(1) : equal;
            room[b] = left - equal;
        }
    }
}

// Takes four rows at a time: enough sums in flight to hide the latency of an addition, few enough for the
// registers.
template <int B, class Real>
void lift(Index rows, Index inner, const Real* LT_RESTRICT W, const Real* LT_RESTRICT own, Real* LT_RESTRICT felt) {
    using Unit = typename Lanes<Real, B>::Unit;
    constexpr int N = Lanes<Real, B>::N, width = 4;
    Index i = 0;
    for (; i + width <= rows; i += width) {
        Unit sum[width][N] = {};
        for (Index k = 0; k < inner; ++k) {
            const Unit* x = units<B>(own + k * B);
            for (int a = 0; a < width; ++a) {
                const Real c = W[(i + a) * inner + k];
                LT_UNITS(B) sum[a][i_] += c * x[i_];
            }
        }
        for (int a = 0; a < width; ++a) {
            Unit* to = units<B>(felt + (i + a) * B);
            LT_UNITS(B) to[i_] += sum[a][i_];
        }
    }
    for (; i < rows; ++i)
        for (Index k = 0; k < inner; ++k) add_scaled<B>(felt + i * B, W[i * inner + k], own + k * B);
}

// ---- run-time B to compile-time B ----

template <class Body>
void with_block(Index B, const Body& body) {
    switch (B) {
        case 1: return body(static_cast<char (*)[1]>(nullptr));
        case 8: return body(static_cast<char (*)[8]>(nullptr));
        case 32: return body(static_cast<char (*)[32]>(nullptr));
    }
}
#define LT_B (sizeof(*tag))

template <class Real>
struct Entry {
    using At = StepLeaves;
    static void backward(At at, Index K, Index B, const Real* U, const Real* f, Real* a, At next, Index M, Real* fn,
                         Real* copies) {
        with_block(B, [&](auto* tag) { backward_step<LT_B>(at, K, U, f, a, next, M, fn, copies); });
    }
    static void expand_(At at, Index B, Index begin, Index end, const std::int64_t* offset, const std::int32_t* place,
                        const Real* V, const Real* f, Real* out) {
        with_block(B, [&](auto* tag) { expand<LT_B>(at, begin, end, offset, place, V, f, out); });
    }
    static void lift_(Index rows, Index inner, Index B, const Real* W, const Real* own, Real* felt) {
        with_block(B, [&](auto* tag) { lift<LT_B>(rows, inner, W, own, felt); });
    }
    static void products(QueryRows rows, Index B, const std::int64_t* columns, const Real* K, const Real* x, Real* out,
                         Real* below, std::uint32_t* leaf) {
        with_block(B, [&](auto* tag) { query_products<LT_B>(rows, columns, K, x, out, below, leaf); });
    }
    static void shares(QueryRows rows, Index R, Index E, Index B, const Real* right, const Real* own, const Real* left,
                       const Real* x, Real* out, Real* below, Real* sums) {
        with_block(B, [&](auto* tag) { query_shares<LT_B>(rows, R, E, right, own, left, x, out, below, sums); });
    }
    static Index nodes(NodeStep step, Index B, const Real* fbar, Index first, Real* rows, std::int32_t* place, Real* bar,
                       std::int32_t* number, std::int32_t* last) {
        Index end = first;
        with_block(B, [&](auto* tag) { end = node_rows<LT_B>(step, fbar, first, rows, place, bar, number, last); });
        return end;
    }
    static void advance_(At at, Index K, Index B, const Real* d, Real* D) {
        with_block(B, [&](auto* tag) { advance<LT_B>(at, K, d, D); });
    }
    static void tangent(Sweep<Real> s, const Real* U, Real* out) {
        with_block(s.B, [&](auto* tag) { sweep<LT_B, false>(s, TangentBody<LT_B, Real>{s.at.n, s.at.O, s.K, U, out}); });
    }
    static void change(Sweep<Real> s, Changes<Real> c, Real* scratch) {
        const bool inner = c.inner;
        const auto as = [&](auto change, auto form, auto within, auto* tag) {
            using Body = ChangeBody<decltype(change), form.value, within.value, LT_B, Real>;
            sweep<LT_B, form.value == Form::exponential>(s, Body{c});
        };
        const auto one = [&](auto change, auto* tag) {
            if constexpr (decltype(change)::exponential) {
                constexpr std::integral_constant<Form, Form::exponential> exponential;
                if (s.exponential && inner) return as(change, exponential, std::true_type{}, tag);
                if (s.exponential) return as(change, exponential, std::false_type{}, tag);
                if (s.small && !inner) return as(change, std::integral_constant<Form, Form::small>{}, std::false_type{}, tag);
            }
            constexpr std::integral_constant<Form, Form::any> any;
            if (inner) return as(change, any, std::true_type{}, tag);
            as(change, any, std::false_type{}, tag);
        };
        const auto several = [&](auto exponential, auto* tag) {
            using Body = SoftmaxBody<exponential.value, LT_B, Real>;
            sweep<LT_B, exponential.value>(s, Body{s, c.state, c.w, c.shift, c.inner, c.mask, c.w_stride, c.dG, c.dH, scratch,
                                                   scratch + s.K});
        };
        const auto general = [&](auto* tag) {
            Change<Real> change = nullptr;
            with_general<Real>(c.kind, [&](auto* loss) { change = change_row<std::remove_pointer_t<decltype(loss)>, LT_B, Real>; });
            sweep<LT_B, false>(s, SeparateBody<LT_B, Real>{s, c, change});
        };
        with_block(s.B, [&](auto* tag) {
            switch (c.kind) {
                case LossKind::squared: return one(SquaredChange{}, tag);
                case LossKind::logistic: return one(LogisticChange{}, tag);
                case LossKind::poisson: return one(PoissonChange{}, tag);
                case LossKind::softmax:
                    return s.exponential ? several(std::true_type{}, tag) : several(std::false_type{}, tag);
                default: return general(tag);
            }
        });
    }
};

}  // namespace

template <class Real>
const Kernels<Real>& kernels() {
    using At = Entry<Real>;
    static constexpr Kernels<Real> table{tree_scores, tree_sums,
                                               leaf_sums, replay_sums, row_effects<Real>,
                                               At::backward,    backward_scored<Real>,
                                               At::expand_,
                                               removal_step<Real>, At::advance_,
                                               At::tangent,     At::change,
                                               pair_sums<Real>, top_leaves<Real>, At::lift_,
                                               At::products,    At::shares, At::nodes, level_leaves<Real>};
    return table;
}

template const Kernels<float>& kernels();
template const Kernels<double>& kernels();

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
