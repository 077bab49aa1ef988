// Python bindings: check shapes once, let the GIL go, call the kernels of the best instruction set this machine has.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>

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

// The dimensions of an array, checked against those given; a block of columns has one of the widths compiled.
template <class A, class... N>
void shaped(const A& array, const char* what, N... sizes) {
    std::size_t i = 0;
    (check(array.shape(i++) == static_cast<std::size_t>(sizes), what), ...);
}
Index width(std::size_t B) {
    check(B == 1 || B == 8 || B == 32, "a block has 1, 8 or 32 columns");
    return static_cast<Index>(B);
}

LossKind loss_kind(const std::string& name) {
    if (name == "squared") return LossKind::squared;
    if (name == "logistic") return LossKind::logistic;
    if (name == "poisson") return LossKind::poisson;
    if (name == "softmax") return LossKind::softmax;
    throw std::invalid_argument("leaftrace kernel: unknown loss '" + name + "'");
}

template <class A>
auto pointer(const std::optional<A>& a) -> decltype(a->data()) {
    return a ? a->data() : nullptr;
}

// The largest id must be inside the leaf tables: one cheap pass instead of undefined behaviour.
template <class Leaf>
void check_ids(const Leaf* ids, Index count, Index M) {
    Leaf top = 0;
    for (Index i = 0; i < count; ++i) top = ids[i] > top ? ids[i] : top;
    check(count == 0 || static_cast<Index>(top) < M, "leaf id beyond the leaves of the step");
}

