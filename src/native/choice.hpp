// Soft choices of splits: the terms of one tree in a backward pass in which splits give way. The formulas and a
// definition in NumPy are in src/leaftrace/_model/kernels/numpy_choice.py. Included once for each instruction set.
#pragma once
#include "choice_shares.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// The tables over cells: derivatives of the queries in the scores of the rows of each cell (felt), and the two sums over
// candidates by which a row of the cell moves the choice and the values of its sides (pull). Cells without rows have
// neither and are passed over, but for one query of trees with one output, which adds their zeros.
template <int B, class Real, bool one>
struct ChoiceTables {
    ChoiceWork<Real, one>& w;
    Index cells;
    static constexpr bool alone = one && B == 1;

    Index width() const { return w.outputs() * B; }  // of a cell of felt
    Real* felt(Index v, Index f) const { return w.room.felt + (v * cells + w.room.cell[f]) * width(); }
    Real* pull(Index v, Index f) const { return w.room.pull + (v * cells + w.room.cell[f]) * 2 * width(); }
    Real* effect(Index candidate) const { return w.room.effect + candidate * B; }
    bool filled(Index i) const { return alone || w.room.filled[i]; }  // i: of all cells of all nodes
    bool filled(Index v, Index f, Index bin) const { return filled(v * cells + w.room.cell[f] + bin); }
    LT_INLINE void clear(Real* to, Index count) const {
        for (Index i = 0; i < count; ++i) to[i] = 0;
    }

    // The row a few places after r: rows of a leaf lie apart, and a processor does not foresee them.
    Index ahead(Index r) const { return w.room.rows[r + 6 < w.p.n ? r + 6 : r]; }
    LT_INLINE void fetch(const Real* from, Index begin, Index count) const {
        for (Index i = 0; i < count; i += 64 / sizeof(Real)) __builtin_prefetch(from + begin + i);
    }

