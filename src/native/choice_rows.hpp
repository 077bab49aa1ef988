// The rows of a tree whose splits are chosen softly: their places in the order of the leaves, what is copied there, and
// sums over them. Included once for each instruction set.
#pragma once
#include "choice_arguments.hpp"
#include "lanes.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// one: trees with one output, whose sizes are constants for the compiler.
template <class Real, bool one>
struct ChoiceRows {
    const Choice<Real>& p;
    ChoiceRoom<Real> room;
    Index cells;
    Index carried = -1;  // the term in whose place a query's derivatives are summed; none if negative

    Index outputs() const { return one ? 1 : p.O; }
    Index sums() const { return 3 * outputs() + 1; }

    void find_parents() {
        for (Index v = 0; v < p.N; ++v) room.parent[p.left[v]] = room.parent[p.right[v]] = static_cast<std::int32_t>(v);
        room.parent[0] = -1;
    }

    // The places of the rows in the order of their leaves.
    void place_rows() {
        for (Index l = 0; l <= p.L; ++l) room.edges[l] = 0;
        for (Index j = 0; j < p.n; ++j) ++room.edges[p.leaf[j] + 1];
        for (Index l = 0; l < p.L; ++l) room.edges[l + 1] += room.edges[l];
        for (Index j = 0; j < p.n; ++j) {
            const Index place = room.edges[p.leaf[j]]++;
            room.place[j] = static_cast<std::int32_t>(place);
            room.rows[place] = static_cast<std::int32_t>(j);
        }
        for (Index l = p.L; l > 0; --l) room.edges[l] = room.edges[l - 1];
        room.edges[0] = 0;
    }

    // The places of rows whose order is known.
    void find_places() {
        for (Index r = 0; r < p.n; ++r) room.place[room.rows[r]] = static_cast<std::int32_t>(r);
    }

    // Copy what the passes over leaves need of each row to its place. Rows are read one after the other and written to
    // as many places as there are leaves: read leaf by leaf, each of these arrays would miss the caches at every row.
    void copy_rows(bool factors) {
        for_parts([&](Index part) {
            const Index end = p.n * (part + 1) / p.threads;
            for (Index j = p.n * part / p.threads; j < end; ++j) {
                const Index r = room.place[j];
                if (!room.known) copy_terms(j, r);
                if (factors) copy_factors(j, r);
                copy_codes(p.codes + j * p.d, room.codes + r * p.d);
            }
        });
    }

    // Eight bins at once; the last eight may overlap those before.
    LT_INLINE void copy_codes(const std::uint8_t* LT_RESTRICT from, std::uint8_t* LT_RESTRICT to) const {
        if (p.d < 8) {
            for (Index f = 0; f < p.d; ++f) to[f] = from[f];
            return;
        }
        for (Index f = 0; f + 8 < p.d; f += 8) __builtin_memcpy(to + f, from + f, 8);
        __builtin_memcpy(to + p.d - 8, from + p.d - 8, 8);
    }

    // Terms of row j: w g, the denominators of gain and value, and 1 for rows of non-zero weight; for `carried`, see
    // add_terms.
    void copy_terms(Index j, Index r) {
        const Index O = outputs();
        double* to = room.terms + r * sums();
        const double w = p.w[j];
        for (Index o = 0; o < O; ++o) {
            const double h = p.h[j * O + o];
            to[o] = w * p.g[j * O + o];
            to[O + o] = p.by_weight ? w : w * h;
            to[2 * O + o] = p.newton ? w * h : w;
        }
        to[3 * O] = w > 0;
        if (one && carried >= 0) to[carried] = static_cast<double>(p.scores[j * p.K + p.first]);
    }

    // Factors (2) of the slopes and squares that pull at output o of row j: in its weight, and in its score k.
    LT_INLINE void weight_factors(Index j, Index o, Real* to) const {
        const Index at = j * outputs() + o;
        to[0] = static_cast<Real>(-2 * p.drawn[j] * p.g[at]);
        to[1] = static_cast<Real>(-p.drawn[j] * (p.by_weight ? 1 : p.h[at]));
    }
    LT_INLINE void score_factors(Index j, Index o, Index k, Real* to) const {
        const Index at = (j * outputs() + o) * p.K + k;
        to[0] = static_cast<Real>(-2 * p.w[j] * p.j[at]);
        to[1] = p.by_weight ? Real(0) : static_cast<Real>(-p.w[j] * p.k[at]);
    }

