// Binding of the way of rows through trees.
#include <algorithm>

#include "arguments.hpp"
#include "bindings.hpp"
#include "routes.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

// Check that nodes lead to later nodes of their tree or to its leaves, so that every way ends.
void check_nodes(const Routes& at, Index d, Index bits) {
    for (Index r = 0; r < at.R; ++r) {
        const Index N = at.inner(r);
        for (Index k = 0; k < N; ++k) {
            const Index node = at.edges[r] + k;
            check(at.column[node] >= 0 && at.column[node] < d, "a column beyond the values");
            for (Index side = 0; side < 2; ++side) {
                const Index child = at.children[2 * node + side];
                check(child > k && child <= 2 * N, "a child is not below its node");
            }
            check(at.flags[node] <= (missing_left | zero_missing | by_category), "flags are not a sum of 1, 2 and 4");
        }
    }
    const Index nodes = at.edges[at.R];
    bool ok = at.words[0] == 0 && at.words[nodes] == bits;
    for (Index k = 0; k < nodes; ++k) ok &= at.words[k] >= 0 && at.words[k + 1] >= at.words[k] && at.words[k + 1] <= bits;
    check(ok, "words do not go up from 0 to the number of bits' words");
}

template <class Real>
void bind_find_leaves(nb::module_& m) {
    m.def("find_leaves",
          [](Array<const Real, 2> values, Edges edges, Array<const std::int32_t, 1> column, Vector threshold,
             Array<const std::int32_t, 2> children, Array<const std::uint8_t, 1> flags, Edges words,
             Array<const std::uint32_t, 1> bits, Edges offset, Index begin, Index end,
             nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu> leaves) {
              const Index n = values.shape(0), d = values.shape(1), R = offset.shape(0), N = column.shape(0);
              shaped(values, "values", n, d);
              check_edges(edges, "edges", R, N, 0);
              shaped(column, "column", N);
              shaped(threshold, "threshold", N);
              shaped(children, "children", N, 2);
              shaped(flags, "flags", N);
              shaped(words, "words", N + 1);
              shaped(bits, "bits", bits.shape(0));
              shaped(offset, "offset", R);
              check_rows(begin, end, n);
              shaped(leaves, "leaves", R, n);
              const int bytes = ids_of(leaves, "leaves").bytes;
              nb::gil_scoped_release release;
              const Routes at{edges.data(), column.data(), threshold.data(), children.data(), flags.data(),
                              words.data(),  bits.data(),   R};
              check_nodes(at, d, bits.shape(0));
              const Index most = (Index(1) << 8 * bytes) - 1;
              for (Index r = 0; r < R; ++r)
                  check(offset.data()[r] >= 0 && offset.data()[r] <= most - at.inner(r), "leaves has a type too small");
              const auto nodes = route_nodes<Real>(at);
              const bool plain = std::all_of(nodes.begin(), nodes.end(), [](const auto& x) { return x.flags <= missing_left; });
              const auto find = plain ? find_leaves<true, Real> : find_leaves<false, Real>;
              find(at, nodes, values.data(), d, n, offset.data(), begin, end, static_cast<unsigned char*>(leaves.data()), bytes);
          },
          "values"_a.noconvert(), "edges"_a.noconvert(), "column"_a.noconvert(), "threshold"_a.noconvert(),
          "children"_a.noconvert(), "flags"_a.noconvert(), "words"_a.noconvert(), "bits"_a.noconvert(),
          "offset"_a.noconvert(), "begin"_a, "end"_a, "leaves"_a.noconvert());
}

template <class Real>
void bind_level_leaves(nb::module_& m) {
    m.def("level_leaves",
          [](Array<const Real, 2> values, Edges edges, Array<const std::int32_t, 1> column, Vector threshold,
             Array<const std::uint8_t, 1> above, Index begin, Index end,
             nb::ndarray<nb::ndim<2>, nb::c_contig, nb::device::cpu> leaves) {
              const Index n = values.shape(0), d = values.shape(1), R = leaves.shape(0), L = column.shape(0);
              shaped(values, "values", n, d);
              check_edges(edges, "edges", R, L, 0);
              shaped(column, "column", L);
              shaped(threshold, "threshold", L);
              shaped(above, "above", d);
              check_rows(begin, end, n);
              shaped(leaves, "leaves", R, n);
              const int bytes = ids_of(leaves, "leaves").bytes;
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r)
                  check(edges.data()[r + 1] - edges.data()[r] <= 8 * bytes, "leaves has a type too small");
              std::vector<std::int32_t> places(static_cast<std::size_t>(d), -1), place, used;
              std::vector<std::uint8_t> high;
              std::vector<float> narrow;
              for (Index k = 0; k < L; ++k) {
                  const std::int32_t c = column.data()[k];
                  check(c >= 0 && c < d, "a column beyond the values");
                  if (places[static_cast<std::size_t>(c)] < 0) {
                      places[static_cast<std::size_t>(c)] = static_cast<std::int32_t>(used.size());
                      used.push_back(c);
                      high.push_back(above.data()[c]);
                  }
                  place.push_back(places[static_cast<std::size_t>(c)]);
                  narrow.push_back(static_cast<float>(threshold.data()[k]));
              }
              const Index C = static_cast<Index>(used.size());
              auto room = scratch_of<float>(C * level_tile);
              const Levels at{R, C, edges.data(), place.data(), narrow.data(), used.data(), high.data()};
              kernels<Real>().level_leaves(at, values.data(), n, d, begin, end, room.data(),
                                           {static_cast<unsigned char*>(leaves.data()), bytes});
          },
          "values"_a.noconvert(), "edges"_a.noconvert(), "column"_a.noconvert(), "threshold"_a.noconvert(),
          "above"_a.noconvert(), "begin"_a, "end"_a, "leaves"_a.noconvert());
}

}  // namespace

void bind_routes(nb::module_& m) {
    for_each_type([&](auto* real) {
        bind_find_leaves<std::remove_pointer_t<decltype(real)>>(m);
        bind_level_leaves<std::remove_pointer_t<decltype(real)>>(m);
    });
}

}  // namespace leaftrace
