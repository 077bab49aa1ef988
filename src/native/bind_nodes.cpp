// Bindings of steps whose leaves depend on other nodes, or on other leaves of their chain.
#include <cstdlib>
#include <memory>
#include <new>

#include "arguments.hpp"
#include "bindings.hpp"
#include "node_values.hpp"

using namespace nanobind::literals;

namespace leaftrace {
namespace {

using Nodes = Array<const std::int32_t, 1>;
using Pairs = Array<const std::int32_t, 2>;

// Zeros in pages that the system fills when they are first written to. Most of them are not, where few leaves are asked
// about.
template <class T>
auto zeros_of(Index count) {
    const auto size = static_cast<std::size_t>(count > 0 ? count : 1);
    std::unique_ptr<T, decltype(&std::free)> room(static_cast<T*>(std::calloc(size, sizeof(T))), &std::free);
    if (!room) throw std::bad_alloc();
    return room;
}

// Check that numbers of nodes or splits are from `least` to `end` - 1.
template <class A>
void check_numbers(const A& numbers, const char* name, Index least, Index end) {
    bool inside = true;
    for (std::size_t i = 0; i < numbers.size(); ++i) inside &= numbers.data()[i] >= least && numbers.data()[i] < end;
    if (!inside) refuse(name + std::string(" is beyond its table"));
}

template <class Real>
void bind_adjoint(nb::module_& m) {
    m.def("node_adjoint",
          [](Index n_nodes, Nodes value, Nodes leaf, Nodes leaf_above, Nodes splits, Nodes split_above, Nodes nodes,
             Pairs pair, Vector half, Array<const double, 2> slopes, Array<const Real, 2> fbar,
             Array<Real, 3> out) {
              const Index M = value.shape(0), S = splits.shape(0), D = nodes.shape(0), W = slopes.shape(0);
              const Index B = width(fbar.shape(1));
              shaped(value, "value", M);
              shaped(leaf, "leaf", M);
              shaped(leaf_above, "leaf_above", M);
              shaped(splits, "splits", S);
              shaped(split_above, "split_above", S);
              shaped(nodes, "nodes", D);
              shaped(pair, "pair", D, 2);
              shaped(half, "half", D);
              shaped(slopes, "slopes", W, 2);
              shaped(fbar, "fbar", M, B);
              shaped(out, "out", M, 2, B);
              check(0 <= n_nodes && n_nodes <= Index(1) << 30, "n_nodes is no number of nodes");
              check(W <= n_nodes, "more slopes than nodes");
              nb::gil_scoped_release release;
              check_numbers(value, "value", -1, n_nodes);
              check_numbers(leaf, "leaf", 0, W);
              check_numbers(leaf_above, "leaf_above", -1, S);
              check_numbers(splits, "splits", 0, W);
              check_numbers(split_above, "split_above", -1, S);
              for (Index k = 0; k < S; ++k)
                  check(split_above.data()[k] < k, "a split does not come after the one above it");
              check_numbers(nodes, "nodes", 0, n_nodes);
              check_numbers(pair, "pair", 0, n_nodes);
              const NodeStep step{M,           S,           D,           value.data(), leaf.data(),    leaf_above.data(),
                                  splits.data(), split_above.data(), nodes.data(), pair.data(), half.data(), slopes.data()};
              const auto bar = zeros_of<Real>(n_nodes * B);
              const auto sums = zeros_of<Real>(2 * S * B);
              auto marks = scratch_of<std::int32_t>(n_nodes + S);
              kernels<Real>().node_adjoint(step, B, fbar.data(), out.data(), bar.get(), sums.get(), marks.data(),
                                           marks.data() + n_nodes);
          },
          "n_nodes"_a, "value"_a.noconvert(), "leaf"_a.noconvert(), "leaf_above"_a.noconvert(), "splits"_a.noconvert(),
          "split_above"_a.noconvert(), "nodes"_a.noconvert(), "pair"_a.noconvert(), "half"_a.noconvert(),
          "slopes"_a.noconvert(), "fbar"_a.noconvert(), "out"_a.noconvert());
}

void bind_steps(nb::module_& m) {
    m.def("node_steps",
          [](Nodes leaf, Edges depths, Nodes splits, Pairs children, Vector l2, Vector bounds, Vector lam,
             Array<const double, 2> G, Array<const double, 2> H, Array<double, 2> s, Maybe<double, 2> slope) {
              const Index M = leaf.shape(0), S = splits.shape(0), W = l2.shape(0), B = lam.shape(0);
              at_least_one(B, "columns");
              at_least_one(depths.shape(0), "edges of depths");
              shaped(leaf, "leaf", M);
              check_edges(depths, "depths", static_cast<Index>(depths.shape(0)) - 1, S, 0);
              shaped(splits, "splits", S);
              shaped(children, "children", S, 2);
              shaped(l2, "l2", W);
              shaped(bounds, "bounds", 3);
              shaped(lam, "lam", B);
              shaped(G, "G", M, B);
              shaped(H, "H", M, B);
              shaped(s, "s", W, B);
              if (slope) shaped(*slope, "slope", W, B);
              nb::gil_scoped_release release;
              check_numbers(leaf, "leaf", 0, W);
              check_numbers(splits, "splits", 0, W);
              check_numbers(children, "children", 0, W);
              const NodeSums at{M, S, W, leaf.data(), splits.data(), children.data()};
              auto sums = scratch_of<double>(W * B);
              for (Index i = 0; i < W * B; ++i) s.data()[i] = 0;
              node_sums(at, B, G.data(), s.data());
              node_sums(at, B, H.data(), sums.data());
              node_steps(W, B, l2.data(), bounds.data(), lam.data(), sums.data(), s.data(), pointer(slope));
          },
          "leaf"_a.noconvert(), "depths"_a.noconvert(), "splits"_a.noconvert(), "children"_a.noconvert(),
          "l2"_a.noconvert(), "bounds"_a.noconvert(), "lam"_a.noconvert(), "G"_a.noconvert(), "H"_a.noconvert(),
          "s"_a.noconvert(), "slope"_a.noconvert().none() = nb::none());
}

// Check that nodes stand there once, and depend on nodes of earlier rounds alone, or on others.
void check_rounds(const Edges& rounds, const Nodes& nodes, const Vector& share, const Nodes& source,
                  const Edges& lower_edges, const Pairs& lower, const Edges& upper_edges, const Pairs& upper) {
    std::vector<Index> place(source.shape(0), -1);
    const Index K = nodes.shape(0);
    for (Index k = 0; k < K; ++k) {
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

void bind_outputs(nb::module_& m) {
    m.def("node_outputs",
          [](Edges rounds, Nodes nodes, Edges lower_edges, Pairs lower, Edges upper_edges, Pairs upper, Nodes source,
             Nodes own, Vector share, Nodes value, Array<const double, 2> s, Array<double, 2> out,
             Maybe<std::int32_t, 1> bound) {
              const Index K = nodes.shape(0), N = source.shape(0), M = value.shape(0), B = s.shape(1);
              at_least_one(B, "columns");
              at_least_one(rounds.shape(0), "edges of rounds");
              check_edges(rounds, "rounds", static_cast<Index>(rounds.shape(0)) - 1, K, 0);
              shaped(nodes, "nodes", K);
              shaped(lower, "lower", lower.shape(0), 2);
              check_edges(lower_edges, "lower_edges", K, lower.shape(0), 0);
              shaped(upper, "upper", upper.shape(0), 2);
              check_edges(upper_edges, "upper_edges", K, upper.shape(0), 0);
              shaped(source, "source", N);
              shaped(own, "own", N);
              shaped(share, "share", N);
              shaped(value, "value", M);
              shaped(s, "s", s.shape(0), B);
              shaped(out, "out", M, B);
              if (bound) shaped(*bound, "bound", K);
              check(!bound || B == 1, "the bounds that decide are those of one column");
              nb::gil_scoped_release release;
              check_numbers(nodes, "nodes", 0, N);
              check_numbers(lower, "lower", 0, N);
              check_numbers(upper, "upper", 0, N);
              check_numbers(source, "source", 0, N);
              check_numbers(own, "own", 0, s.shape(0));
              check_numbers(value, "value", 0, N);
              check_rounds(rounds, nodes, share, source, lower_edges, lower, upper_edges, upper);
              const NodeOrder at{K,           N,           M,            nodes.data(), lower_edges.data(), upper_edges.data(),
                                 lower.data(), upper.data(), source.data(), own.data(),   share.data(),       value.data()};
              const std::unique_ptr<double[]> outputs(new double[(N + 2) * B]);  // all are written before they are read
              node_outputs(at, B, s.data(), out.data(), pointer(bound), outputs.get(), outputs.get() + N * B);
          },
          "rounds"_a.noconvert(), "nodes"_a.noconvert(), "lower_edges"_a.noconvert(), "lower"_a.noconvert(),
          "upper_edges"_a.noconvert(), "upper"_a.noconvert(), "source"_a.noconvert(), "own"_a.noconvert(),
          "share"_a.noconvert(), "value"_a.noconvert(), "s"_a.noconvert(), "out"_a.noconvert(),
          "bound"_a.noconvert().none() = nb::none());
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
    bind_chains(m);
}

}  // namespace leaftrace
