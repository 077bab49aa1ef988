// Bindings of the backward pass and of the leaf space: derivatives in leaf values, and what rows make of them.
#include "arguments.hpp"
#include "bindings.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

template <class Real>
void bind_lift(nb::module_& m) {
    m.def("lift",
          [](Array<const Real, 2> W, Array<const Real, 2> own, Array<Real, 2> felt) {
              const Index rows = W.shape(0), inner = W.shape(1), B = width(own.shape(1));
              shaped(W, "W", rows, inner);
              shaped(own, "own", inner, B);
              shaped(felt, "felt", rows, B);
              nb::gil_scoped_release release;
              kernels<std::uint8_t, Real>().lift(rows, inner, B, W.data(), own.data(), felt.data());
          },
          "W"_a.noconvert(), "own"_a.noconvert(), "felt"_a.noconvert());
}

template <class Leaf, class Real>
void bind_backward(nb::module_& m) {
    m.def("backward_step",
          [](Ids<Leaf> leaf, First first, Array<const Real, 4> U, Array<const Real, 3> fbar, Array<Real, 3> abar,
             Maybe<const Leaf, 2> next_leaf, Maybe<const std::int32_t, 1> next_first, Maybe<Real, 3> fbar_next) {
              const Index K = abar.shape(1), B = width(abar.shape(2)), M = fbar.shape(0), O = fbar.shape(1);
              const auto at = step<Leaf>(leaf, first, O, K);
              shaped(U, "U", at.R, at.n, O, K);
              shaped(fbar, "fbar", M, O, B);
              shaped(abar, "abar", at.n, K, B);
              check(bool(next_leaf) == bool(next_first) && bool(next_leaf) == bool(fbar_next),
                    "next_leaf, next_first and fbar_next go together");
              StepLeaves<Leaf> next{nullptr, nullptr, 0, 0, 0, 0};
              Index M_next = 0;
              if (next_leaf) {
                  M_next = fbar_next->shape(0);
                  next = step<Leaf>(*next_leaf, *next_first, fbar_next->shape(1), K);
                  shaped(*next_leaf, "next_leaf", next.R, at.n);
                  shaped(*fbar_next, "fbar_next", M_next, next.O, B);
              }
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, M);
              check_ids(next.ids, next.R * next.n, M_next);
              auto copies = scratch_of<Real>(B == 1 ? 4 * M_next : 0);
              kernels<Leaf, Real>().backward_step(at, K, B, U.data(), fbar.data(), abar.data(), next, M_next,
                                                  pointer(fbar_next), copies.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "U"_a.noconvert(), "fbar"_a.noconvert(), "abar"_a.noconvert(),
          "next_leaf"_a.noconvert().none(), "next_first"_a.noconvert().none(), "fbar_next"_a.noconvert().none());

    m.def("expand",
          [](Ids<Leaf> leaf, Index begin, Index end, Edges offset, Array<const Real, 3> V, Array<const Real, 3> fbar,
             Array<Real, 2> out) {
              const Index R = leaf.shape(0), n = leaf.shape(1), M = fbar.shape(0), O = fbar.shape(1);
              const Index B = width(fbar.shape(2));
              at_least_one(O, "outputs of a leaf");
              check_rows(begin, end, n);
              shaped(leaf, "leaf", R, n);
              shaped(offset, "offset", R);
              shaped(V, "V", R, n, O);
              shaped(fbar, "fbar", M, O, B);
              shaped(out, "out", n, B);
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r) check_ids(leaf.data() + r * n + begin, end - begin, offset.data()[r], M);
              const StepLeaves<Leaf> at{leaf.data(), nullptr, R, n, n, O};
              kernels<Leaf, Real>().expand(at, B, begin, end, offset.data(), V.data(), fbar.data(), out.data());
          },
          "leaf"_a.noconvert(), "begin"_a, "end"_a, "offset"_a.noconvert(), "V"_a.noconvert(), "fbar"_a.noconvert(),
          "out"_a.noconvert());
}

// Check that the ids (n, trees) of the first trees, with their offsets, are inside a table of M rows.
template <class Leaf>
void check_ids_by_row(const Ids<Leaf>& ids, const Edges& offset, Index M) {
    const Index n = ids.shape(0), trees = ids.shape(1), earlier = offset.shape(0);
    std::vector<Leaf> top(earlier);  // largest id of each tree over all rows, in a loop that vectorises
    Leaf* t = top.data();
    for (Index j = 0; j < n; ++j) {
        const Leaf* row = ids.data() + j * trees;
        for (Index i = 0; i < earlier; ++i) t[i] = row[i] > t[i] ? row[i] : t[i];
    }
    for (Index i = 0; i < earlier; ++i) check_ids(t + i, n > 0, offset.data()[i], M);
}

template <class Leaf, class Real>
void bind_pairs(nb::module_& m) {
    m.def("pair_sums",
          [](Ids<Leaf> ids, Edges offset, First first, Edges order, Edges edges, Array<const Real, 4> U, Index r, Index o,
             Array<Real, 3> out) {
              const Index n = ids.shape(0), trees = ids.shape(1), earlier = offset.shape(0);
              const Index trees_u = U.shape(0), O_u = U.shape(2), K = U.shape(3);
              const Index L = out.shape(0), M = out.shape(1), O = out.shape(2);
              check(earlier <= trees, "more earlier trees than trees");
              at_least_one(K, "outputs");
              shaped(ids, "ids", n, trees);
              shaped(offset, "offset", earlier);
              check_first(first, earlier, O, K);
              shaped(order, "order", n);
              shaped(U, "U", trees_u, n, O_u, K);
              shaped(out, "out", L, M, O);
              check(0 <= r && r < trees_u, "r is not a tree of U");
              check(0 <= o && o < O_u, "o is not an output of U");
              nb::gil_scoped_release release;
              check_ids_by_row(ids, offset, M);
              check_edges(edges, "edges", L, n, 0);
              bool inside = true;
              for (Index j = 0; j < n; ++j) inside &= (0 <= order.data()[j]) & (order.data()[j] < n);
              check(inside, "order names a row that is not there");
              auto sums = scratch_of<double>(M * O);
              kernels<Leaf, Real>().pair_sums(ids.data(), trees, earlier, offset.data(), first.data(), order.data(),
                                              edges.data(), L, M, O, U.data() + (r * n * O_u + o) * K, O_u * K,
                                              sums.data(), out.data());
          },
          "ids"_a.noconvert(), "offset"_a.noconvert(), "first"_a.noconvert(), "order"_a.noconvert(),
          "edges"_a.noconvert(), "U"_a.noconvert(), "r"_a, "o"_a, "out"_a.noconvert());
}

}  // namespace

void bind_influence(nb::module_& m) {
    bind_lift<float>(m);
    bind_lift<double>(m);
    for_each_type([&](auto* leaf, auto* real) {
        using Leaf = std::remove_pointer_t<decltype(leaf)>;
        using Real = std::remove_pointer_t<decltype(real)>;
        bind_backward<Leaf, Real>(m);
        bind_pairs<Leaf, Real>(m);
    });
}

}  // namespace leaftrace