    // All factors of row j, (O, 1 + K, 2): in its weight, then in its scores.
    void copy_factors(Index j, Index r) {
        Real* to = room.factors + r * outputs() * 2 * (1 + p.K);
        for (Index o = 0; o < outputs(); ++o) {
            weight_factors(j, o, to);
            for (Index k = 0; k < p.K; ++k) score_factors(j, o, k, to + 2 + 2 * k);
            to += 2 * (1 + p.K);
        }
    }

    // Share the leaves among the threads, by their number of rows; leaves with one parent stay together.
    void share_leaves() {
        Index place = 0;
        for (Index v = 0; v < p.N; ++v) {
            if (p.left[v] >= p.N) room.leaves[place++] = p.left[v] - p.N;
            if (p.right[v] >= p.N) room.leaves[place++] = p.right[v] - p.N;
        }
        Index done = 0, part = 1;
        room.shares[0] = 0;
        for (Index i = 0; i < p.L && part < p.threads; ++i) {
            const Index l = room.leaves[i];
            const bool apart = i > 0 && room.parent[p.N + l] != room.parent[p.N + room.leaves[i - 1]];
            if (apart && done * p.threads >= p.n * part) room.shares[part++] = i;
            done += room.edges[l + 1] - room.edges[l];
        }
        for (; part <= p.threads; ++part) room.shares[part] = p.L;
    }

    // Call body(thread) on each of the threads.
    template <class Each>
    void for_parts(const Each& body) {
        const Body run = [](void* at, Index part) { (*static_cast<const Each*>(at))(part); };
        if (p.threads == 1) return body(0);
        p.run_parts(run, const_cast<Each*>(&body), p.threads);
    }

    // Call body(leaf, thread) for all leaves, on the threads.
    template <class Each>
    void for_leaves(const Each& body) {
        for_parts([&](Index part) {
            for (Index i = room.shares[part]; i < room.shares[part + 1]; ++i) body(room.leaves[i], part);
        });
    }

