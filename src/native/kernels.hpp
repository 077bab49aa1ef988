// The native kernels: raw arrays in, raw arrays out. src/leaftrace/_model/kernels/numpy.py defines each of them in
// a few lines of NumPy, and tests compare the two.
//
// Legend: n rows, R trees in a step, K outputs, O outputs of a leaf, M leaves of a step, B columns, Q inner
// iterations. Arrays are C-contiguous; bindings check all arguments once (arguments.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

#if defined(__GNUC__)
#define LT_RESTRICT __restrict__
#define LT_IVDEP _Pragma("GCC ivdep")
#define LT_INLINE inline __attribute__((always_inline))
#define LT_CALLED __attribute__((noinline))  // small code, where inlining is not worth its copies
#else
#define LT_RESTRICT __restrict
#define LT_IVDEP
#define LT_INLINE __forceinline
#define LT_CALLED __declspec(noinline)
#endif

namespace leaftrace {

using Index = std::ptrdiff_t;

// Ids of leaves, in an array of 1, 2 or 4 bytes each. Kernels are compiled once for all three: those with much work a
// row read ids one by one, others copy a tile of them to one type first (copy_ids), and those with a single column,
// where reading the ids is much of the work, take them in their own type (with_ids).
struct Ids {
    const unsigned char* data;
    int bytes;
    template <class Id>
    LT_INLINE const Id* as() const {
        return reinterpret_cast<const Id*>(data);
    }
    LT_INLINE Index operator[](Index j) const {
        if (bytes == 1) return data[j];
        return bytes == 2 ? static_cast<Index>(as<std::uint16_t>()[j]) : static_cast<Index>(as<std::uint32_t>()[j]);
    }
    LT_INLINE Ids operator+(Index j) const { return {data + j * bytes, bytes}; }
};

// The same, to be written to.
struct MutableIds {
    unsigned char* data;
    int bytes;
};

// Call body(array) with the ids in their own type.
template <class Body>
LT_INLINE void with_ids(Ids ids, const Body& body) {
    if (ids.bytes == 1) return body(ids.as<std::uint8_t>());
    if (ids.bytes == 2) return body(ids.as<std::uint16_t>());
    body(ids.as<std::uint32_t>());
}

// The first four have kernels of their own; the others are functions of a score and a label (general.hpp).
enum class LossKind {
    squared, logistic, poisson, softmax,
    residual, margin, relative, exponentials, sigmoid, pseudo_huber, fair, power, squared_log
};
static inline bool is_general(LossKind kind) { return kind > LossKind::softmax; }

// Leaves of one step: the leaf of row j in tree r is ids[r * stride + j], counted over all M leaves of the
// step; tree r writes to outputs first[r] .. first[r] + O - 1.
struct StepLeaves {
    Ids ids;
    const std::int32_t* first;
    Index R, n, stride, O;
    LT_INLINE Ids tree(Index r) const { return ids + r * stride; }
    // Whether there is one output and one tree, so that the sizes are constants for the compiler.
    LT_INLINE bool plain(Index K) const { return R == 1 && O == 1 && K == 1; }
    // The same for trees of which a row has two effects.
    LT_INLINE bool paired(Index K) const { return R == 1 && O == 2 && K == 1; }
};

// The rows in one inner iteration of a one-output step (K = 1): see _engine/replay.py.
struct RowData {
    LossKind loss;
    const double* state;  // (n, C)
    const double* y;      // (n)
    const double* w;      // (n)
};

// One pass over the rows of a step. The pass first adds the changes of the step before to the changes of
// scores. These are stored as D, or (exponential) as exp(D) - 1: that needs no exponential per row, but |D|,
// by which leaves are ranked, is not available.
template <class Real>
struct Sweep {
    StepLeaves at;
    Index K, B;
    bool exponential, small;  // small: |D| stays below the bound of the Taylor polynomials
    StepLeaves before;
    const Real* d_before;  // (M', O', B) changes of its leaves in the same form, or null
    Real* D;               // (n, K, B)
    const Real* pick;      // (n) nonzero for the rows by which leaves are ranked; null: all rows
    Real* ranking;         // (M, B) += sums of |D| over the tree's outputs
};

// The changes of the loss's g and h, summed over the leaves of a step. shift (M, O), inner (M, O, B) and
// mask (M, B) are null except in inner iterations: there a row's change is mask D, then the leaf's own change
// inner.
template <class Real>
struct Changes {
    LossKind kind;
    const double* numbers;  // parameters of a general loss
    const Real* state;      // (n, C)
    const double* scores;   // (n, K), for a general loss instead of state
    const double* y;        // (n), for a general loss
    const Real* w;          // (n), or (R, n) with a stride
    Index w_stride;
    const Real *shift, *inner, *mask;
    Real *dG, *dH;  // (M, O, B), (M, O, O, B)
};

// The leaf equations of one inner iteration without row b in column b: see _model/kernels/numpy_removal.py.
template <class Real>
struct Removal {
    LossKind kind;
    const double* numbers;
    bool newton;
    Index R, K, M, O, B;
    Ids own;                    // (R, B)
    const std::int32_t* first;  // (R)
    const double *state, *move, *y, *w;  // (B, C), (R, K, B), (B), (B) or (R, B) with a stride
    Index w_stride;
    const double *s, *D, *rows, *dlam;  // (M, O), (M, O, O), (M), (B)
    double c;
    const Real *dG, *dH;
    double* dS;            // (M, O, B)
    const double* bounds;  // l1, longest step, least sum of h; null if there are none, as the next three
    const double *G, *lam;  // (M, O), (M)
    const bool* fixed;      // (M)
    bool diagonal;
};

// Numbers of rows, in float64 or, to read fewer bytes, in float32; all ones if both are null.
struct Column {
    const double* wide;
    const float* narrow;
};

// A step of one output and one tree in the backward pass of one column, for rows begin .. end - 1, whose sums over the
// leaves of the step below are taken block by block.
template <class Real>
struct Scored {
    Ids leaf;  // (n)
    Index begin, end, block, M, Q;
    const double* values;         // (M), taken from the scores
    const double *shift, *s, *N;  // (Q, M)
    double* A;                    // (n) scores after the step; before it when done
    Column y, w;                  // (n)
    const Real* fbar;             // (M)
    Real* abar;                   // (n)
    Ids next_leaf;                // (n)
    Index M_below;
    Real *below, *out;  // (blocks, M_below), (n), or null
};

// Rows of a step by query: those of query q are edges[q] .. edges[q + 1] - 1. Their leaves in the step below are null
// if there is none.
struct QueryRows {
    Ids leaf;
    Index Q;
    const std::int64_t* edges;
    Ids next_leaf;
};

// A step of M leaves that depend on other nodes: see _engine/node_slopes.py.
struct NodeStep {
    Index M, S, D;  // leaves, splits, nodes that depend on others
    const std::int32_t *value, *leaf, *leaf_above;  // (M) the node of a leaf's value, or -1; its own node; the split above
    const std::int32_t *splits, *split_above;       // (S) the node of each split; the split above it, or -1
    const std::int32_t *nodes, *pair;               // (D), (D, 2) in the order in which derivatives go back
    const double *half, *slopes;                    // (D); (nodes with rows, 2)
};

// Symmetric trees: level k of a tree is bit k of the leaf's number, which is set above the level's threshold.
struct Levels {
    Index R, C;                 // trees, columns that are compared
    const std::int64_t* edges;  // (R + 1) the levels of each tree
    const std::int32_t* place;  // (levels) number of the column among those that are compared
    const float* threshold;     // (levels)
    const std::int32_t* used;   // (C) these columns
    const std::uint8_t* above;  // (C) whether missing values are above all thresholds; otherwise below
};
constexpr Index level_tile = 512;

template <class Real>
struct Kernels {
    // A (n, K) += values[offset + leaf] over all trees; values (all leaves, O).
    void (*tree_scores)(StepLeaves, const std::int64_t* offset, Index K, const double* values, double* A);
    // out (all leaves, O) at offset + leaf += c (n, K) over all rows and trees.
    void (*tree_sums)(StepLeaves, const std::int64_t* offset, Index K, const double* c, double* out);
    // sums (M, 4) += w g, w h, w k over each leaf at score A + S; the fourth column is not used. copies has
    // 16 M zeros.
    void (*leaf_sums)(RowData, Ids, Index n, Index M, const double* shift, double* copies, double* sums);