template <class Leaf>
StepLeaves<Leaf> step(const Array<const Leaf, 2>& leaf, const Array<const std::int32_t, 1>& first, Index O, Index K) {
    check(leaf.shape(0) == first.shape(0), "leaf and first");
    for (size_t r = 0; r < first.shape(0); ++r)
        check(first.data()[r] >= 0 && first.data()[r] + O <= K, "outputs of a tree beyond K");
    const Index n = leaf.shape(1);
    return {leaf.data(), first.data(), static_cast<Index>(leaf.shape(0)), n, n, O};
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

template <class Leaf>
void bind_sums(nb::module_& m) {
    m.def("leaf_sums",
          [](const std::string& loss, Array<const Leaf, 1> leaf, Array<const double, 2> state,
             Maybe<const double, 1> shift, Array<const double, 1> y, Array<const double, 1> w, Array<double, 2> sums) {
              const RowData d = rows(loss, state, y, w, leaf.shape(0));
              const Index n = leaf.shape(0), M = sums.shape(0);
              shaped(sums, "sums", M, 4);
              if (shift) shaped(*shift, "shift", M);
              nb::gil_scoped_release release;
              check_ids(leaf.data(), n, M);
              std::vector<double> copies(16 * M);
              kernels<Leaf, float>().leaf_sums(d, leaf.data(), n, M, pointer(shift), copies.data(), sums.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "state"_a.noconvert(), "shift"_a.noconvert().none(), "y"_a.noconvert(),
          "w"_a.noconvert(), "sums"_a.noconvert());
}

template <class Leaf, class Real>
void bind(nb::module_& m) {
    using Ids = Array<const Leaf, 2>;
    using First = Array<const std::int32_t, 1>;

    m.def("row_effects",
          [](const std::string& loss, bool newton, Array<const Leaf, 1> leaf, Array<const double, 2> state,
             Array<const double, 2> shift, Array<const double, 2> s, Array<const double, 2> N,
             Array<const double, 1> y, Array<const double, 1> w, Array<Real, 1> V, Array<Real, 1> U) {
              const Index n = leaf.shape(0), Q = s.shape(0), M = s.shape(1);
              const RowData d = rows(loss, state, y, w, n);
              shaped(shift, "shift", Q, M);
              shaped(N, "N", Q, M);
              shaped(V, "V", n);
              shaped(U, "U", n);
              nb::gil_scoped_release release;
              check_ids(leaf.data(), n, M);
              kernels<Leaf, Real>().row_effects(d, newton, leaf.data(), n, Q, M, shift.data(), s.data(), N.data(), V.data(),
                                                U.data());
          },
          "loss"_a, "newton"_a, "leaf"_a.noconvert(), "state"_a.noconvert(), "shift"_a.noconvert(),
          "s"_a.noconvert(), "N"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(), "V"_a.noconvert(),
          "U"_a.noconvert());

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
              if (next_leaf) check_ids(next.ids, next.R * next.n, fbar_next->shape(0));
              kernels<Leaf, Real>().backward_step(at, K, B, U.data(), fbar.data(), abar.data(), next, pointer(fbar_next));
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "U"_a.noconvert(), "fbar"_a.noconvert(), "abar"_a.noconvert(),
          "next_leaf"_a.noconvert().none(), "next_first"_a.noconvert().none(), "fbar_next"_a.noconvert().none());

    m.def("expand",
          [](Ids leaf, Array<const std::int64_t, 1> offset, Array<const Real, 3> V, Array<const Real, 3> fbar,
             Array<Real, 2> out) {
              const Index R = leaf.shape(0), n = leaf.shape(1), O = fbar.shape(1), B = width(fbar.shape(2));
              shaped(offset, "offset", R);
              shaped(V, "V", R, n, O);
              shaped(out, "out", n, B);
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r) {
                  check(offset.data()[r] >= 0, "offset");
                  check_ids(leaf.data() + r * n, n, static_cast<Index>(fbar.shape(0)) - offset.data()[r]);
              }
              const StepLeaves<Leaf> at{leaf.data(), nullptr, R, n, n, O};
              kernels<Leaf, Real>().expand(at, B, offset.data(), V.data(), fbar.data(), out.data());
          },
          "leaf"_a.noconvert(), "offset"_a.noconvert(), "V"_a.noconvert(), "fbar"_a.noconvert(), "out"_a.noconvert());

    m.def("advance",
          [](Ids leaf, First first, Array<const Real, 3> d, bool exponential, Array<Real, 3> E) {
              const Index K = E.shape(1), B = width(E.shape(2));
              const auto at = step<Leaf>(leaf, first, d.shape(1), K);
              shaped(E, "E", at.n, K, B);
              shaped(d, "d", d.shape(0), d.shape(1), B);
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, d.shape(0));
              kernels<Leaf, Real>().advance(at, K, B, d.data(), exponential, E.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "d"_a.noconvert(), "exponential"_a, "E"_a.noconvert());

    m.def("abs_sums",
          [](Ids leaf, First first, Index O, Array<const Real, 1> pick, Array<const Real, 3> D, Array<Real, 2> out) {
              const Index K = D.shape(1), B = width(D.shape(2));
              const auto at = step<Leaf>(leaf, first, O, K);
              shaped(D, "D", at.n, K, B);
              shaped(pick, "pick", at.n);
              shaped(out, "out", out.shape(0), B);
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, out.shape(0));
              kernels<Leaf, Real>().abs_sums(at, K, B, pick.data(), D.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "O"_a, "pick"_a.noconvert(), "D"_a.noconvert(),
          "out"_a.noconvert());

    m.def("tangent_sums",
          [](Ids leaf, First first, Array<const Real, 4> U, Array<const Real, 3> D, Array<Real, 3> out) {
              const Index K = D.shape(1), B = width(D.shape(2)), O = out.shape(1);
              const auto at = step<Leaf>(leaf, first, O, K);
              shaped(U, "U", at.R, at.n, O, K);
              shaped(D, "D", at.n, K, B);
              shaped(out, "out", out.shape(0), O, B);
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, out.shape(0));
              kernels<Leaf, Real>().tangent_sums(at, K, B, U.data(), D.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "U"_a.noconvert(), "D"_a.noconvert(), "out"_a.noconvert());

    m.def("change_sums",
          [](const std::string& loss, Ids leaf, First first, Array<const Real, 2> state, Array<const Real, 1> w,
             Maybe<const Real, 2> shift, Maybe<const Real, 3> e, Maybe<const Real, 2> mask, Array<const Real, 3> E,
             Array<Real, 3> dG, Array<Real, 4> dH) {
              const LossKind kind = loss_kind(loss);
              const Index K = E.shape(1), B = width(E.shape(2)), M = dG.shape(0), O = dG.shape(1);
              const auto at = step<Leaf>(leaf, first, O, K);
              check(kind == LossKind::softmax || K == 1, "several outputs need softmax");
              check(bool(e) == bool(mask) && bool(e) == bool(shift), "an inner iteration has shift, e and mask");
              check(!e || at.R == 1, "inner iterations go with one tree a step");
              shaped(state, "state", at.n, kind == LossKind::logistic ? 2 : K);
              shaped(w, "w", at.n);
              shaped(E, "E", at.n, K, B);
              shaped(dG, "dG", M, O, B);
              shaped(dH, "dH", M, O, O, B);
              if (e) {
                  shaped(*shift, "shift", M, O);
                  shaped(*e, "e", M, O, B);
                  shaped(*mask, "mask", M, B);
              }
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, M);
              std::vector<Real> scratch(kind == LossKind::softmax ? K * B + K : 0);
              kernels<Leaf, Real>().change_sums(at, kind, K, B, state.data(), w.data(), pointer(shift), pointer(e),
                                                pointer(mask), E.data(), dG.data(), dH.data(), scratch.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "first"_a.noconvert(), "state"_a.noconvert(), "w"_a.noconvert(),
          "shift"_a.noconvert().none(), "e"_a.noconvert().none(), "mask"_a.noconvert().none(), "E"_a.noconvert(),
          "dG"_a.noconvert(), "dH"_a.noconvert());
}

}  // namespace

NB_MODULE(_native, m) {
    m.attr("__doc__") = "Native kernels; leaftrace._twins says what each one computes.";
    m.def("isa", [] { return current_isa; });
    m.def("set_isa", &set_isa, "isa"_a);
    bind_sums<std::uint8_t>(m);
    bind_sums<std::uint16_t>(m);
    bind<std::uint8_t, float>(m);
    bind<std::uint8_t, double>(m);
    bind<std::uint16_t, float>(m);
    bind<std::uint16_t, double>(m);
}
