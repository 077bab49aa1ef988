// Bindings of steps whose leaves depend on other nodes, or on other leaves of their chain.
#include <nanobind/stl/variant.h>

#include <memory>
#include <variant>

#include "arguments.hpp"
#include "bindings.hpp"
#include "node_values.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

using Nodes = Array<const std::int32_t, 1>;
using Pairs = Array<const std::int32_t, 2>;
using Numbers = std::variant<Array<const double, 2>, Vector>;

// Memory whose numbers are written before they are read. Much of it is not used, where few leaves are asked about.
template <class T>
auto room_of(Index count) {
    return std::unique_ptr<T[]>(new T[static_cast<std::size_t>(count)]);
}

// The arguments of node_adjoint and node_rows that describe the step, checked.
struct StepArguments {
    NodeStep at;
    Index N;

    StepArguments(Index n_nodes, Nodes value, Nodes leaf, Nodes leaf_above, Nodes splits, Nodes split_above, Nodes nodes,
                  Pairs pair, Vector half, Array<const double, 2> slopes)
        : at{Index(value.shape(0)), Index(splits.shape(0)), Index(nodes.shape(0)), value.data(), leaf.data(),
             leaf_above.data(), splits.data(), split_above.data(), nodes.data(), pair.data(), half.data(), slopes.data()},
          N(n_nodes) {
        const Index W = slopes.shape(0);
        shaped(value, "value", at.M);
        shaped(leaf, "leaf", at.M);
        shaped(leaf_above, "leaf_above", at.M);
        shaped(splits, "splits", at.S);
        shaped(split_above, "split_above", at.S);
        shaped(nodes, "nodes", at.D);
        shaped(pair, "pair", at.D, 2);
        shaped(half, "half", at.D);
        shaped(slopes, "slopes", W, 2);
        check(0 <= N && N <= Index(1) << 30, "n_nodes is no number of nodes");
        check(W <= N, "more slopes than nodes");
        check_numbers(value, "value", -1, N);
        check_numbers(leaf, "leaf", 0, W);
        check_numbers(leaf_above, "leaf_above", -1, at.S);
        check_numbers(splits, "splits", 0, W);
        check_numbers(split_above, "split_above", -1, at.S);
        bool after = true;
        for (Index k = 0; k < at.S; ++k) after &= at.split_above[k] < k;
        check(after, "a split does not come after the one above it");
        check_numbers(nodes, "nodes", 0, N);
        check_numbers(pair, "pair", 0, N);
    }

    template <class Real>
    Index rows(Index B, const Real* fbar, Index first, Real* rows, std::int32_t* place) const {
        const auto bar = room_of<Real>(N * B);
        const auto last = room_of<std::int32_t>(at.S);
        auto number = scratch_of<std::int32_t>(N);
        return kernels<Real>().node_rows(at, B, fbar, first, rows, place, bar.get(), number.data(), last.get());
    }
};

template <class Real>
void bind_adjoint(nb::module_& m) {
    m.def("node_adjoint",
          [](Index n_nodes, Nodes value, Nodes leaf, Nodes leaf_above, Nodes splits, Nodes split_above, Nodes nodes,
             Pairs pair, Vector half, Array<const double, 2> slopes, Array<const Real, 2> fbar, Array<Real, 3> out) {
              nb::gil_scoped_release release;
              const StepArguments step(n_nodes, value, leaf, leaf_above, splits, split_above, nodes, pair, half, slopes);
              const Index M = step.at.M, B = width(fbar.shape(1));
              shaped(fbar, "fbar", M, B);
              shaped(out, "out", M, 2, B);
              const auto rows = room_of<Real>((1 + step.at.S + M) * 2 * B);
              const auto place = room_of<std::int32_t>(M);
              for (Index i = 0; i < 2 * B; ++i) rows[i] = 0;
              step.rows(B, fbar.data(), Index(1), rows.get(), place.get());
              for (Index l = 0; l < M; ++l) {
                  const Real* LT_RESTRICT row = rows.get() + place[l] * 2 * B;
                  Real* LT_RESTRICT to = out.data() + l * 2 * B;
                  for (Index i = 0; i < 2 * B; ++i) to[i] += row[i];
              }
          },
          "n_nodes"_a, "value"_a.noconvert(), "leaf"_a.noconvert(), "leaf_above"_a.noconvert(), "splits"_a.noconvert(),
          "split_above"_a.noconvert(), "nodes"_a.noconvert(), "pair"_a.noconvert(), "half"_a.noconvert(),
          "slopes"_a.noconvert(), "fbar"_a.noconvert(), "out"_a.noconvert());

    m.def("node_rows",
          [](Index n_nodes, Nodes value, Nodes leaf, Nodes leaf_above, Nodes splits, Nodes split_above, Nodes nodes,
             Pairs pair, Vector half, Array<const double, 2> slopes, Array<const Real, 2> fbar, Index first,
             Array<Real, 3> rows, Array<std::int32_t, 1> place) {
              nb::gil_scoped_release release;
              const StepArguments step(n_nodes, value, leaf, leaf_above, splits, split_above, nodes, pair, half, slopes);
              const Index M = step.at.M, B = width(fbar.shape(1)), room = rows.shape(0);
              shaped(fbar, "fbar", M, B);
              shaped(rows, "rows", room, 2, B);
              shaped(place, "place", M);
              check(room <= Index(1) << 31, "more rows than place can number");
              check(0 < first && first <= room && step.at.S + M <= room - first, "there is no room for the rows");
              return step.rows(B, fbar.data(), first, rows.data(), place.data());
          },
          "n_nodes"_a, "value"_a.noconvert(), "leaf"_a.noconvert(), "leaf_above"_a.noconvert(), "splits"_a.noconvert(),
          "split_above"_a.noconvert(), "nodes"_a.noconvert(), "pair"_a.noconvert(), "half"_a.noconvert(),
          "slopes"_a.noconvert(), "fbar"_a.noconvert(), "first"_a, "rows"_a.noconvert(), "place"_a.noconvert());
}

