// Bindings of the backward pass and of the leaf space: derivatives in leaf values, and what rows make of them.
#include "arguments.hpp"
#include "bindings.hpp"
#include "loss_argument.hpp"

#include <utility>

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
              kernels<Real>().lift(rows, inner, B, W.data(), own.data(), felt.data());
          },
          "W"_a.noconvert(), "own"_a.noconvert(), "felt"_a.noconvert());
}

// The leaves of a step whose rows have O effects each, whichever outputs its trees write to.
StepLeaves step_of_effects(const IdArray& leaf, const First& first, Index O) {
    const Index R = leaf.shape(0), n = leaf.shape(1);
    shaped(leaf, "leaf", R, n);
    shaped(first, "first", R);
    return {ids_of(leaf, "leaf"), first.data(), R, n, n, O};
}

template <class Real>
void bind_backward(nb::module_& m) {
    m.def("backward_step",
          [](IdArray leaf, First first, Array<const Real, 4> U, Array<const Real, 3> fbar, Array<Real, 3> abar,
             MaybeIds next_leaf, Maybe<const std::int32_t, 1> next_first, Maybe<Real, 3> fbar_next) {
              const Index K = abar.shape(1), B = width(abar.shape(2)), M = fbar.shape(0), O = fbar.shape(1);
              check_types(leaf, next_leaf, "next_leaf");
              at_least_one(K, "outputs");
              at_least_one(O, "effects of a row");
              const StepLeaves at = step_of_effects(leaf, first, O);
              shaped(U, "U", at.R, at.n, O, K);
              shaped(fbar, "fbar", M, O, B);
              shaped(abar, "abar", at.n, K, B);
              check(bool(next_leaf) == bool(next_first) && bool(next_leaf) == bool(fbar_next),
                    "next_leaf, next_first and fbar_next go together");
              StepLeaves next{{nullptr, at.ids.bytes}, nullptr, 0, 0, 0, 0};
              Index M_next = 0;
              if (next_leaf) {
                  M_next = fbar_next->shape(0);
                  next = step(*next_leaf, *next_first, fbar_next->shape(1), K);
                  shaped(*next_leaf, "next_leaf", next.R, at.n);
                  shaped(*fbar_next, "fbar_next", M_next, next.O, B);
              }
              nb::gil_scoped_release release;
              check_ids(at.ids, at.R * at.n, M);
              check_ids(next.ids, next.R * next.n, M_next);
              auto copies = scratch_of<Real>(M_next * (next.O * B > 4 ? next.O * B : 4));
              kernels<Real>().backward_step(at, K, B, U.data(), fbar.data(), abar.data(), next, M_next,
                                                  pointer(fbar_next), copies.data());
          },
          "leaf"_a.noconvert(), "first"_a.noconvert(), "U"_a.noconvert(), "fbar"_a.noconvert(), "abar"_a.noconvert(),
          "next_leaf"_a.noconvert().none(), "next_first"_a.noconvert().none(), "fbar_next"_a.noconvert().none());

    m.def("expand",
          [](IdArray leaf, Index begin, Index end, Edges offset, Array<const Real, 3> V, Array<const Real, 3> fbar,
             Array<Real, 2> out, Maybe<const std::int32_t, 1> place) {
              const Index R = leaf.shape(0), n = leaf.shape(1), M = fbar.shape(0), O = fbar.shape(1);
              const Index leaves = place ? place->shape(0) : M;
              const Index B = width(fbar.shape(2));
              at_least_one(O, "outputs of a leaf");
              check_rows(begin, end, n);
              shaped(leaf, "leaf", R, n);
              shaped(offset, "offset", R);
              shaped(V, "V", R, n, O);
              shaped(fbar, "fbar", M, O, B);
              shaped(out, "out", n, B);
              if (place) shaped(*place, "place", leaves);
              const StepLeaves at{ids_of(leaf, "leaf"), nullptr, R, n, n, O};
              nb::gil_scoped_release release;
              for (Index r = 0; r < R; ++r) check_ids(at.tree(r) + begin, end - begin, offset.data()[r], leaves);
              if (place) check_numbers(*place, "place", 0, M);
              kernels<Real>().expand(at, B, begin, end, offset.data(), pointer(place), V.data(), fbar.data(), out.data());
          },
          "leaf"_a.noconvert(), "begin"_a, "end"_a, "offset"_a.noconvert(), "V"_a.noconvert(), "fbar"_a.noconvert(),
          "out"_a.noconvert(), "place"_a.noconvert().none() = nb::none());
}

using Numbers = nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

Column column(const Numbers& array, const char* name, Index n) {
    shaped(array, name, n);
    if (array.dtype() == nb::dtype<double>()) return {static_cast<const double*>(array.data()), nullptr};
    if (array.dtype() == nb::dtype<float>()) return {nullptr, static_cast<const float*>(array.data())};
    refuse_type(name, " is neither float32 nor float64");
}