    // The next two go through steps of one tree and one output each; leaves of tree r: edges[r] .. edges[r + 1].
    // Before each step but the first, the values of the tree before are added to A (n).

    // sums (all leaves, 8) += w g, w h, w k, w and 1 for w > 0 over each leaf of the rows begin .. end - 1; three
    // columns are not used. skip: the first tree only moves the scores. rounding: bit flags for float32: 1 the
    // terms w g and w h, 2 the derivatives before they are weighted, 4 the scores.
    // copies has room for 17 times the leaves of the largest tree.
    void (*replay_sums)(LossKind, StepLeaves, bool skip, const std::int64_t* edges, const double* values, Index begin,
                        Index end, double* A, const double* y, const double* w, int rounding, double* copies, double* sums);
    // V, U (R, n): direct and knock-on effects of rows begin .. end - 1; A has the scores of these rows. Leaf
    // tables shift, s, N: those of tree r are (Q, M) at tables[r] .. tables[r + 1].
    void (*row_effects)(LossKind, bool newton, StepLeaves, Index begin, Index end, const std::int64_t* edges,
                        const double* values, const std::int64_t* tables, const double* shift, const double* s,
                        const double* N, double* A, const double* y, const double* w, Real* V, Real* U);

    // abar += U' fbar[leaf]; then fbar_next += sums of abar over the next step's M leaves (next.R may be
    // zero). O counts the effects of a row here, so it may be more than K. copies has M max(4, O B) zeros, with
    // the O of the next step.
    void (*backward_step)(StepLeaves, Index K, Index B, const Real* U, const Real* fbar, Real* abar,
                          StepLeaves next, Index M, Real* fbar_next, Real* copies);
    // The same for one column, from scores instead of U, and out += V fbar. The sums of each block of rows have a table
    // of their own: so they do not depend on how rows are spread over threads. room has 2 M numbers, copies 4 M_below zeros.
    void (*backward_scored)(LossKind, bool newton, Scored<Real>, double* room, Real* copies);
    // out (n, B) += sum over trees of V . fbar[offset + leaf], for rows begin .. end - 1; of V . fbar[place[offset + leaf]],
    // if place is not null.
    void (*expand)(StepLeaves, Index B, Index begin, Index end, const std::int64_t* offset, const std::int32_t* place,
                   const Real* V, const Real* fbar, Real* out);