    void add_rows() {
        const Index O = w.outputs();
        const auto& p = w.p;
        const auto& room = w.room;
        if (!alone) w.find_filled();
        for (Index i = 0; i < p.N * cells; ++i)
            if (filled(i)) clear(room.felt + i * O * B, O * B);
        w.for_leaves([&](Index l, Index) {
            Real* to = room.felt + room.parent[p.N + l] * cells * O * B;
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) {
                fetch(p.scores, (ahead(r) * p.K + p.first) * B, O * B);
                const Real* from = p.scores + (room.rows[r] * p.K + p.first) * B;
                const std::uint8_t* code = room.codes + r * p.d;
                for (Index f = 0; f < p.d; ++f) add<B>(to + (room.cell[f] + code[f]) * O * B, from, O);
            }
        });
        for (Index j = 0; j < p.m; ++j) {
            Real* to = room.felt + room.parent[p.N + p.query_leaf[j]] * cells * O * B;
            const std::uint8_t* code = p.query_codes + j * p.d;
            for (Index f = 0; f < p.d; ++f) add<B>(to + (room.cell[f] + code[f]) * O * B, p.c + j * O * B, O);
        }
        for (Index v = p.N - 1; v > 0; --v) {
            Real* to = room.felt + room.parent[v] * cells * O * B;
            const Real* from = room.felt + v * cells * O * B;
            for (Index i = 0; i < cells; ++i)
                if (filled(v * cells + i)) add<B>(to + i * O * B, from + i * O * B, O);
        }
    }

    // effect += the children's values under a candidate, as the queries see them.
    LT_INLINE void add_effect(Index v, Index candidate, const Real* left, const Real* all) {
        const Index O = w.outputs();
        if (impossible(candidate)) return;
        const Real rate = static_cast<Real>(w.p.rate);
        const Real* x = w.sides(v, candidate);
        for (Index o = 0; o < O; ++o, x += side_numbers) {
            add_both<B>(effect(candidate), rate * (x[2] - x[3]), left + o * B, rate * x[3], all + o * B);
        }
    }

    // Candidates that cannot be taken have numbers of zero. One query of trees with one output multiplies by them, which
    // takes less time than to ask.
    bool impossible(Index candidate) const { return !alone && w.room.chance[candidate] == 0; }
    Real* total(Index v) const { return w.room.total + v * width(); }
    // total = the sum over the bins of any one column
    void sum_bins(Index v) const {
        clear(total(v), width());
        Index f = 0;
        for (Index other = 1; other < w.p.d; ++other) f = w.p.sizes[other] < w.p.sizes[f] ? other : f;
        for (Index bin = 0; bin < w.p.sizes[f]; ++bin) add_bin(total(v), v, f, bin);
    }
    // to (O, B) += a cell of felt
    LT_INLINE void add_bin(Real* to, Index v, Index f, Index bin) const {
        if (filled(v, f, bin)) add<B>(to, felt(v, f) + bin * width(), w.outputs());
    }
    // from (O, B) -= a cell of felt
    LT_INLINE void subtract_bin(Real* from, Index v, Index f, Index bin) const {
        if (!filled(v, f, bin)) return;
        const Real* x = felt(v, f) + bin * width();
        for (Index i = 0; i < width(); ++i) from[i] -= x[i];
    }

    void add_effects(Index v, Index f) {
        if (!w.room.possible[f]) return;
        if (!w.singles(f)) return w.for_runs(v, f, [=](Run run) { add_effects_of_run(v, f, run); });
        Real* left = w.room.part;
        for (Index bin = 0; bin < w.p.sizes[f]; ++bin) {
            clear(left, width());
            add_bin(left, v, f, bin);
            add_effect(v, w.room.candidate[f] + bin, left, total(v));
        }
    }
    void add_effects_of_run(Index v, Index f, Run run) {
        Real own[one ? B : 1];  // in registers
        Real* left = one ? own : w.room.part;
        clear(left, width());
        for (Index length = 1; length < run.to; ++length) {
            add_bin(left, v, f, run.order[length - 1]);
            if (length >= run.from) add_effect(v, run.candidate + length - run.from, left, total(v));
        }
    }

    // Effects of all candidates of a choice, less their mean, times the candidates' weights.
    void weigh_effects(Index c, Index begin, Index end) {
        const Index C = w.room.candidate[w.p.d];
        for (Index i = 0; i < C * B; ++i) w.room.effect[i] = 0;
        for (Index f = 0; f < w.p.d; ++f) w.room.possible[f] = possible(f);
        for (Index v = begin; v < end; ++v) {
            sum_bins(v);
            for (Index f = 0; f < w.p.d; ++f) add_effects(v, f);
        }
        Real* mean = w.room.all;
        for (Index b = 0; b < B; ++b) mean[b] = 0;
        for (Index s = 0; s < C; ++s)
            if (!impossible(s)) add_scaled<B>(mean, static_cast<Real>(w.room.chance[s]), effect(s));
        for (Index s = 0; s < C; ++s) {
            if (impossible(s)) continue;
            const Real chance = static_cast<Real>(w.room.chance[s] / w.room.tau[c]);
            Real* e = effect(s);
            for (Index b = 0; b < B; ++b) e[b] = chance * (e[b] - mean[b]);
        }
    }

    // to (2, O, B) += the pull of one side of a candidate on its rows: its weighted effect times slope, and times slope
    // squared, by which the choice moves; and what the rows of the side feel (O, B) times the pace of its leaves' values.
    LT_INLINE void add_pull(Real* to, Index v, Index candidate, Index side, const Real* felt) {
        const Index O = w.outputs();
        if (impossible(candidate)) return;
        const Real* x = w.sides(v, candidate);
        const Real share = static_cast<Real>(w.p.rate * side_leaves * w.p.shares[v] * w.room.chance[candidate]);
        for (Index o = 0; o < O; ++o, x += side_numbers) {
            const Real slope = x[side], pace = share * x[4 + side];
            add_both<B>(to + o * B, slope, effect(candidate), pace / 2, felt + o * B);
            add_both<B>(to + (O + o) * B, slope * slope, effect(candidate), pace * slope, felt + o * B);
        }
    }

    // Whether a column has a candidate that is possible at all.
    bool possible(Index f) const {
        for (Index s = w.room.candidate[f]; s < w.room.candidate[f + 1]; ++s)
            if (w.room.chance[s] > 0) return true;
        return false;
    }

    // The pulls of the candidates of a column at a node that send one category to the left, and those `above` of its
    // parent, unless that is null.
    void put_pulls_of_categories(Index v, Index f, const Real* above) {
        const Index O = w.outputs();
        const Real *cell = felt(v, f), *all = total(v);
        Real *to = pull(v, f), *sum = w.room.part, *rest = w.room.side, *own = w.room.all;
        copy_pulls(v, f, above);
        clear(sum, 2 * O * B);
        for (Index bin = 0; bin < w.p.sizes[f]; ++bin) add_others(sum, v, f, bin, all, rest);
        for (Index bin = 0; bin < w.p.sizes[f]; ++bin) {
            if (!filled(v, f, bin)) continue;
            Real* here = to + bin * 2 * O * B;
            clear(own, 2 * O * B);
            add_others(own, v, f, bin, all, rest);
            for (Index i = 0; i < 2 * O * B; ++i) here[i] += sum[i] - own[i];
            add_pull(here, v, w.room.candidate[f] + bin, 0, cell + bin * O * B);
        }
    }

    // The same for candidates that send the first bins of an order to the left.
    void put_pulls_of_runs(Index v, Index f, const Real* above) {
        w.for_runs(v, f, [=](Run run) {
            put_pulls_of_run(v, f, run, run.candidate == w.room.candidate[f] ? above : pull(v, f));
        });
    }
    void put_pulls_of_run(Index v, Index f, Run run, const Real* from) {
        const Index O = w.outputs(), width = 2 * O * B;
        const Real *cell = felt(v, f), *all = total(v);
        Real own[one ? 3 * B : 1];  // in registers
        Real *to = pull(v, f), *sum = one ? own : w.room.part, *rest = one ? own + 2 * B : w.room.side;
        const auto start = [&] {
            clear(sum, width);
            for (Index i = 0; i < O * B; ++i) rest[i] = all[i];
        };
        const auto add_sum = [&](Index bin) {
            for (Index o = 0; o < 2 * O; ++o) {
                const Index at = bin * width + o * B;
                from ? put_sum<B>(to + at, from + at, sum + o * B) : put<B>(to + at, sum + o * B);
            }
            const Real* x = cell + bin * O * B;
            for (Index i = 0; i < O * B; ++i) rest[i] -= x[i];
        };
        // Candidates at least as long as a bin's place have it on the left, the others on the right.
        start();
        for (Index place = run.bins - 1; place >= 0; --place) {
            const Index length = place + 1;
            if (length >= run.from && length < run.to) add_pull(sum, v, run.candidate + length - run.from, 0, rest);
            if (filled(v, f, run.order[place])) add_sum(run.order[place]);
        }
        from = to;
        start();
        for (Index place = 0; place < run.bins; ++place) {
            if (place >= run.from && place < run.to) add_pull(sum, v, run.candidate + place - run.from, 1, rest);
            if (filled(v, f, run.order[place])) add_sum(run.order[place]);
        }
    }

    // to (2, O, B) += the pull on the rows of all other categories, if this one goes left
    void add_others(Real* to, Index v, Index f, Index bin, const Real* all, Real* rest) {
        for (Index i = 0; i < width(); ++i) rest[i] = all[i];
        subtract_bin(rest, v, f, bin);
        add_pull(to, v, w.room.candidate[f] + bin, 1, rest);
    }

    // The pulls of the parent, or zeros if `above` is null.
    void copy_pulls(Index v, Index f, const Real* above) {
        const Index size = 2 * width();
        for (Index bin = 0; bin < w.p.sizes[f]; ++bin) {
            if (!filled(v, f, bin)) continue;
            Real* LT_RESTRICT to = pull(v, f) + bin * size;
            if (!above) clear(to, size);
            for (Index i = 0; above && i < size; ++i) to[i] = above[bin * size + i];
        }
    }

    // The pulls of all columns of a node. Columns without a candidate that is possible, here or above, have none, and
    // their tables are not read. chosen: whether the node has candidates at all.
    void put_pulls(Index v, bool chosen) {
        const Index parent = w.room.parent[v];
        w.room.counts[v] = 0;
        for (Index f = 0; f < w.p.d; ++f) {
            const Real* above = parent >= 0 && w.room.active[parent * w.p.d + f] ? pull(parent, f) : nullptr;
            const bool own = chosen && w.room.possible[f];
            w.room.active[v * w.p.d + f] = above || own;
            if (!above && !own) continue;
            w.room.columns[v * w.p.d + w.room.counts[v]++] = static_cast<std::int32_t>(f);
            if (!own)
                copy_pulls(v, f, above);
            else
                w.singles(f) ? put_pulls_of_categories(v, f, above) : put_pulls_of_runs(v, f, above);
        }
    }

    // The pull (2, O, B) on a row with these bins, summed over the active columns (count) of its node's table.
    void sum_pulls(const Real* from, const std::uint8_t* code, const std::int32_t* columns, Index count, Real* sum) {
        const Index O = w.outputs();
        if constexpr (one) {
            // Slopes and squares are side by side, so that one query has a unit of two.
            constexpr int together = B == 1 ? 2 : B;
            using Unit = typename Lanes<Real, together>::Unit;
            constexpr int units_of = 2 * B / together * Lanes<Real, together>::N;
            Unit total[units_of] = {};  // in registers
            const auto cell_of = [&](Index a) {
                return units<together>(from + (w.room.cell[columns[a]] + code[columns[a]]) * 2 * B);
            };
            Index a = 0;
            if constexpr (B == 1) {  // short sums wait for each other, so there are two of them
                Unit other = {};
                for (; a + 1 < count; a += 2) {
                    total[0] += *cell_of(a);
                    other += *cell_of(a + 1);
                }
                total[0] += other;
            }
            for (; a < count; ++a) {
                const Unit* x = cell_of(a);
                for (int i = 0; i < units_of; ++i) total[i] += x[i];
            }
            Unit* to = units<together>(sum);
            for (int i = 0; i < units_of; ++i) to[i] = total[i];
        } else {
            for (Index i = 0; i < 2 * O * B; ++i) sum[i] = 0;
            for (Index a = 0; a < count; ++a)
                add<B>(sum, from + (w.room.cell[columns[a]] + code[columns[a]]) * 2 * O * B, 2 * O);
        }
    }

    void expand_rows() {
        const Index O = w.outputs();
        const auto& p = w.p;
        const auto& room = w.room;
        w.for_leaves([&](Index l, Index part) {
            Real* sum = room.part + part * 2 * O * B;
            const Index node = room.parent[p.N + l];
            const Real* from = room.pull + node * cells * 2 * O * B;
            const std::int32_t* columns = room.columns + node * p.d;
            const Index count = room.counts[node];
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) {
                const Index j = room.rows[r];
                fetch(p.out, ahead(r) * B, B);
                fetch(p.abar, ahead(r) * p.K * B, p.K * B);
                sum_pulls(from, room.codes + r * p.d, columns, count, sum);
                const Real* factors = room.factors + r * O * 2 * (1 + p.K);
                for (Index o = 0; o < O; ++o) {
                    const Real *slopes = sum + o * B, *squares = sum + (O + o) * B;
                    add_both<B>(p.out + j * B, factors[0], slopes, factors[1], squares);
                    factors += 2;
                    for (Index k = 0; k < p.K; ++k, factors += 2)
                        add_both<B>(p.abar + (j * p.K + k) * B, factors[0], slopes, factors[1], squares);
                }
            }
        });
    }

    // The same for one query and trees of one output. The pulls are summed leaf by leaf, from a table that stays in the
    // nearest cache, and then multiplied as the rows lie.
    void expand_rows_of_one_query() {
        const auto& p = w.p;
        const auto& room = w.room;
        Real* sums = room.factors;  // (n, 2); factors are not copied for one query
        w.for_leaves([&](Index l, Index) {
            const Index node = room.parent[p.N + l];
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r)
                sum_pulls(room.pull + node * cells * 2, room.codes + r * p.d, room.columns + node * p.d,
                          room.counts[node], sums + 2 * room.rows[r]);
        });
        w.for_parts([&](Index part) {
            const Index end = p.n * (part + 1) / p.threads;
            for (Index j = p.n * part / p.threads; j < end; ++j) {
                const Real* sum = sums + 2 * j;
                Real factors[2];
                w.weight_factors(j, 0, factors);
                add_both<1>(p.out + j, factors[0], sum, factors[1], sum + 1);
                for (Index k = 0; k < p.K; ++k) {
                    w.score_factors(j, 0, k, factors);
                    add_both<1>(p.abar + j * p.K + k, factors[0], sum, factors[1], sum + 1);
                }
            }
        });
    }

};