// The arguments of node_steps that node_values has, too, checked. G and H (M, B), or (M).
struct SumArguments {
    NodeSums at;
    Index B;
    const double *l2, *bounds, *lam;
    LeafNumbers G, H;

    SumArguments(Nodes leaf, Edges depths, Nodes splits, Pairs children, Vector l2_, Vector bounds_, Vector lam_, Numbers G_,
                 Numbers H_)
        : at{Index(leaf.shape(0)), Index(splits.shape(0)), Index(l2_.shape(0)), leaf.data(), splits.data(), children.data()},
          B(lam_.shape(0)), l2(l2_.data()), bounds(bounds_.data()), lam(lam_.data()), G(numbers(G_, "G")),
          H(numbers(H_, "H")) {
        at_least_one(B, "columns");
        at_least_one(depths.shape(0), "edges of depths");
        shaped(leaf, "leaf", at.M);
        check_edges(depths, "depths", static_cast<Index>(depths.shape(0)) - 1, at.S, 0);
        shaped(splits, "splits", at.S);
        shaped(children, "children", at.S, 2);
        shaped(l2_, "l2", at.W);
        shaped(bounds_, "bounds", 3);
        shaped(lam_, "lam", B);
        check_numbers(leaf, "leaf", 0, at.W);
        check_numbers(splits, "splits", 0, at.W);
        check_numbers(children, "children", 0, at.W);
    }

    LeafNumbers numbers(const Numbers& x, const char* name) const {
        const auto* every = std::get_if<Array<const double, 2>>(&x);
        if (every)
            shaped(*every, name, at.M, B);
        else
            shaped(std::get<Vector>(x), name, at.M);
        return {B, 0, every != nullptr, every ? every->data() : std::get<Vector>(x).data(), nullptr, nullptr};
    }

    // Some leaves have their own sums in each column.
    void set_own(const Maybe<const std::int32_t, 2>& ids, const Maybe<const double, 2>& own_G,
                 const Maybe<const double, 2>& own_H) {
        check(bool(ids) == bool(own_G) && bool(ids) == bool(own_H), "ids, own_G and own_H go together");
        if (!ids) return;
        const Index R = ids->shape(0);
        shaped(*ids, "ids", R, B);
        shaped(*own_G, "own_G", R, B);
        shaped(*own_H, "own_H", R, B);
        check_numbers(*ids, "ids", 0, at.M);
        G.R = H.R = R;
        G.ids = H.ids = ids->data();
        G.own = own_G->data();
        H.own = own_H->data();
    }

    void steps(const std::uint8_t* same, Columns s, double* slope) const {
        const auto room = room_of<double>(at.W * (B + 1));
        const Columns sums{B, room.get(), room.get() + at.W};
        node_sums(at, G, same, s);
        node_sums(at, H, same, sums);
        node_steps(at.W, l2, bounds, lam, same, sums, s, slope);
    }
};

