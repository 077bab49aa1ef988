// Bindings of the passes through many trees: scores, sums over leaves, effects of rows.
#include "bindings.hpp"
#include "loss_argument.hpp"

#include <algorithm>

using namespace nanobind::literals;

namespace leaftrace {
namespace {

void bind_sums(nb::module_& m) {
    m.def("leaf_sums",
          [](const std::string& loss, AnyIds<1> leaf, Array<const double, 2> state, Vector shift, Vector y,
             Vector w, Array<double, 2> sums) {
              const LossKind kind = one_output_kind(loss);
              const Index n = leaf.shape(0), M = sums.shape(0);
              shaped(leaf, "leaf", n);
              shaped(state, "state", n, kind == LossKind::logistic ? 2 : 1);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(sums, "sums", M, 4);
              shaped(shift, "shift", M);
              const Ids ids = ids_of(leaf, "leaf");
              const RowData d{kind, state.data(), y.data(), w.data()};
              nb::gil_scoped_release release;
              check_ids(ids, n, M);
              auto copies = scratch_of<double>(16 * M);
              kernels<float>().leaf_sums(d, ids, n, M, shift.data(), copies.data(), sums.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "state"_a.noconvert(), "shift"_a.noconvert(), "y"_a.noconvert(),
          "w"_a.noconvert(), "sums"_a.noconvert());

    m.def("replay_sums",
          [](const std::string& loss, IdArray leaf, bool skip, Edges edges, Vector values, Array<double, 2> A, Vector y,
             Vector w, Index rounding, Index begin, Index end, Array<double, 2> sums) {
              const LossKind kind = one_output_kind(loss);
              const Index n = leaf.shape(1), M = sums.shape(0);
              shaped(values, "values", M);
              shaped(A, "A", n, 1);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(sums, "sums", M, 8);
              check(0 <= rounding && rounding <= 7, "rounding is not a sum of 1, 2 and 4");
              nb::gil_scoped_release release;
              const auto at = steps(leaf, edges, begin, end, M);
              Index largest = 0;
              for (Index r = 0; r < at.R; ++r) largest = std::max<Index>(largest, edges.data()[r + 1] - edges.data()[r]);
              auto copies = scratch_of<double>(17 * largest);
              kernels<float>().replay_sums(kind, at, skip, edges.data(), values.data(), begin, end, A.data(),
                                                 y.data(), w.data(), static_cast<int>(rounding), copies.data(), sums.data());
          },
          "loss"_a, "leaf"_a.noconvert(), "skip"_a, "edges"_a.noconvert(), "values"_a.noconvert(), "A"_a.noconvert(),
          "y"_a.noconvert(), "w"_a.noconvert(), "rounding"_a, "begin"_a, "end"_a, "sums"_a.noconvert());

    m.def("tree_scores",
          [](IdArray leaf, First first, Edges offset, Array<const double, 2> values, Array<double, 2> A) {
              const Index M = values.shape(0), O = values.shape(1), K = A.shape(1);
              shaped(values, "values", M, O);
              shaped(A, "A", leaf.shape(1), K);
              nb::gil_scoped_release release;
              const auto at = forest(leaf, first, offset, M, O, K);
              kernels<float>().tree_scores(at, offset.data(), K, values.data(), A.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "offset"_a.noconvert(), "values"_a.noconvert(),
          "A"_a.noconvert());

    m.def("tree_sums",
          [](IdArray leaf, First first, Edges offset, Array<const double, 2> c, Array<double, 2> out) {
              const Index M = out.shape(0), O = out.shape(1), K = c.shape(1);
              shaped(c, "c", leaf.shape(1), K);
              shaped(out, "out", M, O);
              nb::gil_scoped_release release;
              const auto at = forest(leaf, first, offset, M, O, K);
              kernels<float>().tree_sums(at, offset.data(), K, c.data(), out.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "offset"_a.noconvert(), "c"_a.noconvert(), "out"_a.noconvert());
}

template <class Real>
void bind_effects(nb::module_& m) {
    m.def("row_effects",
          [](const std::string& loss, bool newton, IdArray leaf, Index begin, Index end, Edges edges, Vector values,
             Edges tables, Vector shift, Vector s, Vector N, Array<double, 1> A, Vector y, Vector w, Array<Real, 2> V,
             Array<Real, 2> U) {
              const LossKind kind = one_output_kind(loss);
              const Index n = leaf.shape(1), R = leaf.shape(0), M = values.shape(0), all = s.shape(0);
              check_rows(begin, end, n);
              shaped(values, "values", M);
              shaped(shift, "shift", all);
              shaped(s, "s", all);
              shaped(N, "N", all);
              shaped(A, "A", end - begin);
              shaped(y, "y", n);
              shaped(w, "w", n);
              shaped(V, "V", R, n);
              shaped(U, "U", R, n);
              nb::gil_scoped_release release;
              const auto at = steps(leaf, edges, begin, end, M);
              check_edges(tables, "tables", R, all, 0);
              for (Index r = 0; r < R; ++r)
                  check((tables.data()[r + 1] - tables.data()[r]) % (edges.data()[r + 1] - edges.data()[r]) == 0,
                        "the tables of a tree are not a multiple of its leaves");
              kernels<Real>().row_effects(kind, newton, at, begin, end, edges.data(), values.data(), tables.data(),
                                                shift.data(), s.data(), N.data(), A.data(), y.data(), w.data(), V.data(),
                                                U.data());
          },
          "loss"_a, "newton"_a, "leaf"_a.noconvert(), "begin"_a, "end"_a, "edges"_a.noconvert(), "values"_a.noconvert(),
          "tables"_a.noconvert(), "shift"_a.noconvert(), "s"_a.noconvert(), "N"_a.noconvert(), "A"_a.noconvert(),
          "y"_a.noconvert(), "w"_a.noconvert(), "V"_a.noconvert(), "U"_a.noconvert());
}

}  // namespace

void bind_replay(nb::module_& m) {
    bind_sums(m);
    for_each_type([&](auto* real) { bind_effects<std::remove_pointer_t<decltype(real)>>(m); });
}

}  // namespace leaftrace