// Put the rows in the order of their leaves, and sum over them what no query changes.
template <class Real, bool one>
void sum_rows(ChoiceWork<Real, one>& w, bool alone) {
    w.place_rows();
    w.share_leaves();
    if (alone) w.carried = w.free_term();
    w.copy_rows(!alone);
    w.add_terms();
    w.temperatures();
}

template <int B, bool one, class Real>
void choice_terms(const Choice<Real>& p, const ChoiceRoom<Real>& room) {
    ChoiceWork<Real, one> w{{p, room, room.cell[p.d]}};
    ChoiceTables<B, Real, one> tables{w, w.cells};
    constexpr bool alone = tables.alone;
    w.find_parents();
    if (!room.known) {
        sum_rows(w, alone);
        if (w.carried < 0) tables.add_rows();
    } else {
        w.find_places();
        w.share_leaves();
        w.copy_rows(!alone);
        alone ? w.add_derivatives() : tables.add_rows();
    }
    ChoiceShares<Real, one> shares{w};
    if (!p.measured) shares.count_rows();
    for (Index begin = 0; begin < p.N;) {
        const Index c = p.choice[begin];
        Index end = begin;
        while (end < p.N && p.choice[end] == c) ++end;
        w.room.chance = room.chances + c * room.candidate[p.d];
        if (!room.known) room.chosen[c] = w.weigh_candidates(c, begin, end);
        const bool chosen = room.chosen[c];
        if (chosen) tables.weigh_effects(c, begin, end);
        for (Index v = begin; v < end; ++v) {
            if (!p.measured) p.shares[v] = chosen ? shares.share_of(v) : 0;
            tables.put_pulls(v, chosen);
        }
        begin = end;
    }
    if (!p.measured) p.shares[p.N] = shares.share_of_leaves();
    if constexpr (alone)
        tables.expand_rows_of_one_query();
    else
        tables.expand_rows();
}

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
