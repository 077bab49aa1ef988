// Bindings of the forward passes: changes of scores and of leaves when rows are removed.
#include "bindings.hpp"
#include "loss_argument.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

template <class Real>
void bind_top(nb::module_& m) {
    m.def("top_leaves",
          [](Array<const Real, 2> sums, Index k, Array<Real, 2> mask) {
              const Index M = sums.shape(0), B = sums.shape(1);
              at_least_one(B, "columns");
              at_least_one(k, "leaves to take");
              shaped(sums, "sums", M, B);
              shaped(mask, "mask", M, B);
              k = k < M ? k : M;
              auto scratch = scratch_of<Real>((k + 1) * B);
              kernels<Real>().top_leaves(M, B, k, sums.data(), mask.data(), scratch.data() + B,
                                                       scratch.data());
          },
          "sums"_a.noconvert(), "k"_a, "mask"_a.noconvert());
}

template <class Real>
void bind_removal(nb::module_& m) {
    m.def("removal_step",
          [](nb::handle loss, bool newton, IdArray own, First first, Array<const double, 2> own_state,
             Array<const double, 3> move, Vector y, AnyShape<const double> w, Array<const double, 2> s,
             Array<const double, 3> D, Vector rows, Vector dlam, double c, Array<const Real, 3> dG,
             Array<const Real, 4> dH, Array<double, 3> dS, Maybe<const double, 1> bounds, Maybe<const double, 2> G,
             Maybe<const double, 1> lam, Maybe<const bool, 1> fixed, bool diagonal) {
              const LossFamily family(loss);
              const Index M = dG.shape(0), O = dG.shape(1), B = dG.shape(2), K = move.shape(1);
              family.check_outputs(K);
              at_least_one(B, "rows to remove");
              const auto at = step(own, first, O, K);
              shaped(own, "own", at.R, B);
              check_ids(at.ids, at.R * B, M);
              shaped(own_state, "own_state", B, family.width(K));
              shaped(move, "move", at.R, K, B);
              shaped(y, "y", B);
              const Index w_stride = weights_stride(w, at.R, B);
              shaped(s, "s", M, O);
              shaped(D, "D", M, O, O);
              shaped(rows, "rows", M);
              shaped(dlam, "dlam", B);
              shaped(dG, "dG", M, O, B);
              shaped(dH, "dH", M, O, O, B);
              shaped(dS, "dS", M, O, B);
              check(bool(bounds) == bool(G) && bool(bounds) == bool(lam) && bool(bounds) == bool(fixed),
                    "bounds, G, lam and fixed go together");
              if (bounds) {
                  shaped(*bounds, "bounds", 3);
                  shaped(*G, "G", M, O);
                  shaped(*lam, "lam", M);
                  shaped(*fixed, "fixed", M);
              }
              // This takes a few microseconds: releasing the GIL and taking it back would cost more.
              auto scratch = scratch_of<double>(K + O + O * O + at.R * O * B + (O * O + O + 1) * B);
              const Removal<Real> e{family.kind, family.numbers.data(), newton, at.R, K, M, O, B, at.ids, at.first,
                                          own_state.data(), move.data(), y.data(), w.data(), w_stride, s.data(), D.data(),
                                          rows.data(), dlam.data(), c, dG.data(), dH.data(), dS.data(), pointer(bounds),
                                          pointer(G), pointer(lam), pointer(fixed), diagonal};
              kernels<Real>().removal_step(e, scratch.data());
          },
          "loss"_a.none(), "newton"_a, "own"_a.noconvert(), "first"_a.noconvert(), "own_state"_a.noconvert(),
          "move"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(), "s"_a.noconvert(), "D"_a.noconvert(),
          "rows"_a.noconvert(), "dlam"_a.noconvert(), "c"_a, "dG"_a.noconvert(), "dH"_a.noconvert(),
          "dS"_a.noconvert(), "bounds"_a.noconvert() = nb::none(), "G"_a.noconvert() = nb::none(),
          "lam"_a.noconvert() = nb::none(), "fixed"_a.noconvert() = nb::none(), "diagonal"_a = false);
}

// The step whose changes have still to be added, or none.
template <class Real>
struct Before {
    const MaybeIds& leaf;
    const Maybe<const std::int32_t, 1>& first;
    const Maybe<const Real, 3>& d;
};

// The rows by which the leaves are ranked, and the sums.
template <class Real>
struct Ranking {
    const Maybe<const Real, 1>& pick;
    const Maybe<Real, 2>& sums;
};

template <class Real>
Sweep<Real> sweep_of(const IdArray& leaf, const First& first, Index M, Index O, const Before<Real>& before,
                           const Ranking<Real>& ranking, const Array<Real, 3>& D) {
    const Index K = D.shape(1), B = width(D.shape(2));
    check_types(leaf, before.leaf, "before");
    const auto at = step(leaf, first, O, K);
    shaped(D, "D", at.n, K, B);
    check_ids(at.ids, at.R * at.n, M);
    Sweep<Real> s{at, K, B, false, false, {{nullptr, at.ids.bytes}, nullptr, 0, 0, 0, 0}, nullptr, D.data(), nullptr, nullptr};
    check(bool(before.leaf) == bool(before.first) && bool(before.leaf) == bool(before.d),
          "before, first_before and d_before go together");
    if (before.leaf) {
        const Index M_before = before.d->shape(0), O_before = before.d->shape(1);
        s.before = step(*before.leaf, *before.first, O_before, K);
        shaped(*before.leaf, "before", s.before.R, at.n);
        shaped(*before.d, "d_before", M_before, O_before, B);
        check_ids(s.before.ids, s.before.R * at.n, M_before);
        s.d_before = before.d->data();
    }
    if (ranking.pick) shaped(*ranking.pick, "pick", at.n);
    if (ranking.sums) {
        shaped(*ranking.sums, "ranking", M, B);
        s.pick = pointer(ranking.pick);
        s.ranking = ranking.sums->data();
    }
    return s;
}

