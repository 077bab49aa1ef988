// The native kernels: raw arrays in, raw arrays out. src/leaftrace/_kernels/numpy.py defines each of them in
// a few lines of NumPy, and tests compare the two.
//
// Legend: n rows, R trees in a step, K outputs, O outputs of a leaf, M leaves of a step, B columns, Q inner
// iterations. Arrays are C-contiguous; bindings check all arguments once (arguments.hpp).
#pragma once
#include <cstddef>
#include <cstdint>

namespace leaftrace {

using Index = std::ptrdiff_t;

// The first four have kernels of their own; the others are functions of a score and a label (general.hpp).
enum class LossKind {
    squared, logistic, poisson, softmax,
    residual, margin, relative, exponentials, sigmoid, pseudo_huber, fair, power, squared_log
};
static inline bool is_general(LossKind kind) { return kind > LossKind::softmax; }

// Leaves of one step: the leaf of row j in tree r is ids[r * stride + j], counted over all M leaves of the
// step; tree r writes to outputs first[r] .. first[r] + O - 1.
template <class Leaf>
struct StepLeaves {
    const Leaf* ids;
    const std::int32_t* first;
    Index R, n, stride, O;
    const Leaf* tree(Index r) const { return ids + r * stride; }
    // Whether there is one output and one tree, so that the sizes are constants for the compiler.
    bool plain(Index K) const { return R == 1 && O == 1 && K == 1; }
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
template <class Leaf, class Real>
struct Sweep {
    StepLeaves<Leaf> at;
    Index K, B;
    bool exponential, small;  // small: |D| stays below the bound of the Taylor polynomials
    StepLeaves<Leaf> before;
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

// The leaf equations of one inner iteration without row b in column b: see _kernels/numpy_removal.py.
template <class Leaf, class Real>
struct Removal {
    LossKind kind;
    const double* numbers;
    bool newton;
    Index R, K, M, O, B;
    const Leaf* own;            // (R, B)
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

template <class Leaf, class Real>
struct Kernels {
    // A (n, K) += values[offset + leaf] over all trees; values (all leaves, O).
    void (*tree_scores)(StepLeaves<Leaf>, const std::int64_t* offset, Index K, const double* values, double* A);
    // out (all leaves, O) at offset + leaf += c (n, K) over all rows and trees.
    void (*tree_sums)(StepLeaves<Leaf>, const std::int64_t* offset, Index K, const double* c, double* out);
    // sums (M, 4) += w g, w h, w k over each leaf at score A + S; the fourth column is not used. copies has
    // 16 M zeros.
    void (*leaf_sums)(RowData, const Leaf*, Index n, Index M, const double* shift, double* copies, double* sums);

    // The next two go through steps of one tree and one output each; leaves of tree r: edges[r] .. edges[r + 1].
    // Before each step but the first, the values of the tree before are added to A (n).

    // sums (all leaves, 8) += w g, w h, w k, w and 1 for w > 0 over each leaf of the rows begin .. end - 1; three
    // columns are not used. skip: the first tree only moves the scores. rounding: bit flags for float32: 1 the
    // terms w g and w h, 2 the derivatives before they are weighted, 4 the scores.
    // copies has room for 32 times the leaves of the largest tree.
    void (*replay_sums)(LossKind, StepLeaves<Leaf>, bool skip, const std::int64_t* edges, const double* values, Index begin,
                        Index end, double* A, const double* y, const double* w, int rounding, double* copies, double* sums);
    // V, U (R, n): direct and knock-on effects of rows begin .. end - 1; A has the scores of these rows. Leaf
    // tables shift, s, N: those of tree r are (Q, M) at tables[r] .. tables[r + 1].
    void (*row_effects)(LossKind, bool newton, StepLeaves<Leaf>, Index begin, Index end, const std::int64_t* edges,
                        const double* values, const std::int64_t* tables, const double* shift, const double* s,
                        const double* N, double* A, const double* y, const double* w, Real* V, Real* U);

    // abar += U' fbar[leaf]; then fbar_next += sums of abar over the next step's M leaves (next.R may be
    // zero). copies has 4 M zeros.
    void (*backward_step)(StepLeaves<Leaf>, Index K, Index B, const Real* U, const Real* fbar, Real* abar,
                          StepLeaves<Leaf> next, Index M, Real* fbar_next, Real* copies);
    // out (n, B) += sum over trees of V . fbar[offset + leaf], for rows begin .. end - 1.
    void (*expand)(StepLeaves<Leaf>, Index B, Index begin, Index end, const std::int64_t* offset, const Real* V,
                   const Real* fbar, Real* out);

    // dS += c ds. scratch has K + O + O O + R O B + (O O + O + 1) B numbers.
    void (*removal_step)(Removal<Leaf, Real>, double* scratch);
    // D (n, K, B) += d[leaf].
    void (*advance)(StepLeaves<Leaf>, Index K, Index B, const Real* d, Real* D);
    // out (M, O, B) += sums of U D.
    void (*tangent_sums)(Sweep<Leaf, Real>, const Real* U, Real* out);
    // dG, dH += sums of the changes of w g and w h. scratch: (B + 1) K.
    void (*change_sums)(Sweep<Leaf, Real>, Changes<Real>, Real* scratch);
    // out (L, M, O): sums of u (n, K) over the rows that leaf l of one tree shares with each leaf of earlier
    // trees. Row j is in leaf offset[r] + ids[j * trees + r] of earlier tree r, whose outputs begin at first[r].
    // The rows of leaf l are order[edges[l]] .. order[edges[l + 1] - 1]; row j's numbers are u[j * stride].
    // sums has M O numbers.
    void (*pair_sums)(const Leaf* ids, Index trees, Index earlier, const std::int64_t* offset, const std::int32_t* first,
                      const std::int64_t* order, const std::int64_t* edges, Index L, Index M, Index O, const Real* u,
                      Index stride, double* sums, Real* out);
    // mask (M, B) = 1 for the k leaves (0 < k <= M) with the largest sums of each column, otherwise 0; among
    // equal sums the first leaves are taken. best has k B numbers, room B.
    void (*top_leaves)(Index M, Index B, Index k, const Real* sums, Real* mask, Real* best, Real* room);
    // felt (rows, B) += W (rows, inner) own (inner, B).
    void (*lift)(Index rows, Index inner, Index B, const Real* W, const Real* own, Real* felt);
};

#define LEAFTRACE_DECLARE(isa)                     \
    namespace isa {                                \
    template <class Leaf, class Real>              \
    const Kernels<Leaf, Real>& kernels();          \
    }
LEAFTRACE_DECLARE(baseline)
LEAFTRACE_DECLARE(avx2)
LEAFTRACE_DECLARE(avx512)
#undef LEAFTRACE_DECLARE

}  // namespace leaftrace
