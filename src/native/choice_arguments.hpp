// The arguments of the soft choices of splits (choice.hpp), and their declaration for each instruction set.
#pragma once
#include "kernels.hpp"

namespace leaftrace {

// Calls body(context, part) for each part on a thread of its own.
using Body = void (*)(void* context, Index part);
using RunParts = void (*)(Body body, void* context, Index parts);

// One tree whose splits are chosen softly: see _model/kernels/numpy_choice.py. d columns in bins, N inner nodes, L leaves.
// Slots are inner nodes, parents first, then leaves.
template <class Real>
struct Choice {
    Index n, m, d, K, O, N, L, choices, first;
    const std::uint8_t *codes, *query_codes;   // (n, d), (m, d) bins of training rows and of test rows
    const std::int32_t *leaf, *query_leaf;     // (n), (m)
    const double *w, *drawn;                   // (n) weight in the tree; how often the tree drew the row
    const double *g, *h, *j, *k;               // (n, O), (n, O), (n, O, K), (n, O, K) derivatives of the loss
    const Real* c;                             // (m, O, B) derivatives of the queries in the test rows' scores
    const std::int32_t* sizes;                 // (d) number of bins
    const std::uint8_t* kinds;                 // (d) 0 ordered, 1 the last bin is missing, 2 one-hot, 3 sorted
    const std::int32_t *left, *right, *column, *choice;  // (N)
    // own_lam: the model's l2. output_hessian: sum of w h below which an output of a side has neither gain nor value.
    double lam, l1, category_l2, min_rows, min_hessian, temperature, rate, own_lam, max_step, output_hessian;
    bool by_weight, newton, columns_sampled;
    bool rows_estimated;  // whether the rows of a side are taken to be its part of the node's w h
    bool measured;
    double* shares;      // (N + 1) how far the values of sides move at each node, and those of leaves; put in unless measured
    const Real* scores;  // (n, K, B) derivatives of the queries in the training rows' scores after the step
    Real *abar, *out;    // (n, K, B), which may be `scores`; (n, B)
    Index threads;
    RunParts run_parts;
};

constexpr Index side_numbers = 6;  // slope of the gain, value, and pace of the value, of the left and the right side

// What no query changes; C candidates. It is filled in if an earlier call with the same tree left it there.
template <class Real>
struct ChoiceKept {
    bool known;
    Index* edges;            // (L + 1) where the rows of each leaf begin
    std::int32_t* rows;      // (n) rows in the order of their leaves
    std::uint8_t* orders;    // (N, cells) of bins
    std::uint8_t* chosen;    // (choices) whether there is a choice
    double *tau, *chances;   // (choices), (choices, C)
    Real* sides;             // (N, C, O, side_numbers)
};

// What choice_terms works in; S = 3 O + 1 sums.
template <class Real>
struct ChoiceRoom : ChoiceKept<Real> {
    Index *cell, *candidate;  // (d + 1) filled in: where columns begin
    Index *leaves, *shares;   // (L) leaves by their parents; (threads + 1) which of them each thread has
    std::int32_t* parent;             // (N + L)
    std::int32_t* place;              // (n) the place of each row in the order of the leaves
    std::int32_t *columns, *counts;   // (N, d), (N) the columns that have a pull at a node, and how many they are
    std::uint8_t *active, *codes;     // (N, d) whether a column is one of them; (n, d) by place
    std::uint8_t* filled;             // (N, cells) whether a cell has rows or test rows
    std::uint8_t* possible;           // (d) whether a column has a candidate that is possible at the present choice
    double *terms, *sums, *slot_sums;  // (n, S) by place, (N, cells, S), (N + L, S)
    double* squares;                   // (L, 3) sums of squares and products of the terms of one output
    double *gain, *own_gain, *left_rows, *right_rows, *last_rows;  // (C)
    double* chance;                                     // (C) chances of the choice that is worked on
    double *slope, *left, *right, *keys;                // (O), (S), (S), (256)
    Real* factors;  // (n, O, 1 + K, 2) by place
    Real *felt, *pull, *effect, *all, *part;  // (N, cells, O, B), (N, cells, 2, O, B), (C, B), (2 O B), (threads, 2 O B)
    Real *side, *total;                       // (2, O, B), (N, O, B) felt by all rows of a node
    // Unless shares were measured: leaves below each slot (N + L), the first of them (N + L) in this order (L); rows of
    // each cell (L, cells); how many rows a leaf has (L), and the share of its pairs that stay together (L)
    std::int32_t *below, *first, *leaf_at, *counts_of;
    double *leaf_rows, *stay;
};

#define LEAFTRACE_DECLARE(isa)                                          \
    namespace isa {                                                     \
    template <class Real>                                               \
    void choice(const Choice<Real>&, const ChoiceRoom<Real>&, Index B); \
    }
LEAFTRACE_DECLARE(baseline)
LEAFTRACE_DECLARE(avx2)
LEAFTRACE_DECLARE(avx512)
#undef LEAFTRACE_DECLARE

}  // namespace leaftrace
