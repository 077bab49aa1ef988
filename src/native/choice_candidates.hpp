// Soft choices of splits, the part without queries: gains of candidate splits, and the probabilities of a choice.
// Included once for each instruction set.
#pragma once
#include "choice_rows.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

// Candidates of a column at a node that put the first `length` bins of an order on the left, for each length from
// `from` to `to` - 1. The candidate of length `from` has the number `candidate`.
struct Run {
    const std::uint8_t* order;
    Index bins, from, to, candidate;
};

// One output of one side of a split, from the sums over its rows: the slope of the gain, the gain, the value of a leaf
// there, and how far the value goes with G (zero while l1 or the largest step holds it). Equal denominators are divided by
// once.
struct Side {
    double slope, gain, value, pace;

    template <class Real>
    Side(double G, double Q, double R, double l2, const Choice<Real>& p) : slope(0), gain(0), value(0), pace(0) {
        if (p.output_hessian > 0 && Q < p.output_hessian) return;
        const double pull = G > p.l1 ? G - p.l1 : G < -p.l1 ? G + p.l1 : 0;
        if (Q + l2 > 0) {
            slope = bounded(-pull / (Q + l2), p.max_step);
            gain = -slope * (2 * pull + slope * (Q + l2));
        }
        if (!(R + l2 > 0)) return;
        const double step = R == Q ? slope : -pull / (R + l2);
        value = bounded(step, p.max_step);
        const bool held = (p.l1 > 0 && pull == 0) || value == p.max_step || value == -p.max_step;
        pace = held ? 0 : 1 / (R + l2);
    }

    static double bounded(double step, double most) { return step > most ? most : step < -most ? -most : step; }
};

constexpr double least_exponent = -40;  // candidates less likely than that are left out
constexpr double least_tau = 1e-35;     // a choice with a lower temperature is sure
constexpr double rounding = 1e-9;       // of sums and gains, which does not decide whether candidates are allowed

template <class Real, bool one>
struct ChoiceWork : ChoiceRows<Real, one> {
    using Rows = ChoiceRows<Real, one>;
    using Rows::cells;
    using Rows::outputs;
    using Rows::p;
    using Rows::room;
    using Rows::sums;

    const std::uint8_t* order_of(Index v, Index f) const { return room.orders + v * cells + room.cell[f]; }
    double* sums_of(Index v, Index f) const { return room.sums + (v * cells + room.cell[f]) * sums(); }
    double more_l2(Index f) const { return f >= 0 && p.kinds[f] == 3 ? p.category_l2 : 0; }
    double l2_of(Index f) const { return p.lam + more_l2(f); }
    // Whether gains are wanted with the l2 of the model, too.
    bool compares_columns() const { return p.columns_sampled && p.own_lam != p.lam; }
    Index candidates_of(Index f) const { return room.candidate[f + 1] - room.candidate[f]; }

    Side side(const double* sums, Index o, double l2) const {
        return Side(sums[o], sums[outputs() + o], sums[2 * outputs() + o], l2, p);
    }
    double gain(const double* sums, double l2) const {
        double total = 0;
        for (Index o = 0; o < outputs(); ++o) total += side(sums, o, l2).gain;
        return total;
    }
    // The sum over outputs of the gain's denominators.
    double denominators(const double* sums) const {
        double Q = 0;
        for (Index o = 0; o < outputs(); ++o) Q += sums[outputs() + o];
        return Q;
    }
    // Whether a side of a node that is split alone has enough rows and second derivatives. ``node``: sums of the node
    bool large_enough(const double* sums, const double* node) const {
        const double Q = denominators(sums);
        double rows = sums[3 * outputs()];
        if (p.rows_estimated) rows = __builtin_floor(Q * (node[3 * outputs()] / denominators(node)) + 0.5 + rounding);
        return rows >= p.min_rows && Q >= (1 - rounding) * p.min_hessian * static_cast<double>(outputs());
    }

    // The sum over the rows of a leaf of the squares of -slope (2 w g + slope Q), for one output.
    double spread_of(Index l, double slope) const {
        const double* x = room.squares + 3 * l;
        return slope * slope * (4 * x[0] + slope * (4 * x[1] + slope * x[2]));
    }