void bind_steps(nb::module_& m) {
    m.def("node_steps",
          [](Nodes leaf, Edges depths, Nodes splits, Pairs children, Vector l2, Vector bounds, Vector lam,
             Array<const double, 2> G, Array<const double, 2> H, Array<double, 2> s, Maybe<double, 2> slope) {
              nb::gil_scoped_release release;
              const SumArguments sums(leaf, depths, splits, children, l2, bounds, lam, G, H);
              shaped(s, "s", sums.at.W, sums.B);
              if (slope) shaped(*slope, "slope", sums.at.W, sums.B);
              const auto same = scratch_of<std::uint8_t>(sums.at.W);  // none: all columns are to be there
              sums.steps(same.data(), {sums.B, nullptr, s.data()}, pointer(slope));
          },
          "leaf"_a.noconvert(), "depths"_a.noconvert(), "splits"_a.noconvert(), "children"_a.noconvert(),
          "l2"_a.noconvert(), "bounds"_a.noconvert(), "lam"_a.noconvert(), "G"_a.noconvert(), "H"_a.noconvert(),
          "s"_a.noconvert(), "slope"_a.noconvert().none() = nb::none());
}

// Check that nodes stand there once, and depend on nodes of earlier rounds alone, or on others.
void check_rounds(const Edges& rounds, const Nodes& nodes, const Vector& share, const Nodes& source,
                  const Edges& lower_edges, const Pairs& lower, const Edges& upper_edges, const Pairs& upper) {
    std::vector<std::int32_t> place(source.shape(0), -1);
    const auto K = static_cast<std::int32_t>(nodes.shape(0));
    for (std::int32_t k = 0; k < K; ++k) {
        check(place[nodes.data()[k]] < 0, "a node stands there twice");
        place[nodes.data()[k]] = k;
    }
    bool before = true;
    for (Index k = 0, r = 0; k < K; ++k) {
        while (rounds.data()[r + 1] <= k) ++r;
        const Index begin = rounds.data()[r], node = nodes.data()[k];
        before &= !(share.data()[node] < 1) || place[source.data()[node]] < begin;
        for (Index p = 2 * lower_edges.data()[k]; p < 2 * lower_edges.data()[k + 1]; ++p)
            before &= place[lower.data()[p]] < begin;
        for (Index p = 2 * upper_edges.data()[k]; p < 2 * upper_edges.data()[k + 1]; ++p)
            before &= place[upper.data()[p]] < begin;
    }
    check(before, "a node depends on another one of its round or of a later one");
}

// The arguments of node_outputs that node_values has, too, checked; W: nodes with steps.
struct OutputArguments {
    NodeOrder at;

    OutputArguments(Edges rounds, Nodes nodes, Edges lower_edges, Pairs lower, Edges upper_edges, Pairs upper,
                    Nodes source, Nodes own, Vector share, Nodes value, Index W)
        : at{Index(nodes.shape(0)), Index(source.shape(0)), Index(value.shape(0)), nodes.data(), lower_edges.data(),
             upper_edges.data(), lower.data(), upper.data(), source.data(), own.data(), share.data(), value.data()} {
        at_least_one(rounds.shape(0), "edges of rounds");
        check_edges(rounds, "rounds", static_cast<Index>(rounds.shape(0)) - 1, at.K, 0);
        shaped(nodes, "nodes", at.K);
        shaped(lower, "lower", lower.shape(0), 2);
        check_edges(lower_edges, "lower_edges", at.K, lower.shape(0), 0);
        shaped(upper, "upper", upper.shape(0), 2);
        check_edges(upper_edges, "upper_edges", at.K, upper.shape(0), 0);
        shaped(source, "source", at.N);
        shaped(own, "own", at.N);
        shaped(share, "share", at.N);
        shaped(value, "value", at.M);
        check_numbers(nodes, "nodes", 0, at.N);
        check_numbers(lower, "lower", 0, at.N);
        check_numbers(upper, "upper", 0, at.N);
        check_numbers(source, "source", 0, at.N);
        check_numbers(own, "own", 0, W);
        check_numbers(value, "value", 0, at.N);
        check_rounds(rounds, nodes, share, source, lower_edges, lower, upper_edges, upper);
    }

    void outputs(Columns s, const std::uint8_t* same, const double* before, double* out, std::int32_t* bound) const {
        const Index B = s.B;
        const auto room = room_of<double>(2 * B + at.N * (B + 1));
        const Columns outputs{B, room.get() + 2 * B, room.get() + 2 * B + at.N};
        const auto same_out = room_of<std::uint8_t>(at.N);
        node_outputs(at, s, same, before, out, bound, outputs, room.get(), same_out.get());
    }
};

