// Soft choices of splits: how far values move. What a node puts apart of the pairs of rows of a leaf moves with the values
// of the node's sides, and what stays together all the way with the leaf's value. Included once for each instruction set.
#pragma once
#include "choice_candidates.hpp"

namespace leaftrace {
namespace LEAFTRACE_ISA {
namespace {

constexpr double side_leaves = 4;  // into which a side is taken to be cut: see numpy_soft_choice.py

template <class Real, bool one>
struct ChoiceShares {
    ChoiceWork<Real, one>& w;

    // Put the leaves in an order in which those below a slot lie side by side, and count the rows of every cell.
    void count_rows() {
        const auto& p = w.p;
        const auto& room = w.room;
        for (Index slot = p.N; slot < p.N + p.L; ++slot) room.below[slot] = 1;
        for (Index v = p.N - 1; v >= 0; --v) room.below[v] = room.below[p.left[v]] + room.below[p.right[v]];
        room.first[0] = 0;
        for (Index v = 0; v < p.N; ++v) {
            room.first[p.left[v]] = room.first[v];
            room.first[p.right[v]] = room.first[v] + room.below[p.left[v]];
        }
        for (Index l = 0; l < p.L; ++l) room.leaf_at[room.first[p.N + l]] = static_cast<std::int32_t>(l);
        w.for_leaves([&](Index l, Index) {
            std::int32_t* counts = room.counts_of + l * w.cells;
            for (Index i = 0; i < w.cells; ++i) counts[i] = 0;
            room.stay[l] = 1;
            room.leaf_rows[l] = 0;
            for (Index r = room.edges[l]; r < room.edges[l + 1]; ++r) {
                if (!(p.w[room.rows[r]] > 0)) continue;
                room.leaf_rows[l] += 1;
                for (Index f = 0; f < p.d; ++f) ++counts[room.cell[f] + room.codes[r * p.d + f]];
            }
        });
    }

    // The probability that two draws of the present choice differ.
    double unsure() const {
        double same = 0;
        for (Index s = 0; s < w.room.candidate[w.p.d]; ++s) same += w.room.chance[s] * w.room.chance[s];
        return same < 1 ? 1 - same : 0;
    }

    // The probability that a pair of rows of leaf l is put apart by a split drawn at node v.
    double apart(Index v, Index l) const {
        const auto& room = w.room;
        const double rows = room.leaf_rows[l];
        double total = 0;
        if (rows < 2) return 0;
        for (Index f = 0; f < w.p.d; ++f) {
            const std::int32_t* counts = room.counts_of + l * w.cells + room.cell[f];
            const auto add = [&](Index candidate, double left) {
                total += room.chance[candidate] * 2 * left * (rows - left) / (rows * rows);
            };
            if (w.singles(f)) {
                for (Index bin = 0; bin < w.p.sizes[f]; ++bin) add(room.candidate[f] + bin, counts[bin]);
                continue;
            }
            w.for_runs(v, f, [&](Run run) {
                double left = 0;
                for (Index length = 1; length < run.to; ++length) {
                    left += counts[run.order[length - 1]];
                    if (length >= run.from) add(run.candidate + length - run.from, left);
                }
            });
        }
        return total;
    }

    // The share of node v, whose choice has just been weighed: that of the rows below it that it is first to put apart.
    double share_of(Index v) {
        const auto& room = w.room;
        const double differs = unsure();
        double lost = 0, rows = 0;
        for (Index i = room.first[v]; i < room.first[v] + room.below[v]; ++i) {
            const Index l = room.leaf_at[i];
            const double part = differs * apart(v, l);
            lost += room.leaf_rows[l] * room.stay[l] * part;
            rows += room.leaf_rows[l];
            room.stay[l] *= 1 - part;
        }
        return rows > 0 ? lost / rows : 0;
    }

    // The share of the leaves of the tree, after all nodes: the mean over leaves with rows.
    double share_of_leaves() const {
        double kept = 0, leaves = 0;
        for (Index l = 0; l < w.p.L; ++l) {
            if (!(w.room.leaf_rows[l] > 0)) continue;
            kept += w.room.stay[l];
            leaves += 1;
        }
        return leaves > 0 ? kept / leaves : 1;
    }
};

}  // namespace
}  // namespace LEAFTRACE_ISA
}  // namespace leaftrace