    // Temperatures of all choices: the spread of the gain of the split taken over random halves of the rows.
    void temperatures() {
        const Index O = outputs(), S = sums();
        for (Index c = 0; c < p.choices; ++c) room.tau[c] = 0;
        for (Index l = 0; l < p.L; ++l)
            for (Index slot = p.N + l; room.parent[slot] >= 0; slot = room.parent[slot]) {
                const Index v = room.parent[slot];
                double spread = 0;
                for (Index o = 0; o < O; ++o)
                    room.slope[o] = side(room.slot_sums + slot * S, o, l2_of(p.column[v])).slope;
                if (one) {  // rounding can make a sum of squares that is zero negative
                    spread = spread_of(l, room.slope[0]);
                    room.tau[p.choice[v]] += spread > 0 ? spread : 0;
                    continue;
                }
                for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) {
                    const double* x = room.terms + r * S;
                    double gamma = 0;
                    for (Index o = 0; o < O; ++o)
                        gamma -= room.slope[o] * (2 * x[o] + room.slope[o] * x[O + o]);
                    spread += gamma * gamma;
                }
                room.tau[p.choice[v]] += spread;
            }
        for (Index c = 0; c < p.choices; ++c) room.tau[c] = p.temperature * __builtin_sqrt(room.tau[c] / 2);
    }

    // The order of the bins of a column at a node: that of the codes, or of G / (H + l2) for sorted categories.
    void sort_bins(Index v, Index f) {
        std::uint8_t* order = room.orders + v * cells + room.cell[f];
        const Index bins = p.sizes[f];
        for (Index i = 0; i < bins; ++i) order[i] = static_cast<std::uint8_t>(i);
        if (p.kinds[f] != 3) return;
        for (Index bin = 0; bin < bins; ++bin) {
            const double* x = sums_of(v, f) + bin * sums();
            room.keys[bin] = 0;
            for (Index o = 0; o < outputs(); ++o) {
                const double D = x[outputs() + o] + l2_of(f);
                room.keys[bin] += D > 0 ? x[o] / D : 0;
            }
            if (!(x[3 * outputs()] > 0)) room.keys[bin] = __builtin_inf();  // bins without rows come last
        }
        for (Index i = 1; i < bins; ++i) {
            const std::uint8_t bin = order[i];
            Index j = i;
            for (; j > 0 && room.keys[order[j - 1]] > room.keys[bin]; --j) order[j] = order[j - 1];
            order[j] = bin;
        }
    }

    // Calls body(run) for the candidates of a column at a node, but for single categories.
    template <class Body>
    void for_runs(Index v, Index f, const Body& body) const {
        const Index bins = p.sizes[f], first = room.candidate[f];
        body(Run{order_of(v, f), bins, 1, bins, first});
        if (p.kinds[f] == 1 && bins > 2) {
            std::uint8_t order[256];  // missing values, then the others
            order[0] = static_cast<std::uint8_t>(bins - 1);
            for (Index i = 1; i < bins; ++i) order[i] = static_cast<std::uint8_t>(i - 1);
            body(Run{order, bins, 2, bins, first + bins - 1});
        }
    }

    bool singles(Index f) const { return p.kinds[f] == 2 && p.sizes[f] > 2; }

    void candidate_sides(Index v, Index f, Index candidate, const double* left, const double* right, double there,
                         bool alone) {
        room.left_rows[candidate] += left[3 * outputs()];
        room.right_rows[candidate] += right[3 * outputs()];
        room.last_rows[candidate] += there;
        Real* to = room.sides + (v * room.candidate[p.d] + candidate) * side_numbers * outputs();
        const double* node = room.slot_sums + v * sums();
        if (alone && !(there > 0 && large_enough(left, node) && large_enough(right, node))) {
            room.left_rows[candidate] = -__builtin_inf();
            for (Index i = 0; i < side_numbers * outputs(); ++i) to[i] = 0;
            return;
        }
        for (Index o = 0; o < outputs(); ++o, to += side_numbers) {
            const Side L = side(left, o, l2_of(f)), R = side(right, o, l2_of(f));
            room.gain[candidate] += L.gain + R.gain;
            const double numbers[side_numbers] = {L.slope, R.slope, L.value, R.value, L.pace, R.pace};
            for (Index i = 0; i < side_numbers; ++i) to[i] = static_cast<Real>(numbers[i]);
        }
        const double own_l2 = p.own_lam + more_l2(f);
        if (compares_columns()) room.own_gain[candidate] += gain(left, own_l2) + gain(right, own_l2);
    }

    // Gains and child values of all candidates of a column at a node.
    void compare_candidates(Index v, Index f, bool alone) {
        const Index S = sums();
        const double* sums = sums_of(v, f);
        const double* total = room.slot_sums + v * S;
        double *left = room.left, *right = room.right;
        sort_bins(v, f);
        if (singles(f)) {
            for (Index bin = 0; bin < p.sizes[f]; ++bin) {
                for (Index i = 0; i < S; ++i) right[i] = total[i] - sums[bin * S + i];
                candidate_sides(v, f, room.candidate[f] + bin, sums + bin * S, right, sums[bin * S + 3 * outputs()], alone);
            }
            return;
        }
        for_runs(v, f, [&](Run run) {
            for (Index i = 0; i < S; ++i) left[i] = 0;
            for (Index length = 1; length < run.to; ++length) {
                const double* bin = sums + run.order[length - 1] * S;
                for (Index i = 0; i < S; ++i) left[i] += bin[i];
                if (length < run.from) continue;
                for (Index i = 0; i < S; ++i) right[i] = total[i] - left[i];
                // Without missing values, those on the left make no other split.
                const bool same = run.from == 2 && !(sums[run.order[0] * S + 3 * outputs()] > 0);
                const double there = same ? 0 : bin[3 * outputs()];
                candidate_sides(v, f, run.candidate + length - run.from, left, right, there, alone);
            }
        });
    }

    Index categories_with_rows(Index f) const {
        Index count = 0;
        for (Index s = room.candidate[f]; s < room.candidate[f + 1]; ++s) count += room.last_rows[s] > 0;
        return count;
    }

    // The largest gain, with this l2, of candidates of columns that training compared: that of the split taken. Bins are
    // not those of the booster, so gains differ a little; where splits gain nothing, they differ by rounding.
    double most_gain(Index begin, Index end, double lam) const {
        double taken = 0, whole = 0;
        for (Index v = begin; v < end; ++v) {
            const double l2 = lam + more_l2(p.column[v]);
            taken += gain(room.slot_sums + p.left[v] * sums(), l2) + gain(room.slot_sums + p.right[v] * sums(), l2);
            whole += gain(room.slot_sums + v * sums(), lam);
        }
        return taken + 0.02 * (taken - whole) + rounding * taken;
    }

    // Probabilities of the candidates of a choice: room.chance. False if there is no choice.
    bool weigh_candidates(Index c, Index begin, Index end) {
        const Index C = room.candidate[p.d];
        for (Index s = 0; s < C; ++s) {
            room.gain[s] = room.own_gain[s] = 0;
            room.left_rows[s] = room.right_rows[s] = room.last_rows[s] = 0;
        }
        const double* own_gain = compares_columns() ? room.own_gain : room.gain;
        for (Index v = begin; v < end; ++v)
            for (Index f = 0; f < p.d; ++f) compare_candidates(v, f, end - begin == 1);
        const double most = p.columns_sampled ? most_gain(begin, end, p.lam) : 0;
        const double own_most = compares_columns() ? most_gain(begin, end, p.own_lam) : most;
        const double tau = room.tau[c];
        double top = -__builtin_inf();
        for (Index f = 0; f < p.d; ++f) {
            double best = -__builtin_inf(), own_best = -__builtin_inf();
            const bool same = singles(f) && categories_with_rows(f) == 2;  // each of the two is the other's rest
            bool seen = false;
            for (Index s = room.candidate[f]; s < room.candidate[f + 1]; ++s) {
                const bool splits = room.left_rows[s] > 0 && room.right_rows[s] > 0 && room.last_rows[s] > 0;
                if (!splits || (same && seen)) room.gain[s] = -__builtin_inf();
                seen = seen || splits;
                best = room.gain[s] > best ? room.gain[s] : best;
                if (room.gain[s] > -__builtin_inf() && own_gain[s] > own_best) own_best = own_gain[s];
            }
            // A column with a better split than the one taken, by the gains of training or by these, was not among those drawn.
            const bool better = best > most || own_best > own_most;
            if (p.columns_sampled && f != p.column[begin] && better) {
                for (Index s = room.candidate[f]; s < room.candidate[f + 1]; ++s) room.gain[s] = -__builtin_inf();
                best = -__builtin_inf();
            }
            top = best > top ? best : top;
        }
        if (!(tau > least_tau) || !(top > -__builtin_inf())) return false;
        double total = 0;
        for (Index s = 0; s < C; ++s) {
            const double below = (room.gain[s] - top) / tau;
            room.chance[s] = below > least_exponent ? __builtin_exp(below) : 0;
            total += room.chance[s];
        }
        for (Index s = 0; s < C; ++s) room.chance[s] /= total;
        return true;
    }

    const Real* sides(Index v, Index candidate) const {
        return room.sides + (v * room.candidate[p.d] + candidate) * side_numbers * outputs();
    }
};

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