void bind_outputs(nb::module_& m) {
    m.def("node_outputs",
          [](Edges rounds, Nodes nodes, Edges lower_edges, Pairs lower, Edges upper_edges, Pairs upper, Nodes source,
             Nodes own, Vector share, Nodes value, Array<const double, 2> s, Array<double, 2> out,
             Maybe<std::int32_t, 1> bound) {
              nb::gil_scoped_release release;
              const Index W = s.shape(0), B = s.shape(1);
              at_least_one(B, "columns");
              shaped(s, "s", W, B);
              const OutputArguments order(rounds, nodes, lower_edges, lower, upper_edges, upper, source, own, share, value, W);
              shaped(out, "out", order.at.M, B);
              if (bound) shaped(*bound, "bound", order.at.K);
              check(!bound || B == 1, "the bounds that decide are those of one column");
              const auto same = scratch_of<std::uint8_t>(W);  // not known
              order.outputs({B, nullptr, const_cast<double*>(s.data())}, same.data(), nullptr, out.data(), pointer(bound));
          },
          "rounds"_a.noconvert(), "nodes"_a.noconvert(), "lower_edges"_a.noconvert(), "lower"_a.noconvert(),
          "upper_edges"_a.noconvert(), "upper"_a.noconvert(), "source"_a.noconvert(), "own"_a.noconvert(),
          "share"_a.noconvert(), "value"_a.noconvert(), "s"_a.noconvert(), "out"_a.noconvert(),
          "bound"_a.noconvert().none() = nb::none());
}

void bind_values(nb::module_& m) {
    m.def("node_values",
          [](Nodes leaf, Edges depths, Nodes splits, Pairs children, Vector l2, Vector bounds, Vector lam,
             Numbers G, Numbers H, Edges rounds, Nodes nodes, Edges lower_edges,
             Pairs lower, Edges upper_edges, Pairs upper, Nodes source, Nodes own, Vector share, Nodes value,
             Array<double, 2> out, Maybe<const double, 1> before, Maybe<const std::int32_t, 2> ids,
             Maybe<const double, 2> own_G, Maybe<const double, 2> own_H) {
              nb::gil_scoped_release release;
              SumArguments sums(leaf, depths, splits, children, l2, bounds, lam, G, H);
              sums.set_own(ids, own_G, own_H);
              const Index W = sums.at.W, B = sums.B;
              const OutputArguments order(rounds, nodes, lower_edges, lower, upper_edges, upper, source, own, share, value, W);
              shaped(out, "out", order.at.M, B);
              if (before) shaped(*before, "before", order.at.M);
              auto same = scratch_of<std::uint8_t>(W);
              bool one_lam = true;
              for (Index b = 1; b < B; ++b) one_lam &= sums.lam[b] == sums.lam[0];
              if (one_lam && B > 1) mark_same(sums.at, sums.G, sums.H, same.data());
              const auto room = room_of<double>(W * (B + 1));
              const Columns s{B, room.get(), room.get() + W};
              sums.steps(same.data(), s, nullptr);
              order.outputs(s, same.data(), pointer(before), out.data(), nullptr);
          },
          "leaf"_a.noconvert(), "depths"_a.noconvert(), "splits"_a.noconvert(), "children"_a.noconvert(),
          "l2"_a.noconvert(), "bounds"_a.noconvert(), "lam"_a.noconvert(), "G"_a.noconvert(), "H"_a.noconvert(),
          "rounds"_a.noconvert(), "nodes"_a.noconvert(), "lower_edges"_a.noconvert(), "lower"_a.noconvert(),
          "upper_edges"_a.noconvert(), "upper"_a.noconvert(), "source"_a.noconvert(), "own"_a.noconvert(),
          "share"_a.noconvert(), "value"_a.noconvert(), "out"_a.noconvert(), "before"_a.noconvert().none() = nb::none(),
          "ids"_a.noconvert().none() = nb::none(), "own_G"_a.noconvert().none() = nb::none(),
          "own_H"_a.noconvert().none() = nb::none());
}

void bind_chains(nb::module_& m) {
    m.def("pool_chains",
          [](Array<const std::int64_t, 2> chains, double least_weight, Array<const double, 2> u,
             Array<const double, 2> D, Array<double, 2> out) {
              const Index C = chains.shape(0), n = chains.shape(1), M = u.shape(0), B = u.shape(1);
              at_least_one(B, "columns");
              at_least_one(n, "leaves of a chain");
              shaped(chains, "chains", C, n);
              shaped(u, "u", M, B);
              shaped(D, "D", M, B);
              shaped(out, "out", M, B);
              check(least_weight > 0, "least_weight is not above zero");
              nb::gil_scoped_release release;
              check_numbers(chains, "chains", 0, M);
              auto room = scratch_of<double>(3 * n);
              pool_chains(C, n, B, chains.data(), least_weight, u.data(), D.data(), out.data(), room.data());
          },
          "chains"_a.noconvert(), "least_weight"_a, "u"_a.noconvert(), "D"_a.noconvert(), "out"_a.noconvert());
}

}  // namespace

void bind_nodes(nb::module_& m) {
    for_each_type([&](auto* real) { bind_adjoint<std::remove_pointer_t<decltype(real)>>(m); });
    bind_steps(m);
    bind_outputs(m);
    bind_values(m);
    bind_chains(m);
}

}  // namespace leaftrace