template <class Real>
void bind_scored(nb::module_& m) {
    m.def("backward_scored",
          [](const std::string& loss, bool newton, AnyIds<1> leaf, Index begin, Index end, Index block, Vector values,
             Array<const double, 2> shift, Array<const double, 2> s, Array<const double, 2> N, Array<double, 1> A,
             Numbers y, std::optional<Numbers> w, Array<const Real, 1> fbar, Array<Real, 1> abar, std::optional<AnyIds<1>> next_leaf,
             Maybe<Real, 2> below, Maybe<Real, 1> out) {
              const LossKind kind = one_output_kind(loss);
              const Index n = leaf.shape(0), M = values.shape(0), Q = s.shape(0);
              check_rows(begin, end, n);
              at_least_one(block, "rows of a block");
              shaped(leaf, "leaf", n);
              shaped(values, "values", M);
              shaped(shift, "shift", Q, M);
              shaped(s, "s", Q, M);
              shaped(N, "N", Q, M);
              at_least_one(Q, "inner iterations");
              shaped(A, "A", n);
              const Column labels = column(y, "y", n), weights = w ? column(*w, "w", n) : Column{nullptr, nullptr};
              if (w && bool(labels.wide) != bool(weights.wide)) refuse_type("w", " has another type than y");
              shaped(fbar, "fbar", M);
              shaped(abar, "abar", n);
              check(bool(next_leaf) == bool(below), "next_leaf and below go together");
              if (out) shaped(*out, "out", n);
              const Ids ids = ids_of(leaf, "leaf");
              Ids next{nullptr, ids.bytes};
              Index M_below = 0;
              if (next_leaf) {
                  M_below = below->shape(1);
                  shaped(*next_leaf, "next_leaf", n);
                  shaped(*below, "below", (end - begin) / block + ((end - begin) % block != 0), M_below);
                  next = ids_of(*next_leaf, "next_leaf");
                  if (next.bytes != ids.bytes) refuse_type("next_leaf", " has another type than leaf");
              }
              nb::gil_scoped_release release;
              check_ids(ids + begin, end - begin, M);
              if (next_leaf) check_ids(next + begin, end - begin, M_below);
              auto room = scratch_of<double>(2 * M);
              auto copies = scratch_of<Real>(4 * M_below);
              const Scored<Real> d{ids, begin, end, block, M, Q, values.data(), shift.data(), s.data(), N.data(), A.data(),
                                   labels, weights, fbar.data(), abar.data(), next, M_below, pointer(below), pointer(out)};
              kernels<Real>().backward_scored(kind, newton, d, room.data(), copies.data());
          },
          "loss"_a, "newton"_a, "leaf"_a.noconvert(), "begin"_a, "end"_a, "block"_a, "values"_a.noconvert(),
          "shift"_a.noconvert(), "s"_a.noconvert(), "N"_a.noconvert(), "A"_a.noconvert(), "y"_a.noconvert(), "w"_a.noconvert().none(), "fbar"_a.noconvert(),
          "abar"_a.noconvert(), "next_leaf"_a.noconvert().none(), "below"_a.noconvert().none(), "out"_a.noconvert().none());
}

// Check that the ids (n, trees) of the first trees, with their offsets, are inside a table of M rows.
void check_ids_by_row(Ids all, Index n, Index trees, const Edges& offset, Index M) {
    const Index earlier = offset.shape(0);
    with_ids(all, [&](const auto* ids) {
        using Id = std::remove_const_t<std::remove_pointer_t<decltype(ids)>>;
        std::vector<Id> top(earlier);  // largest id of each tree over all rows, in a loop that vectorises
        Id* t = top.data();
        for (Index j = 0; j < n; ++j) {
            const Id* row = ids + j * trees;
            for (Index i = 0; i < earlier; ++i) t[i] = row[i] > t[i] ? row[i] : t[i];
        }
        for (Index i = 0; i < earlier; ++i)
            check_ids(Ids{reinterpret_cast<const unsigned char*>(t + i), all.bytes}, n > 0, offset.data()[i], M);
    });
}

template <class Real>
void bind_pairs(nb::module_& m) {
    m.def("pair_sums",
          [](IdArray ids, Edges offset, First first, Edges order, Edges edges, Array<const Real, 4> U, Index r, Index o,
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
              const Ids all = ids_of(ids, "ids");
              nb::gil_scoped_release release;
              check_ids_by_row(all, n, trees, offset, M);
              check_edges(edges, "edges", L, n, 0);
              bool inside = true;
              for (Index j = 0; j < n; ++j) inside &= (0 <= order.data()[j]) & (order.data()[j] < n);
              check(inside, "order names a row that is not there");
              auto sums = scratch_of<double>(M * O);
              kernels<Real>().pair_sums(all, trees, earlier, offset.data(), first.data(), order.data(),
                                              edges.data(), L, M, O, U.data() + (r * n * O_u + o) * K, O_u * K,
                                              sums.data(), out.data());
          },
          "ids"_a.noconvert(), "offset"_a.noconvert(), "first"_a.noconvert(), "order"_a.noconvert(),
          "edges"_a.noconvert(), "U"_a.noconvert(), "r"_a, "o"_a, "out"_a.noconvert());
}

