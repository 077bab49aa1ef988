// Python bindings: check shapes once, release the GIL, and call the kernels for the best instruction set of this
// machine.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "kernels.hpp"

namespace nb = nanobind;
using namespace nb::literals;
using namespace leaftrace;

namespace {

template <class T, int D>
using Array = nb::ndarray<T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
template <class T, int D>
using Maybe = std::optional<Array<T, D>>;

const char* best_isa() {
#ifdef LEAFTRACE_X86
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
        return "avx512";
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return "avx2";
#endif
    return "baseline";
}
std::string current_isa = best_isa();

template <class Leaf, class Real>
const Kernels<Leaf, Real>& kernels() {
#ifdef LEAFTRACE_X86
    if (current_isa == "avx512") return avx512::kernels<Leaf, Real>();
    if (current_isa == "avx2") return avx2::kernels<Leaf, Real>();
#endif
    return baseline::kernels<Leaf, Real>();
}

void set_isa(const std::string& isa) {
    const std::string best = best_isa();
    const auto rank = [](const std::string& s) { return s == "baseline" ? 0 : s == "avx2" ? 1 : s == "avx512" ? 2 : 3; };
    if (rank(isa) > rank(best)) throw std::invalid_argument("this machine has no instruction set '" + isa + "'");
    current_isa = isa;
}

void check(bool ok, const char* what) {
    if (!ok) throw std::invalid_argument(std::string("leaftrace kernel: wrong shape: ") + what);
}

// Check the dimensions of an array, and that a block of columns has one of the compiled widths.
template <class A, class... N>
void shaped(const A& array, const char* what, N... sizes) {
    std::size_t i = 0;
    (check(array.shape(i++) == static_cast<std::size_t>(sizes), what), ...);
}
Index width(std::size_t B) {
    check(B == 1 || B == 8 || B == 32, "a block has 1, 8 or 32 columns");
    return static_cast<Index>(B);
}

// A loss that has kernels of its own.
LossKind loss_kind(const std::string& name) {
    if (name == "squared") return LossKind::squared;
    if (name == "logistic") return LossKind::logistic;
    if (name == "poisson") return LossKind::poisson;
    if (name == "softmax") return LossKind::softmax;
    throw std::invalid_argument("leaftrace kernel: unknown loss '" + name + "'");
}

// The family of kernels and its parameters, from `changes` of a Python loss.
struct Told {
    LossKind kind;
    std::vector<double> numbers;