template <class Real>
void bind_tangent(nb::module_& m) {
    m.def("advance",
          [](IdArray leaf, First first, Array<const Real, 3> d, Array<Real, 3> D) {
              const Index M = d.shape(0), O = d.shape(1), K = D.shape(1), B = width(D.shape(2));
              const auto at = step(leaf, first, O, K);
              shaped(D, "D", at.n, K, B);
              shaped(d, "d", M, O, B);
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, M);
              kernels<Real>().advance(at, K, B, d.data(), D.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "d"_a.noconvert(), "D"_a.noconvert());

    m.def("tangent_sums",
          [](IdArray leaf, First first, MaybeIds before, Maybe<const std::int32_t, 1> first_before,
             Maybe<const Real, 3> d_before, Maybe<const Real, 1> pick, Array<const Real, 4> U, Array<Real, 3> D,
             Maybe<Real, 2> ranking, Array<Real, 3> out) {
              const Index M = out.shape(0), O = out.shape(1);
              const auto s = sweep_of<Real>(leaf, first, M, O, {before, first_before, d_before}, {pick, ranking}, D);
              shaped(U, "U", s.at.R, s.at.n, O, s.K);
              shaped(out, "out", M, O, s.B);
              nb::gil_scoped_release release;
              kernels<Real>().tangent_sums(s, U.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(),
          "before"_a.noconvert().none(), "first_before"_a.noconvert().none(), "d_before"_a.noconvert().none(),
          "pick"_a.noconvert().none(), "U"_a.noconvert(), "D"_a.noconvert(), "ranking"_a.noconvert().none(),
          "out"_a.noconvert());
}

template <class Real>
void bind_changes(nb::module_& m) {
    m.def("change_sums",
          [](nb::handle loss, IdArray leaf, First first, MaybeIds before,
             Maybe<const std::int32_t, 1> first_before, Maybe<const Real, 3> d_before, Maybe<const Real, 1> pick, Index form,
             AnyShape<nb::ro> state, Vector y, AnyShape<const Real> w, Maybe<const Real, 2> shift,
             Maybe<const Real, 3> inner, Maybe<const Real, 2> mask, Array<Real, 3> D, Maybe<Real, 2> ranking,
             Array<Real, 3> dG, Array<Real, 4> dH) {
              const LossFamily family(loss);
              const bool general = is_general(family.kind);
              const Index M = dG.shape(0), O = dG.shape(1);
              check(0 <= form && form <= 2, "form is not 0, 1 or 2");
              check(form != 1 || !(general || family.kind == LossKind::squared), "this loss works with D itself");
              check(form != 1 || !ranking, "leaves are ranked by D, not by exp(D) - 1");
              auto s = sweep_of<Real>(leaf, first, M, O, {before, first_before, d_before}, {pick, ranking}, D);
              s.exponential = form == 1;
              s.small = form == 2;
              family.check_outputs(s.K);
              check(bool(inner) == bool(mask) && bool(inner) == bool(shift), "shift, inner and mask go together");
              check(!inner || (s.at.R == 1 && O == s.K), "an inner iteration has one tree, with all outputs");
              if (state.dtype() != (general ? nb::dtype<double>() : nb::dtype<Real>()))
                  refuse_type("state", " has another type than this loss takes");
              check_axes(state, "state", 2, 2);
              shaped(state, "state", s.at.n, family.width(s.K));
              shaped(y, "y", s.at.n);
              const Index w_stride = weights_stride(w, s.at.R, s.at.n);
              shaped(dG, "dG", M, O, s.B);
              shaped(dH, "dH", M, O, O, s.B);
              if (inner) {
                  shaped(*shift, "shift", M, O);
                  shaped(*inner, "inner", M, O, s.B);
                  shaped(*mask, "mask", M, s.B);
              }
              nb::gil_scoped_release release;
              auto scratch = scratch_of<Real>(family.kind == LossKind::softmax ? (s.B + 1) * s.K : 0);
              const Changes<Real> c{family.kind,
                                    family.numbers.data(),
                                    general ? nullptr : static_cast<const Real*>(state.data()),
                                    general ? static_cast<const double*>(state.data()) : nullptr,
                                    y.data(),
                                    w.data(),
                                    w_stride,
                                    pointer(shift),
                                    pointer(inner),
                                    pointer(mask),
                                    dG.data(),
                                    dH.data()};
              kernels<Real>().change_sums(s, c, scratch.data());
          },
          "loss"_a.none(), "leaf"_a.noconvert(), "first"_a.noconvert(),
          "before"_a.noconvert().none(), "first_before"_a.noconvert().none(), "d_before"_a.noconvert().none(),
          "pick"_a.noconvert().none(), "form"_a, "state"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(),
          "shift"_a.noconvert().none(), "inner"_a.noconvert().none(), "mask"_a.noconvert().none(), "D"_a.noconvert(),
          "ranking"_a.noconvert().none(), "dG"_a.noconvert(), "dH"_a.noconvert());
}

}  // namespace

void bind_refit(nb::module_& m) {
    bind_top<float>(m);
    bind_top<double>(m);
    for_each_type([&](auto* real) {
        using Real = std::remove_pointer_t<decltype(real)>;
        bind_removal<Real>(m);
        bind_tangent<Real>(m);
        bind_changes<Real>(m);
    });
}

}  // namespace leaftrace
