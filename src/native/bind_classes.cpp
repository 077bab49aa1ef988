// Bindings of the effects of rows of several outputs.
#include <cmath>

#include "arguments.hpp"
#include "bindings.hpp"
#include "classes.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

// Check that each step has its trees, its leaves and tables of them; inner iterations move all outputs.
void check_steps(const ClassSteps& steps, Index begin, Index end) {
    for (Index t = 0; t < steps.T; ++t) {
        const Index M = steps.edges[t + 1] - steps.edges[t], rows = steps.tables[t + 1] - steps.tables[t];
        check(rows % M == 0, "the tables of a step are not a multiple of its leaves");
        check(rows == M || steps.at.O == steps.K, "several iterations of trees that do not write to all outputs");
        for (Index r = steps.trees[t]; r < steps.trees[t + 1]; ++r) check_ids(steps.at.tree(r) + begin, end - begin, M);
    }
}

template <class Real>
void bind_softmax_effects(nb::module_& m) {
    m.def("softmax_effects",
          [](bool newton, IdArray leaf, First first, Edges trees, Edges edges, Array<const double, 2> values, Edges tables,
             Array<const double, 2> shift, Array<const double, 2> s, Array<const double, 3> N, Index begin, Index end,
             Array<double, 2> A, Vector y, Vector w, Array<Real, 3> V, Array<Real, 4> U) {
              const Index R = leaf.shape(0), n = leaf.shape(1), K = A.shape(1), O = values.shape(1), J = s.shape(0);
              const Index T = static_cast<Index>(trees.shape(0)) - 1;
              at_least_one(K, "outputs");
              const auto at = step(leaf, first, O, K);
              at_least_one(T, "steps");
              check_edges(trees, "trees", T, R, 1);
              check_edges(edges, "edges", T, values.shape(0), 1);
              check_edges(tables, "tables", T, J, 1);
              shaped(values, "values", values.shape(0), O);
              shaped(shift, "shift", J, O);
              shaped(s, "s", J, O);
              shaped(N, "N", J, O, O);
              check_rows(begin, end, n);
              shaped(A, "A", end - begin, K);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(V, "V", R, n, O);
              shaped(U, "U", R, n, O, K);
              nb::gil_scoped_release release;
              const ClassSteps steps{at,           T,            K,       trees.data(), edges.data(), tables.data(),
                                           values.data(), shift.data(), s.data(), N.data()};
              check_steps(steps, begin, end);
              for (Index j = begin; j < end; ++j)
                  check(y.data()[j] >= 0 && y.data()[j] < static_cast<double>(K), "a label is not a class");
              softmax_effects(steps, newton, begin, end, A.data(), y.data(), w.data(), V.data(), U.data());
          },
          "newton"_a, "leaf"_a.noconvert(), "first"_a.noconvert(), "trees"_a.noconvert(), "edges"_a.noconvert(),
          "values"_a.noconvert(), "tables"_a.noconvert(), "shift"_a.noconvert(), "s"_a.noconvert(), "N"_a.noconvert(),
          "begin"_a, "end"_a, "A"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert(), "V"_a.noconvert(),
          "U"_a.noconvert());
}

template <class Real>
void bind_separate_effects(nb::module_& m) {
    using Terms = Array<const double, 2>;
    m.def("separate_effects",
          [](bool newton, AnyIds<1> leaf, Index first, Terms g, Terms j, Terms h, Terms k, Terms s,
             Array<const double, 3> N, Vector w, Array<Real, 2> V, Array<Real, 3> U) {
              const Index n = leaf.shape(0), K = g.shape(1), M = s.shape(0), O = s.shape(1);
              at_least_one(O, "outputs of a leaf");
              check(first >= 0 && first <= K - O, "outputs of a tree beyond K");
              shaped(leaf, "leaf", n);
              shaped(g, "g", n, K);
              shaped(j, "j", n, K);
              shaped(h, "h", n, K);
              shaped(k, "k", n, K);
              shaped(s, "s", M, O);
              shaped(N, "N", M, O, O);
              shaped(w, "w", n);
              shaped(V, "V", n, O);
              shaped(U, "U", n, O, K);
              const Ids ids = ids_of(leaf, "leaf");
              nb::gil_scoped_release release;
              check_ids(ids, n, M);
              const OwnTerms terms{g.data(), j.data(), h.data(), k.data()};
              separate_effects(newton, ids, n, first, O, K, terms, s.data(), N.data(), w.data(), V.data(), U.data());
          },
          "newton"_a, "leaf"_a.noconvert(), "first"_a, "g"_a.noconvert(), "j"_a.noconvert(), "h"_a.noconvert(),
          "k"_a.noconvert(), "s"_a.noconvert(), "N"_a.noconvert(), "w"_a.noconvert(), "V"_a.noconvert(),
          "U"_a.noconvert());
}

// Draws (R, n) of the trees of a step, or without rows for none.
const double* draws_of(const Array<const double, 2>& drawn, const StepLeaves& at) {
    shaped(drawn, "drawn", drawn.shape(0) ? at.R : 0, at.n);
    return drawn.shape(0) ? drawn.data() : nullptr;
}

void bind_sums(nb::module_& m) {
    m.def("output_sums",
          [](Index flags, IdArray leaf, First first, Array<const double, 2> g, Array<const double, 2> h, Vector w,
             Array<const double, 2> drawn, Array<double, 2> G, Array<double, 2> H) {
              const Index n = leaf.shape(1), K = g.shape(1), M = G.shape(0), O = G.shape(1);
              check(flags >= 0 && flags < 16, "flags are not a sum of 1, 2, 4 and 8");
              const auto at = step(leaf, first, O, K);
              shaped(g, "g", n, K);
              shaped(h, "h", n, K);
              shaped(w, "w", n);
              const double* draws = draws_of(drawn, at);
              shaped(G, "G", M, O);
              shaped(H, "H", M, O);
              nb::gil_scoped_release release;
              for (Index r = 0; r < at.R; ++r) check_ids(at.tree(r), n, M);
              output_sums({flags}, at, K, g.data(), h.data(), w.data(), draws, G.data(), H.data());
          },
          "flags"_a, "leaf"_a.noconvert(), "first"_a.noconvert(), "g"_a.noconvert(), "h"_a.noconvert(),
          "w"_a.noconvert(), "drawn"_a.noconvert(), "G"_a.noconvert(), "H"_a.noconvert());
    m.def("weight_sums",
          [](IdArray leaf, Vector w, Array<const double, 2> drawn, Array<double, 2> out) {
              const Index R = leaf.shape(0), n = leaf.shape(1), M = out.shape(0);
              shaped(leaf, "leaf", R, n);
              const StepLeaves at{ids_of(leaf, "leaf"), nullptr, R, n, n, 1};
              shaped(w, "w", n);
              const double* draws = draws_of(drawn, at);
              shaped(out, "out", M, 2);
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r) check_ids(at.tree(r), n, M);
              weight_sums(at, w.data(), draws, out.data());
          },
          "leaf"_a.noconvert(), "w"_a.noconvert(), "drawn"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace

void bind_classes(nb::module_& m) {
    for_each_type([&](auto* real) {
        bind_softmax_effects<std::remove_pointer_t<decltype(real)>>(m);
        bind_separate_effects<std::remove_pointer_t<decltype(real)>>(m);
    });
    bind_sums(m);
}

}  // namespace leaftrace