    explicit Told(nb::handle loss) {
        const auto changes = nb::cast<nb::tuple>(loss.attr("changes"));
        const auto name = nb::cast<std::string>(changes[0]);
        numbers = nb::cast<std::vector<double>>(changes[1]);
        static constexpr struct {
            const char* name;
            LossKind kind;
            std::size_t numbers;
        } general[] = {{"residual", LossKind::residual, 11},       {"margin", LossKind::margin, 11},
                       {"relative", LossKind::relative, 11},       {"exponentials", LossKind::exponentials, 5},
                       {"sigmoid", LossKind::sigmoid, 2},          {"pseudo-Huber", LossKind::pseudo_huber, 1},
                       {"fair", LossKind::fair, 1},                {"power", LossKind::power, 1},
                       {"squared log", LossKind::squared_log, 1}};
        for (const auto& g : general)
            if (name == g.name) {
                check(numbers.size() == g.numbers, "numbers of a loss");
                kind = g.kind;
                return;
            }
        kind = loss_kind(name);
    }
    Index width(Index K) const { return kind == LossKind::logistic ? 2 : K; }
    bool one_output() const { return kind <= LossKind::poisson; }
};

template <class A>
auto pointer(const std::optional<A>& a) -> decltype(a->data()) {
    return a ? a->data() : nullptr;
}

// Check that the largest id is inside the leaf tables: a cheap pass that rules out undefined behaviour.
template <class Leaf>
void check_ids(const Leaf* ids, Index count, Index M) {
    Leaf top = 0;
    for (Index i = 0; i < count; ++i) top = ids[i] > top ? ids[i] : top;
    check(count == 0 || static_cast<Index>(top) < M, "an id beyond its table");
}

template <class Leaf>
StepLeaves<Leaf> step(const Array<const Leaf, 2>& leaf, const Array<const std::int32_t, 1>& first, Index O, Index K) {
    check(leaf.shape(0) == first.shape(0), "leaf and first");
    for (size_t r = 0; r < first.shape(0); ++r)
        check(first.data()[r] >= 0 && first.data()[r] + O <= K, "outputs of a tree beyond K");
    const Index n = leaf.shape(1);
    return {leaf.data(), first.data(), static_cast<Index>(leaf.shape(0)), n, n, O};
}

using Edges = Array<const std::int64_t, 1>;

// All trees of an ensemble: the leaf of row j in tree r is offset[r] + leaf[r, j] of M in all.
template <class Leaf>
StepLeaves<Leaf> forest(const Array<const Leaf, 2>& leaf, const Array<const std::int32_t, 1>& first, const Edges& offset,
                        Index M, Index O, Index K) {
    const auto at = step<Leaf>(leaf, first, O, K);
    shaped(offset, "offset", at.R);
    for (Index r = 0; r < at.R; ++r) {
        check(offset.data()[r] >= 0, "offset");
        check_ids(at.tree(r), at.n, M - offset.data()[r]);
    }
    return at;
}

// Steps of one tree and one output each, with M leaves in all.
template <class Leaf>
StepLeaves<Leaf> steps(const Array<const Leaf, 2>& leaf, const Edges& edges, Index begin, Index end, Index M) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(edges, "edges", R + 1);
    check(0 <= begin && begin <= end && end <= n, "begin or end");
    check(edges.data()[0] == 0 && edges.data()[R] == M, "edges");
    for (Index r = 0; r < R; ++r) {
        check(edges.data()[r] < edges.data()[r + 1], "edges");
        check_ids(leaf.data() + r * n + begin, end - begin, edges.data()[r + 1] - edges.data()[r]);
    }
    return {leaf.data(), nullptr, R, n, n, 1};
}

RowData rows(const std::string& loss, const Array<const double, 2>& state,
             const Array<const double, 1>& y, const Array<const double, 1>& w, size_t n) {
    const LossKind kind = loss_kind(loss);
    check(kind != LossKind::softmax, "softmax has no one-output kernel");
    shaped(state, "state", n, kind == LossKind::logistic ? 2 : 1);
    shaped(y, "y", n);
    shaped(w, "w", n);
    return {kind, state.data(), y.data(), w.data()};
}

template <class Real>
void bind_lift(nb::module_& m) {
    m.def("lift",
          [](Array<const Real, 2> W, Array<const Real, 2> own, Array<Real, 2> felt) {
              const Index rows = W.shape(0), inner = W.shape(1), B = width(own.shape(1));
              shaped(own, "own", inner, B);
              shaped(felt, "felt", rows, B);
              nb::gil_scoped_release release;
              kernels<std::uint8_t, Real>().lift(rows, inner, B, W.data(), own.data(), felt.data());
          },
          "W"_a.noconvert(), "own"_a.noconvert(), "felt"_a.noconvert());
}

template <class Real>
void bind_top(nb::module_& m) {
    m.def("top_leaves",
          [](Array<const Real, 2> sums, Index k, Array<Real, 2> mask) {
              const Index M = sums.shape(0), B = sums.shape(1);
              shaped(mask, "mask", M, B);
              check(k > 0, "k");
              k = k < M ? k : M;
              std::vector<Real> scratch((k + 1) * B);
              kernels<std::uint8_t, Real>().top_leaves(M, B, k, sums.data(), mask.data(), scratch.data() + B,
                                                       scratch.data());
          },
          "sums"_a.noconvert(), "k"_a, "mask"_a.noconvert());
}

