// Binding of the effects of rows of several classes.
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

}  // namespace

void bind_classes(nb::module_& m) {
    for_each_type([&](auto* real) { bind_softmax_effects<std::remove_pointer_t<decltype(real)>>(m); });
}

}  // namespace leaftrace