    // Find the cells that have rows or test rows. Small nodes have none in most of their cells.
    void find_filled() {
        for (Index i = 0; i < p.N * cells; ++i) room.filled[i] = 0;
        const auto mark = [&](Index l, const std::uint8_t* LT_RESTRICT code) {
            std::uint8_t* LT_RESTRICT to = room.filled + room.parent[p.N + l] * cells;
            for (Index f = 0; f < p.d; ++f) to[room.cell[f] + code[f]] = 1;
        };
        for_leaves([&](Index l, Index) {
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) mark(l, room.codes + r * p.d);
        });
        for (Index j = 0; j < p.m; ++j) mark(p.query_leaf[j], p.query_codes + j * p.d);
        for (Index v = p.N - 1; v > 0; --v) {
            const std::uint8_t* LT_RESTRICT from = room.filled + v * cells;
            std::uint8_t* LT_RESTRICT to = room.filled + room.parent[v] * cells;
            for (Index i = 0; i < cells; ++i) to[i] |= from[i];
        }
    }

    // Which of the four terms of a row is the same as another one, so that its place is free; -1 if there is none. Where
    // gain and value have the same denominator, it is the value's; otherwise one of them is the weight, and where that is
    // zero or one, it is the number of rows.
    Index free_term() const {
        if (p.newton != p.by_weight) return 2;
        bool counts = true;
        for (Index j = 0; j < p.n; ++j) counts &= p.w[j] == 0 || p.w[j] == 1;
        return counts ? 3 : -1;
    }
    Index same_term(Index free) const { return free == 2 || p.by_weight ? 1 : 2; }

    // to (S) += from (S)
    LT_INLINE void add_term(double* LT_RESTRICT to, const double* LT_RESTRICT from) const {
        if constexpr (one)
            add<4>(to, from, 1);
        else
            for (Index i = 0; i < sums(); ++i) to[i] += from[i];
    }

    // Sums of the terms over the rows of every cell of every inner node, and of every slot. In the place of the term
    // `carried`, derivatives of one query in the scores of all rows are summed on the way, those of the test rows
    // included, into felt.
    void add_terms() {
        const Index S = sums();
        const Index size = p.N * cells * S;
        for (Index i = 0; i < size; ++i) room.sums[i] = 0;
        for (Index i = 0; i < (p.N + p.L) * S; ++i) room.slot_sums[i] = 0;
        for_leaves([&](Index l, Index) {
            double* own = room.slot_sums + (p.N + l) * S;
            double* to = room.sums + room.parent[p.N + l] * cells * S;
            double* squares = room.squares + 3 * l;
            squares[0] = squares[1] = squares[2] = 0;
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) {
                const double* from = room.terms + r * S;
                if (one) {
                    squares[0] += from[0] * from[0];
                    squares[1] += from[0] * from[1];
                    squares[2] += from[1] * from[1];
                }
                const std::uint8_t* code = room.codes + r * p.d;
                add_term(own, from);
                for (Index f = 0; f < p.d; ++f) add_term(to + (room.cell[f] + code[f]) * S, from);
            }
        });
        for (Index j = 0; carried >= 0 && j < p.m; ++j) {
            double* to = room.sums + room.parent[p.N + p.query_leaf[j]] * cells * S;
            const std::uint8_t* code = p.query_codes + j * p.d;
            const double c = static_cast<double>(p.c[j]);
            for (Index f = 0; f < p.d; ++f) to[(room.cell[f] + code[f]) * S + carried] += c;
        }
        for (Index v = p.N - 1; v > 0; --v) {
            const double* LT_RESTRICT from = room.sums + v * cells * S;
            double* LT_RESTRICT to = room.sums + room.parent[v] * cells * S;
            for (Index i = 0; i < cells * S; ++i) to[i] += from[i];
        }
        for (Index v = p.N - 1; v >= 0; --v)
            for (Index i = 0; i < S; ++i)
                room.slot_sums[v * S + i] = room.slot_sums[p.left[v] * S + i] + room.slot_sums[p.right[v] * S + i];
        if (carried < 0) return;
        const Index same = same_term(carried);
        for (Index i = 0; i < p.N * cells; ++i) {
            room.felt[i] = static_cast<Real>(room.sums[i * S + carried]);
            room.sums[i * S + carried] = room.sums[i * S + same];
        }
        for (Index i = 0; i < p.N + p.L; ++i) room.slot_sums[i * S + carried] = room.slot_sums[i * S + same];
    }

    // felt (N, cells): derivatives of one query in the scores of the rows of each cell, for trees of one output whose
    // sums of terms are not needed. They are summed in double precision in the place of those.
    void add_derivatives() {
        for (Index i = 0; i < p.N * cells; ++i) room.sums[i] = 0;
        const Index* LT_RESTRICT cell = room.cell;
        const auto add_row = [&](Index l, const std::uint8_t* LT_RESTRICT code, double x) {
            double* LT_RESTRICT to = room.sums + room.parent[p.N + l] * cells;
            for (Index f = 0; f < p.d; ++f) to[cell[f] + code[f]] += x;
        };
        for_leaves([&](Index l, Index) {
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r)
                add_row(l, room.codes + r * p.d, static_cast<double>(p.scores[room.rows[r] * p.K + p.first]));
        });
        for (Index j = 0; j < p.m; ++j) add_row(p.query_leaf[j], p.query_codes + j * p.d, static_cast<double>(p.c[j]));
        for (Index v = p.N - 1; v > 0; --v) {
            const double* LT_RESTRICT from = room.sums + v * cells;
            double* LT_RESTRICT to = room.sums + room.parent[v] * cells;
            for (Index i = 0; i < cells; ++i) to[i] += from[i];
        }
        for (Index i = 0; i < p.N * cells; ++i) room.felt[i] = static_cast<Real>(room.sums[i]);
    }
};

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