// Check the rows of a step by query, and sums for the leaves of the step below, which go together.
template <class Real>
QueryRows query_rows(const AnyIds<1>& leaf, const Edges& edges, const std::optional<AnyIds<1>>& next_leaf,
                     const Maybe<Real, 2>& below, Index n, Index B) {
    const Index Q = static_cast<Index>(edges.shape(0)) - 1;
    shaped(leaf, "leaf", leaf.shape(0));
    at_least_one(Q + 1, "edges");
    check_edges(edges, "edges", Q, n, 1);
    check(bool(next_leaf) == bool(below), "next_leaf and below go together");
    const Ids ids = ids_of(leaf, "leaf");
    Ids next{nullptr, ids.bytes};
    if (next_leaf) {
        next = ids_of(*next_leaf, "next_leaf");
        if (next.bytes != ids.bytes) refuse_type("next_leaf", " has another type than leaf");
        shaped(*next_leaf, "next_leaf", n);
        shaped(*below, "below", below->shape(0), B);
        check_ids(next, n, below->shape(0));
    }
    return {ids, Q, edges.data(), next};
}

// The number of cells of the matrices of queries, as far as they fit into `most`; and the most columns of one.
std::pair<Index, Index> matrix_cells(const QueryRows& rows, const std::int64_t* columns, Index most) {
    Index cells = 0, largest = 0;
    for (Index q = 0; q < rows.Q && cells <= most; ++q) {
        const Index size = rows.edges[q + 1] - rows.edges[q], count = columns[q + 1] - columns[q];
        cells = size > most / count ? most + 1 : cells + size * count;
        largest = count > largest ? count : largest;
    }
    return {cells, largest};
}

template <class Real>
void bind_queries(nb::module_& m) {
    m.def("query_products",
          [](AnyIds<1> leaf, Edges columns, Array<const Real, 1> K, Edges edges, Array<const Real, 2> x,
             Array<Real, 2> out, std::optional<AnyIds<1>> next_leaf, Maybe<Real, 2> below) {
              const Index n = out.shape(0), M = x.shape(0), B = width(x.shape(1)), cells = K.shape(0);
              const Index C = leaf.shape(0);
              shaped(K, "K", cells);
              shaped(x, "x", M, B);
              shaped(out, "out", n, B);
              const auto rows = query_rows<Real>(leaf, edges, next_leaf, below, n, B);
              check_edges(columns, "columns", rows.Q, C, 1);
              const auto [expected, largest] = matrix_cells(rows, columns.data(), cells);
              check(expected == cells, "K has another size than the matrices of the queries");
              nb::gil_scoped_release release;
              check_ids(rows.leaf, C, M);
              auto room = scratch_of<std::uint32_t>(largest);
              kernels<Real>().query_products(rows, B, columns.data(), K.data(), x.data(), out.data(), pointer(below),
                                             room.data());
          },
          "leaf"_a.noconvert(), "columns"_a.noconvert(), "K"_a.noconvert(), "edges"_a.noconvert(), "x"_a.noconvert(),
          "out"_a.noconvert(), "next_leaf"_a.noconvert().none(), "below"_a.noconvert().none());

    m.def("query_shares",
          [](AnyIds<1> leaf, Edges edges, Array<const Real, 2> right, Array<const Real, 2> own, Array<const Real, 3> left,
             Array<const Real, 2> x, Array<Real, 3> out, std::optional<AnyIds<1>> next_leaf, Maybe<Real, 2> below) {
              const Index n = leaf.shape(0), R = right.shape(1), E = own.shape(1), M = x.shape(0), B = width(x.shape(1));
              at_least_one(E, "parts of out");
              shaped(right, "right", n, R);
              shaped(own, "own", n, E);
              shaped(left, "left", n, E, R);
              shaped(x, "x", M, B);
              shaped(out, "out", n, E, B);
              const auto rows = query_rows<Real>(leaf, edges, next_leaf, below, n, B);
              check(R <= Index(1) << 30, "sizes beyond any memory");
              nb::gil_scoped_release release;
              check_ids(rows.leaf, n, M);
              auto sums = scratch_of<Real>(R * B);
              kernels<Real>().query_shares(rows, R, E, B, right.data(), own.data(), left.data(), x.data(), out.data(),
                                           pointer(below), sums.data());
          },
          "leaf"_a.noconvert(), "edges"_a.noconvert(), "right"_a.noconvert(), "own"_a.noconvert(), "left"_a.noconvert(),
          "x"_a.noconvert(), "out"_a.noconvert(), "next_leaf"_a.noconvert().none(), "below"_a.noconvert().none());
}

}  // namespace

void bind_influence(nb::module_& m) {
    bind_lift<float>(m);
    bind_lift<double>(m);
    for_each_type([&](auto* real) {
        using Real = std::remove_pointer_t<decltype(real)>;
        bind_backward<Real>(m);
        bind_scored<Real>(m);
        bind_pairs<Real>(m);
        bind_queries<Real>(m);
    });
}

}  // namespace leaftrace
