// Binding of values of given ranks in leaves.
#include "arguments.hpp"
#include "bindings.hpp"
#include "ranks.hpp"

using namespace nanobind::literals;

namespace leaftrace {

void bind_ranks(nb::module_& m) {
    m.def("rank_pairs",
          [](AnyIds<1> leaf, Vector x, Edges low, Array<double, 2> out) {
              const Index n = leaf.shape(0), M = low.shape(0);
              shaped(leaf, "leaf", n);
              shaped(x, "x", n);
              shaped(low, "low", M);
              shaped(out, "out", M, 2);
              const Ids ids = ids_of(leaf, "leaf");
              nb::gil_scoped_release release;
              check_ids(ids, n, M);
              std::vector<Index> start(static_cast<std::size_t>(M + 1));
              with_ids(ids, [&](const auto* id) {
                  for (Index j = 0; j < n; ++j) ++start[id[j] + 1];
              });
              for (Index k = 0; k < M; ++k) {
                  const Index count = start[k + 1], rank = low.data()[k];
                  check(rank >= 0 && rank < (count ? count : 1), "a rank beyond the rows of its leaf");
                  start[k + 1] += start[k];
              }
              rank_pairs(ids, n, M, x.data(), start, low.data(), out.data());
          },
          "leaf"_a.noconvert(), "x"_a.noconvert(), "low"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace leaftrace