template <class Leaf>
void bind_sums(nb::module_& m) {
    m.def("leaf_sums",
          [](const std::string& loss, Array<const Leaf, 1> leaf, Array<const double, 2> state,
             Array<const double, 1> shift, Array<const double, 1> y, Array<const double, 1> w, Array<double, 2> sums) {
              const RowData d = rows(loss, state, y, w, leaf.shape(0));
              const Index n = leaf.shape(0), M = sums.shape(0);
              shaped(sums, "sums", M, 4);
              shaped(shift, "shift", M);
              nb::gil_scoped_release release;
              check_ids(leaf.data(), n, M);
              std::vector<double> copies(16 * M);
              kernels<Leaf, float>().leaf_sums(d, leaf.data(), n, M, shift.data(), copies.data(), sums.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "state"_a.noconvert(), "shift"_a.noconvert(), "y"_a.noconvert(),
          "w"_a.noconvert(), "sums"_a.noconvert());

    m.def("replay_sums",
          [](const std::string& loss, Array<const Leaf, 2> leaf, bool skip, Edges edges, Array<const double, 1> values,
             Array<double, 2> A, Array<const double, 1> y, Array<const double, 1> w, int rounding, Index begin, Index end,
             Array<double, 2> sums) {
              const LossKind kind = loss_kind(loss);
              const Index n = leaf.shape(1), M = sums.shape(0);
              check(kind != LossKind::softmax, "softmax has no one-output kernel");
              shaped(values, "values", M);
              shaped(A, "A", n, 1);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(sums, "sums", M, 8);
              nb::gil_scoped_release release;
              const auto at = steps<Leaf>(leaf, edges, begin, end, M);
              Index largest = 0;
              for (Index r = 0; r < at.R; ++r) largest = std::max<Index>(largest, edges.data()[r + 1] - edges.data()[r]);
              std::vector<double> copies(32 * largest);
              kernels<Leaf, float>().replay_sums(kind, at, skip, edges.data(), values.data(), begin, end, A.data(),
                                                 y.data(), w.data(), rounding, copies.data(), sums.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "skip"_a, "edges"_a.noconvert(), "values"_a.noconvert(), "A"_a.noconvert(),
          "y"_a.noconvert(), "w"_a.noconvert(), "rounding"_a, "begin"_a, "end"_a, "sums"_a.noconvert());

    m.def("tree_scores",
          [](Array<const Leaf, 2> leaf, Array<const std::int32_t, 1> first, Edges offset, Array<const double, 2> values,
             Array<double, 2> A) {
              const Index K = A.shape(1);
              const auto at = forest<Leaf>(leaf, first, offset, values.shape(0), values.shape(1), K);
              shaped(A, "A", at.n, K);
              nb::gil_scoped_release release;
              kernels<Leaf, float>().tree_scores(at, offset.data(), K, values.data(), A.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "offset"_a.noconvert(), "values"_a.noconvert(),
          "A"_a.noconvert());

    m.def("tree_sums",
          [](Array<const Leaf, 2> leaf, Array<const std::int32_t, 1> first, Edges offset, Array<const double, 2> c,
             Array<double, 2> out) {
              const Index K = c.shape(1);
              const auto at = forest<Leaf>(leaf, first, offset, out.shape(0), out.shape(1), K);
              shaped(c, "c", at.n, K);
              nb::gil_scoped_release release;
              kernels<Leaf, float>().tree_sums(at, offset.data(), K, c.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "offset"_a.noconvert(), "c"_a.noconvert(), "out"_a.noconvert());
}

template <class Leaf, class Real>
void bind(nb::module_& m) {
    using Ids = Array<const Leaf, 2>;
    using First = Array<const std::int32_t, 1>;

    m.def("row_effects",
          [](const std::string& loss, bool newton, Ids leaf, Index begin, Index end, Edges edges,
             Array<const double, 1> values, Edges tables, Array<const double, 1> shift, Array<const double, 1> s,
             Array<const double, 1> N, Array<double, 1> A, Array<const double, 1> y, Array<const double, 1> w,
             Array<Real, 2> V, Array<Real, 2> U) {
              const LossKind kind = loss_kind(loss);
              const Index n = leaf.shape(1), R = leaf.shape(0), M = values.shape(0), all = s.shape(0);
              check(kind != LossKind::softmax, "softmax has no one-output kernel");
              shaped(tables, "tables", R + 1);
              shaped(shift, "shift", all);
              shaped(N, "N", all);
              shaped(A, "A", end - begin);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(V, "V", R, n);
              shaped(U, "U", R, n);
              nb::gil_scoped_release release;
              const auto at = steps<Leaf>(leaf, edges, begin, end, M);
              check(tables.data()[0] == 0 && tables.data()[R] == all, "tables");
              for (Index r = 0; r < R; ++r)
                  check((tables.data()[r + 1] - tables.data()[r]) % (edges.data()[r + 1] - edges.data()[r]) == 0, "tables");
              kernels<Leaf, Real>().row_effects(kind, newton, at, begin, end, edges.data(), values.data(), tables.data(),
                                                shift.data(), s.data(), N.data(), A.data(), y.data(), w.data(), V.data(),
                                                U.data());
          },
          "loss"_a, "newton"_a, "leaf"_a.noconvert(), "begin"_a, "end"_a, "edges"_a.noconvert(), "values"_a.noconvert(),
          "tables"_a.noconvert(), "shift"_a.noconvert(), "s"_a.noconvert(), "N"_a.noconvert(), "A"_a.noconvert(),
          "y"_a.noconvert(), "w"_a.noconvert(), "V"_a.noconvert(), "U"_a.noconvert());

    m.def("backward_step",
          [](Ids leaf, First first, Array<const Real, 4> U, Array<const Real, 3> fbar, Array<Real, 3> abar,
             Maybe<const Leaf, 2> next_leaf, Maybe<const std::int32_t, 1> next_first, Maybe<Real, 3> fbar_next) {
              const Index K = abar.shape(1), B = width(abar.shape(2)), M = fbar.shape(0), O = fbar.shape(1);
              const auto at = step<Leaf>(leaf, first, O, K);
              shaped(U, "U", at.R, at.n, O, K);
              shaped(fbar, "fbar", M, O, B);
              shaped(abar, "abar", at.n, K, B);
              StepLeaves<Leaf> next{nullptr, nullptr, 0, 0, 0, 0};
              if (next_leaf) {
                  check(next_first && fbar_next, "next_leaf without next_first or fbar_next");
                  next = step<Leaf>(*next_leaf, *next_first, fbar_next->shape(1), K);
                  shaped(*next_leaf, "next_leaf", next.R, at.n);
                  shaped(*fbar_next, "fbar_next", fbar_next->shape(0), fbar_next->shape(1), B);
              }
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, M);
              const Index M_next = next_leaf ? fbar_next->shape(0) : 0;
              check_ids(next.ids, next.R * next.n, M_next);
              std::vector<Real> copies(B == 1 ? 4 * M_next : 0);
              kernels<Leaf, Real>().backward_step(at, K, B, U.data(), fbar.data(), abar.data(), next, M_next,
                                                  pointer(fbar_next), copies.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "U"_a.noconvert(), "fbar"_a.noconvert(), "abar"_a.noconvert(),
          "next_leaf"_a.noconvert().none(), "next_first"_a.noconvert().none(), "fbar_next"_a.noconvert().none());

    m.def("expand",
          [](Ids leaf, Index begin, Index end, Array<const std::int64_t, 1> offset, Array<const Real, 3> V,
             Array<const Real, 3> fbar, Array<Real, 2> out) {
              const Index R = leaf.shape(0), n = leaf.shape(1), O = fbar.shape(1), B = width(fbar.shape(2));
              shaped(offset, "offset", R);
              shaped(V, "V", R, n, O);
              shaped(out, "out", n, B);
              check(0 <= begin && begin <= end && end <= n, "begin or end");
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r) {
                  check(offset.data()[r] >= 0, "offset");
                  check_ids(leaf.data() + r * n + begin, end - begin,
                            static_cast<Index>(fbar.shape(0)) - offset.data()[r]);
              }
              const StepLeaves<Leaf> at{leaf.data(), nullptr, R, n, n, O};
              kernels<Leaf, Real>().expand(at, B, begin, end, offset.data(), V.data(), fbar.data(), out.data());
          },
          "leaf"_a.noconvert(), "begin"_a, "end"_a, "offset"_a.noconvert(), "V"_a.noconvert(), "fbar"_a.noconvert(), "out"_a.noconvert());

    using Vector = Array<const double, 1>;
    m.def("removal_step",
          [](nb::handle loss, bool newton, Ids own, First first, Array<const double, 2> own_state,
             Array<const double, 3> move, Vector y, nb::ndarray<const double, nb::c_contig, nb::device::cpu> w,
             Array<const double, 2> s, Array<const double, 3> D, Vector rows_, Vector dlam, double c,
             Array<const Real, 3> dG, Array<const Real, 4> dH, Array<double, 3> dS, Maybe<const double, 1> bounds,
             Maybe<const double, 2> G, Maybe<const double, 1> lam, Maybe<const bool, 1> fixed, bool diagonal) {
              const Told told(loss);
              const Index M = dG.shape(0), O = dG.shape(1), B = dG.shape(2), K = move.shape(1);
              const auto at = step<Leaf>(own, first, O, K);
              const bool weights = w.ndim() == 2;
              check(K == 1 || !told.one_output(), "several outputs of a loss that has one");
              shaped(own, "own", at.R, B);
              check_ids(at.ids, at.R * B, M);
              shaped(own_state, "own_state", B, told.width(K));
              shaped(move, "move", at.R, K, B);
              shaped(y, "y", B);
              check(w.ndim() == (weights ? 2 : 1), "w");
              if (weights)
                  shaped(w, "w", at.R, B);
              else
                  shaped(w, "w", B);
              shaped(s, "s", M, O);
              shaped(D, "D", M, O, O);
              shaped(rows_, "rows", M);
              shaped(dlam, "dlam", B);
              shaped(dH, "dH", M, O, O, B);
              shaped(dS, "dS", M, O, B);
              if (bounds) {
                  check(G && lam && fixed, "bounds without G, lam or fixed");
                  shaped(*bounds, "bounds", 3);
                  shaped(*G, "G", M, O);
                  shaped(*lam, "lam", M);
                  shaped(*fixed, "fixed", M);
              }
              // This takes a few microseconds: releasing the GIL and taking it back would cost more.
              std::vector<double> scratch(K + O + O * O + at.R * O * B + (O * O + O + 1) * B);
              const Removal<Leaf, Real> e{told.kind, told.numbers.data(), newton, at.R, K, M, O, B, at.ids, at.first,
                                          own_state.data(), move.data(), y.data(), w.data(), weights ? B : 0, s.data(),
                                          D.data(), rows_.data(), dlam.data(), c, dG.data(), dH.data(), dS.data(),
                                          pointer(bounds), pointer(G), pointer(lam), pointer(fixed), diagonal};
              kernels<Leaf, Real>().removal_step(e, scratch.data());
          },
          "loss"_a, "newton"_a, "own"_a.noconvert(), "first"_a.noconvert(), "own_state"_a.noconvert(),
          "move"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(), "s"_a.noconvert(), "D"_a.noconvert(),
          "rows"_a.noconvert(), "dlam"_a.noconvert(), "c"_a, "dG"_a.noconvert(), "dH"_a.noconvert(),
          "dS"_a.noconvert(), "bounds"_a.noconvert() = nb::none(), "G"_a.noconvert() = nb::none(),
          "lam"_a.noconvert() = nb::none(), "fixed"_a.noconvert() = nb::none(), "diagonal"_a = false);

    m.def("advance",
          [](Ids leaf, First first, Array<const Real, 3> d, Array<Real, 3> D) {
              const Index K = D.shape(1), B = width(D.shape(2));
              const auto at = step<Leaf>(leaf, first, d.shape(1), K);
              shaped(D, "D", at.n, K, B);
              shaped(d, "d", d.shape(0), d.shape(1), B);
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, d.shape(0));
              kernels<Leaf, Real>().advance(at, K, B, d.data(), D.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "d"_a.noconvert(), "D"_a.noconvert());

    using Before = Maybe<const Leaf, 2>;
    // before, first_before, d_before: the step whose changes have still to be added, or none.
    const auto sweep = [](Ids leaf, First first, Index M, Index O, bool exponential, bool small, const Before& before,
                          const Maybe<const std::int32_t, 1>& first_before,
                          const Maybe<const Real, 3>& d_before, Array<Real, 3>& D, const Maybe<const Real, 1>& pick,
                          const Maybe<Real, 2>& ranking) {
        const Index K = D.shape(1), B = width(D.shape(2));
        const auto at = step<Leaf>(leaf, first, O, K);
        shaped(D, "D", at.n, K, B);
        check_ids(at.ids, at.R * at.n, M);
        check(!(exponential && ranking), "leaves are ranked by D, not by exp(D) - 1");
        Sweep<Leaf, Real> s{at, K, B, exponential, small, {nullptr, nullptr, 0, 0, 0, 0}, nullptr, D.data(), nullptr, nullptr};
        if (before) {
            check(first_before && d_before, "before without first_before or d_before");
            s.before = step<Leaf>(*before, *first_before, d_before->shape(1), K);
            shaped(*before, "before", s.before.R, at.n);
            shaped(*d_before, "d_before", d_before->shape(0), d_before->shape(1), B);
            check_ids(s.before.ids, s.before.R * at.n, d_before->shape(0));
            s.d_before = d_before->data();
        }
        if (ranking) {
            if (pick) shaped(*pick, "pick", at.n);
            shaped(*ranking, "ranking", M, B);
            s.pick = pointer(pick);
            s.ranking = ranking->data();
        }
        return s;
    };

    m.def("tangent_sums",
          [sweep](Ids leaf, First first, Before before,
                  Maybe<const std::int32_t, 1> first_before, Maybe<const Real, 3> d_before, Maybe<const Real, 1> pick,
                  Array<const Real, 4> U, Array<Real, 3> D, Maybe<Real, 2> ranking, Array<Real, 3> out) {
              const auto s = sweep(leaf, first, out.shape(0), out.shape(1), false, false, before, first_before, d_before, D,
                                   pick, ranking);
              shaped(U, "U", s.at.R, s.at.n, s.at.O, s.K);
              shaped(out, "out", out.shape(0), s.at.O, s.B);
              nb::gil_scoped_release release;
              kernels<Leaf, Real>().tangent_sums(s, U.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(),
          "before"_a.noconvert().none(), "first_before"_a.noconvert().none(), "d_before"_a.noconvert().none(),
          "pick"_a.noconvert().none(), "U"_a.noconvert(), "D"_a.noconvert(), "ranking"_a.noconvert().none(),
          "out"_a.noconvert());

    using Any = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;
    m.def("change_sums",
          [sweep](nb::handle loss, Ids leaf, First first, Before before,
                  Maybe<const std::int32_t, 1> first_before, Maybe<const Real, 3> d_before, Maybe<const Real, 1> pick,
                  int form, Any state, Array<const double, 1> y, nb::ndarray<const Real, nb::c_contig, nb::device::cpu> w,
                  Maybe<const Real, 2> shift, Maybe<const Real, 3> inner, Maybe<const Real, 2> mask, Array<Real, 3> D,
                  Maybe<Real, 2> ranking, Array<Real, 3> dG, Array<Real, 4> dH) {
              const Told told(loss);
              const bool general = is_general(told.kind), exponential = form == 1;
              check(form >= 0 && form <= 2, "form");
              const auto s = sweep(leaf, first, dG.shape(0), dG.shape(1), exponential, form == 2, before, first_before,
                                   d_before, D, pick, ranking);
              const Index M = dG.shape(0), O = s.at.O;
              check(s.K == 1 || !told.one_output(), "several outputs of a loss that has one");
              check(!exponential || !(general || told.kind == LossKind::squared), "this loss works with D itself");
              check(bool(inner) == bool(mask) && bool(inner) == bool(shift), "an inner iteration has shift, inner, mask");
              check(!inner || s.at.R == 1, "inner iterations go with one tree a step");
              check(state.ndim() == 2, "state");
              check(state.dtype() == (general ? nb::dtype<double>() : nb::dtype<Real>()), "the type of state");
              shaped(state, "state", s.at.n, told.width(s.K));
              shaped(y, "y", s.at.n);
              const bool weights = w.ndim() == 2;
              check(w.ndim() == (weights ? 2 : 1), "w");
              if (weights)
                  shaped(w, "w", s.at.R, s.at.n);
              else
                  shaped(w, "w", s.at.n);
              shaped(dG, "dG", M, O, s.B);
              shaped(dH, "dH", M, O, O, s.B);
              if (inner) {
                  shaped(*shift, "shift", M, O);
                  shaped(*inner, "inner", M, O, s.B);
                  shaped(*mask, "mask", M, s.B);
              }
              nb::gil_scoped_release release;
              std::vector<Real> scratch(told.kind == LossKind::softmax ? (s.B + 1) * s.K : 0);
              const Changes<Real> c{told.kind,
                                    told.numbers.data(),
                                    general ? nullptr : static_cast<const Real*>(state.data()),
                                    general ? static_cast<const double*>(state.data()) : nullptr,
                                    y.data(),
                                    w.data(),
                                    weights ? s.at.n : 0,
                                    pointer(shift),
                                    pointer(inner),
                                    pointer(mask),
                                    dG.data(),
                                    dH.data()};
              kernels<Leaf, Real>().change_sums(s, c, scratch.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "first"_a.noconvert(),
          "before"_a.noconvert().none(), "first_before"_a.noconvert().none(), "d_before"_a.noconvert().none(),
          "pick"_a.noconvert().none(), "form"_a, "state"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(),
          "shift"_a.noconvert().none(), "inner"_a.noconvert().none(), "mask"_a.noconvert().none(), "D"_a.noconvert(),
          "ranking"_a.noconvert().none(), "dG"_a.noconvert(), "dH"_a.noconvert());

    m.def("pair_sums",
          [](Ids ids, Array<const std::int64_t, 1> offset, First first, Array<const std::int64_t, 1> order,
             Array<const std::int64_t, 1> edges, Array<const Real, 4> U, Index r, Index o, Array<Real, 3> out) {
              const Index n = ids.shape(0), trees = ids.shape(1), earlier = offset.shape(0), K = U.shape(3);
              const Index L = out.shape(0), M = out.shape(1), O = out.shape(2);
              check(earlier <= trees, "more earlier trees than trees");
              shaped(first, "first", earlier);
              shaped(order, "order", n);
              shaped(edges, "edges", L + 1);
              check(static_cast<Index>(U.shape(1)) == n && r >= 0 && r < static_cast<Index>(U.shape(0)), "U");
              check(o >= 0 && o < static_cast<Index>(U.shape(2)), "o");
              for (Index i = 0; i < earlier; ++i) {
                  check(offset.data()[i] >= 0, "offset");
                  check(first.data()[i] >= 0 && first.data()[i] + O <= K, "outputs of a tree beyond K");
              }
              nb::gil_scoped_release release;
              std::vector<Leaf> top(earlier);  // largest id of each tree over all rows, in a loop that vectorises
              Leaf* t = top.data();
              for (Index j = 0; j < n; ++j) {
                  const Leaf* row = ids.data() + j * trees;
                  for (Index i = 0; i < earlier; ++i) t[i] = row[i] > t[i] ? row[i] : t[i];
                  check(order.data()[j] >= 0 && order.data()[j] < n, "order");
              }
              for (Index i = 0; i < earlier; ++i)
                  check(n == 0 || offset.data()[i] + static_cast<Index>(top[i]) < M, "an id beyond its table");
              check(edges.data()[0] == 0 && edges.data()[L] == n, "edges");
              for (Index l = 0; l < L; ++l) check(edges.data()[l] <= edges.data()[l + 1], "edges");
              std::vector<double> sums(M * O);
              const Index O_u = U.shape(2);
              kernels<Leaf, Real>().pair_sums(ids.data(), trees, earlier, offset.data(), first.data(), order.data(),
                                              edges.data(), L, M, O, U.data() + (r * n * O_u + o) * K, O_u * K,
                                              sums.data(), out.data());
          },
          "ids"_a.noconvert(), "offset"_a.noconvert(), "first"_a.noconvert(), "order"_a.noconvert(),
          "edges"_a.noconvert(), "U"_a.noconvert(), "r"_a, "o"_a, "out"_a.noconvert());
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("__doc__") = "Native kernels; leaftrace._kernels.numpy says what each one computes.";
    m.def("isa", [] { return current_isa; });
    m.def("set_isa", &set_isa, "isa"_a);
    bind_top<float>(m);
    bind_top<double>(m);
    bind_lift<float>(m);
    bind_lift<double>(m);
    bind_sums<std::uint8_t>(m);
    bind_sums<std::uint16_t>(m);
    bind_sums<std::uint32_t>(m);
    bind<std::uint8_t, float>(m);
    bind<std::uint8_t, double>(m);
    bind<std::uint16_t, float>(m);
    bind<std::uint16_t, double>(m);
    bind<std::uint32_t, float>(m);
    bind<std::uint32_t, double>(m);
}