    // dS += c ds. scratch has K + O + O O + R O B + (O O + O + 1) B numbers.
    void (*removal_step)(Removal<Real>, double* scratch);
    // D (n, K, B) += d[leaf].
    void (*advance)(StepLeaves, Index K, Index B, const Real* d, Real* D);
    // out (M, O, B) += sums of U D.
    void (*tangent_sums)(Sweep<Real>, const Real* U, Real* out);
    // dG, dH += sums of the changes of w g and w h. scratch: (B + 1) K.
    void (*change_sums)(Sweep<Real>, Changes<Real>, Real* scratch);
    // out (L, M, O): sums of u (n, K) over the rows that leaf l of one tree shares with each leaf of earlier
    // trees. Row j is in leaf offset[r] + ids[j * trees + r] of earlier tree r, whose outputs begin at first[r].
    // The rows of leaf l are order[edges[l]] .. order[edges[l + 1] - 1]; row j's numbers are u[j * stride].
    // sums has M O numbers.
    void (*pair_sums)(Ids ids, Index trees, Index earlier, const std::int64_t* offset, const std::int32_t* first,
                      const std::int64_t* order, const std::int64_t* edges, Index L, Index M, Index O, const Real* u,
                      Index stride, double* sums, Real* out);
    // mask (M, B) = 1 for the k leaves (0 < k <= M) with the largest sums of each column, otherwise 0; among
    // equal sums the first leaves are taken. best has k B numbers, room B.
    void (*top_leaves)(Index M, Index B, Index k, const Real* sums, Real* mask, Real* best, Real* room);
    // felt (rows, B) += W (rows, inner) own (inner, B).
    void (*lift)(Index rows, Index inner, Index B, const Real* W, const Real* own, Real* felt);

    // The next two are steps of the backward pass over losses that couple the rows of a query; x (M, B) is of the leaves
    // of the step. Unless below is null, it gets the sums of out, or of its first part, over the leaves of the step below.

    // out (n, B) += products of the queries' matrices and x of their leaves; K has the matrices one after another, each
    // column by column. The leaves of the rows are those of columns here: columns[q] .. columns[q + 1] - 1 are of query
    // q. leaf has room for the columns of one query.
    void (*query_products)(QueryRows, Index B, const std::int64_t* columns, const Real* K, const Real* x, Real* out,
                           Real* below, std::uint32_t* leaf);
    // out (n, E, B) += own (n, E) x + left (n, E, R) . sums over the query of right (n, R) x. sums has R B numbers.
    void (*query_shares)(QueryRows, Index R, Index E, Index B, const Real* right, const Real* own, const Real* left,
                         const Real* x, Real* out, Real* below, Real* sums);

    // Derivatives in the sums of g and h over each leaf, from those in the values, fbar (M, B): those of leaf l are row
    // place[l] of rows (., 2, B), in which row 0 has zeros, and rows from `first` on are written. Returns the row after
    // the last. There is room for S + M rows; bar has room for B numbers and number a zero for each node, last room for a
    // number a split.
    Index (*node_rows)(NodeStep, Index B, const Real* fbar, Index first, Real* rows, std::int32_t* place, Real* bar,
                       std::int32_t* number, std::int32_t* last);

    // leaves (R, n): the leaves of rows begin .. end - 1 with these values (n, d), which are compared as float32. room has
    // C times level_tile numbers.
    void (*level_leaves)(Levels, const Real* values, Index n, Index d, Index begin, Index end, float* room, MutableIds leaves);
};

#define LEAFTRACE_DECLARE(isa)                     \
    namespace isa {                                \
    template <class Real>              \
    const Kernels<Real>& kernels();          \
    }
LEAFTRACE_DECLARE(baseline)
LEAFTRACE_DECLARE(avx2)
LEAFTRACE_DECLARE(avx512)
#undef LEAFTRACE_DECLARE

}  // namespace leaftrace
