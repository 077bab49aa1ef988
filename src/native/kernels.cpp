// This file is compiled once for each instruction set; LEAFTRACE_ISA is the name of the namespace. It uses
// nothing from the standard library that the linker could share between the copies: instructions of one copy
// would get into another.
#include "kernels.hpp"

#include "general.hpp"
#include "lanes.hpp"
#include "losses.hpp"
#include "removal.hpp"
#include "sweep.hpp"
#include "trees.hpp"

#include <type_traits>

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Neighbouring rows often share a leaf, and adding to a number just stored waits for the store: rows use four
// copies of the table of sums in turn, which are added up at the end.
template <class Leaf>
void leaf_sums(RowData d, const Leaf* leaf, Index n, Index M, const double* shift, double* copies, double* sums) {
    with_loss(d.loss, [&](auto* tag) {
        using L = std::remove_pointer_t<decltype(tag)>;
        constexpr Index tile = 128;  // derivatives of a tile are vectorised; then each row adds four numbers
        double terms[tile][4] = {};
        for (Index j0 = 0; j0 < n; j0 += tile) {
            const Index count = n - j0 < tile ? n - j0 : tile;
            LT_IVDEP
            for (Index i = 0; i < count; ++i) {
                const Index j = j0 + i;
                const L at(d.state + j * L::C, shift[leaf[j]], d.y[j]);
                terms[i][0] = d.w[j] * at.g;
                terms[i][1] = d.w[j] * at.h;
                terms[i][2] = d.w[j] * at.k;
            }
            for (Index i = 0; i < count; ++i) {
                double* LT_RESTRICT to = copies + 4 * ((i & 3) * M + static_cast<Index>(leaf[j0 + i]));
                for (int c = 0; c < 4; ++c) to[c] += terms[i][c];
            }
        }
    });
    for (Index i = 0; i < 4 * M; ++i)
        sums[i] += (copies[i] + copies[i + 4 * M]) + (copies[i + 8 * M] + copies[i + 12 * M]);
}

template <int B, bool plain, class Leaf, class Real>
void backward_rows(StepLeaves<Leaf> at, Index K_, const Real* U, const Real* fbar, Real* abar, StepLeaves<Leaf> next,
                   Real* fbar_next) {
    const Index K = plain ? 1 : K_, R = plain ? 1 : at.R, O = plain ? 1 : at.O, O_next = plain ? 1 : next.O;
    for (Index j = 0; j < at.n; ++j) {
        Real* LT_RESTRICT a = abar + j * K * B;
        for (Index r = 0; r < R; ++r) {
            const Real* u = U + (r * at.n + j) * O * K;
            const Real* f = fbar + at.tree(r)[j] * O * B;
            for (Index o = 0; o < O; ++o)
                for (Index k = 0; k < K; ++k) add_scaled<B>(a + k * B, u[o * K + k], f + o * B);
        }
        for (Index r = 0; r < next.R; ++r)
            add<B>(fbar_next + next.tree(r)[j] * O_next * B, a + (plain ? 0 : next.first[r]) * B, O_next);
    }
}

// The same for a single column, with four copies of the table of sums in turn as in leaf_sums.
template <class Leaf, class Real>
void backward_column(StepLeaves<Leaf> at, const Real* LT_RESTRICT U, const Real* LT_RESTRICT fbar,
                     Real* LT_RESTRICT abar, StepLeaves<Leaf> next, Index M, Real* LT_RESTRICT fbar_next,
                     Real* LT_RESTRICT copies) {
    const Leaf *LT_RESTRICT leaf = at.ids, *LT_RESTRICT next_leaf = next.ids;
    Index j = 0;
    if (next.R)
        for (; j + 4 <= at.n; j += 4)
            for (Index i = 0; i < 4; ++i) {
                const Real a = abar[j + i] + U[j + i] * fbar[leaf[j + i]];
                abar[j + i] = a;
                copies[i * M + next_leaf[j + i]] += a;
            }
    for (; j < at.n; ++j) {
        abar[j] += U[j] * fbar[leaf[j]];
        if (next.R) copies[next_leaf[j]] += abar[j];
    }
    for (Index l = 0; next.R && l < M; ++l)
        fbar_next[l] += (copies[l] + copies[M + l]) + (copies[2 * M + l] + copies[3 * M + l]);
}

template <int B, class Leaf, class Real>
void backward_step(StepLeaves<Leaf> at, Index K, const Real* U, const Real* fbar, Real* abar, StepLeaves<Leaf> next,
                   Index M, Real* fbar_next, Real* copies) {
    const bool plain = at.plain(K) && (next.R == 0 || next.plain(K));
    if (plain && B == 1) return backward_column(at, U, fbar, abar, next, M, fbar_next, copies);
    if (plain) return backward_rows<B, true>(at, K, U, fbar, abar, next, fbar_next);
    backward_rows<B, false>(at, K, U, fbar, abar, next, fbar_next);
}

template <int B, bool scalar, class Leaf, class Real>
void expand_rows(StepLeaves<Leaf> at, Index begin, Index end, const std::int64_t* offset, const Real* V,
                 const Real* fbar, Real* out) {
    constexpr Index tile = B == 1 ? 512 : 64;  // the sums of so many rows stay in the first cache for all trees
    const Index O = scalar ? 1 : at.O;
    for (Index j0 = begin; j0 < end; j0 += tile) {
        const Index j1 = j0 + tile < end ? j0 + tile : end;
        for (Index r = 0; r < at.R; ++r) {
            const Leaf* LT_RESTRICT leaf = at.tree(r);
            const Real* LT_RESTRICT f = fbar + offset[r] * O * B;
            const Real* LT_RESTRICT v = V + r * at.n * O;
            for (Index j = j0; j < j1; ++j)
                for (Index o = 0; o < O; ++o) add_scaled<B>(out + j * B, v[j * O + o], f + (leaf[j] * O + o) * B);
        }
    }
}

template <int B, class Leaf, class Real>
void expand(StepLeaves<Leaf> at, Index begin, Index end, const std::int64_t* offset, const Real* V, const Real* fbar,
            Real* out) {
    if (at.O == 1) return expand_rows<B, true>(at, begin, end, offset, V, fbar, out);
    expand_rows<B, false>(at, begin, end, offset, V, fbar, out);
}

template <int B, class Leaf, class Real>
void advance(StepLeaves<Leaf> at, Index K, const Real* d, Real* D) {
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

template <class Leaf, class Real>
void pair_sums(const Leaf* ids, Index trees, Index earlier, const std::int64_t* offset, const std::int32_t* first,
               const std::int64_t* order, const std::int64_t* edges, Index L, Index M, Index O, const Real* u, Index stride,
               double* sums, Real* out) {
    bool scalar = O == 1;
    for (Index r = 0; r < earlier; ++r) scalar = scalar && first[r] == 0;
    if (scalar) return pair_rows<true>(ids, trees, earlier, offset, first, order, edges, L, M, O, u, stride, sums, out);
    pair_rows<false>(ids, trees, earlier, offset, first, order, edges, L, M, O, u, stride, sums, out);
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

template <class Leaf, class Real>
struct Entry {
    using At = StepLeaves<Leaf>;
    static void backward(At at, Index K, Index B, const Real* U, const Real* f, Real* a, At next, Index M, Real* fn,
                         Real* copies) {
        with_block(B, [&](auto* tag) { backward_step<LT_B>(at, K, U, f, a, next, M, fn, copies); });
    }
    static void expand_(At at, Index B, Index begin, Index end, const std::int64_t* offset, const Real* V,
                        const Real* f, Real* out) {
        with_block(B, [&](auto* tag) { expand<LT_B>(at, begin, end, offset, V, f, out); });
    }
    static void lift_(Index rows, Index inner, Index B, const Real* W, const Real* own, Real* felt) {
        with_block(B, [&](auto* tag) { lift<LT_B>(rows, inner, W, own, felt); });
    }
    static void advance_(At at, Index K, Index B, const Real* d, Real* D) {
        with_block(B, [&](auto* tag) { advance<LT_B>(at, K, d, D); });
    }
    static void tangent(Sweep<Leaf, Real> s, const Real* U, Real* out) {
        with_block(s.B, [&](auto* tag) { sweep<LT_B, false>(s, TangentBody<LT_B, Leaf, Real>{s.at.n, s.at.O, s.K, U, out}); });
    }
    static void change(Sweep<Leaf, Real> s, Changes<Real> c, Real* scratch) {
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
            using Body = SoftmaxBody<exponential.value, LT_B, Leaf, Real>;
            sweep<LT_B, exponential.value>(s, Body{s, c.state, c.w, c.shift, c.inner, c.mask, c.w_stride, c.dG, c.dH, scratch,
                                                   scratch + s.K});
        };
        const auto general = [&](auto* tag) {
            Change<Real> change = nullptr;
            with_general<Real>(c.kind, [&](auto* loss) { change = change_row<std::remove_pointer_t<decltype(loss)>, LT_B, Real>; });
            sweep<LT_B, false>(s, SeparateBody<LT_B, Leaf, Real>{s, c, change});
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

template <class Leaf, class Real>
const Kernels<Leaf, Real>& kernels() {
    using At = Entry<Leaf, Real>;
    static constexpr Kernels<Leaf, Real> table{tree_scores<Leaf>, tree_sums<Leaf>,
                                               leaf_sums<Leaf>, replay_sums<Leaf>, row_effects<Leaf, Real>,
                                               At::backward,    At::expand_,
                                               removal_step<Leaf, Real>, At::advance_,
                                               At::tangent,     At::change,
                                               pair_sums<Leaf, Real>, top_leaves<Real>, At::lift_};
    return table;
}

template const Kernels<std::uint8_t, float>& kernels();
template const Kernels<std::uint8_t, double>& kernels();
template const Kernels<std::uint16_t, float>& kernels();
template const Kernels<std::uint16_t, double>& kernels();
template const Kernels<std::uint32_t, float>& kernels();
template const Kernels<std::uint32_t, double>& kernels();

}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
