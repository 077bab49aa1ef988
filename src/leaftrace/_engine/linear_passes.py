"""Passes over a model whose leaves are linear functions: see linear_steps.py.

A leaf has 2 + P values f = (c, b, slopes), and a row adds phi . f to its score, phi the `LinearLeaves.factors`
of the row. The backward pass of backward.py becomes, for a step with fbar = dQ/df (leaves, 2 + P),

    pull_c = N fbar_c,   pull = -rate z' M^-1 (fbar_b, fbar_slopes)         of each row, from those of its leaf
    abar  += w (j + k s) pull_c + w (j + k z'theta) pull                   j = dg/dA, k = dh/dA
    fbar  += sum over rows of phi abar                                     of the steps below

and dQ/dw = sum over steps of (g + h s) pull_c + (g + h z'theta) pull. A leaf that is a constant has b = c.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from .._data.arrays import F64, Ids, Ints, Real
from .._data.errors import InvalidInput
from .._data.progress import progress
from .._model.ensemble import BASE, SHRINK, Ensemble
from .._model.kernels import blocks_of
from .._model.linear_leaves import LinearLeaves, columns_of
from .linear_steps import LinearStep, fit_numbers, rows_by_leaf
from .methods import AllPoints, LeafInfluence
from .placed_rows import PlacedRows, forward_scores, scores_backwards
from .queries import Queries
from .row_effects import base_effect, base_label_effect
from .workspace import Workspace

ALONE = 1e-6  # share of other rows below which a row decides its leaf alone
BEYOND = (
    1e-6  # part of a row's numbers that does not follow from others, beside the largest of them
)


@dataclass(frozen=True)
class LinearAdjoint:
    """Derivatives of some queries in the values of all leaves and in the starting score."""

    fbar: F64  # (leaves, 2 + P, B)
    base: F64  # (K, B)


@dataclass(frozen=True)
class _Pulls:
    """The derivatives of queries in the terms of rows in one tree, by way of c and of the function.

    ``c``, ``function``    (n, B)
    ``s``, ``output``      (n,) the unshrunk c and z' theta of each row's leaf
    """

    c: F64
    function: F64
    s: F64
    output: F64

    def dot(self, first: F64, second: F64) -> F64:
        """(n, B) for terms of one number: first + second s, ``first`` and ``second`` (n,)."""
        by_c = (first + second * self.s)[:, None] * self.c
        return by_c + (first + second * self.output)[:, None] * self.function


class LinearPasses:
    """The passes over a replayed model with linear leaves."""

    def __init__(self, work: Workspace) -> None:
        self.trace = work.trace
        self.work = work

    @property
    def _ensemble(self) -> Ensemble:
        return self.trace.ensemble

    def _step(self, t: int) -> tuple[LinearLeaves, LinearStep, F64]:
        """The leaves of step t, their functions, and their values (M, 2 + P)."""
        e = self._ensemble
        assert e.linear is not None
        assert self.trace.linear is not None
        return e.linear.part(e.leaf_range(t)), self.trace.linear[t], e.values[e.leaf_range(t)]

    # ---- backwards ----

    def blocks(
        self, queries: Queries, method: LeafInfluence, index: Ints | None
    ) -> Iterator[tuple[slice, Real]]:
        """LeafInfluence, block by block: (columns, values (rows, columns))."""
        knock_on = isinstance(method.update_set, AllPoints)
        rows = self.work.rows if index is None else self.work.rows.take(index)
        blocks = blocks_of(len(queries), self.work.block)
        for columns in progress(blocks, len(queries), "influence", "query", self.work.block):
            adjoint = self.adjoint(queries, columns, knock_on=knock_on)
            yield columns, self.weight_slopes(adjoint, rows).astype(self.work.dtype)

    def adjoint(self, queries: Queries, columns: slice, *, knock_on: bool = True) -> LinearAdjoint:
        """Run the backward pass for some queries.

        ``knock_on``: False leaves out the effects of rows on others through later trees.
        """
        e = self._ensemble
        fbar, base = self._seeds(queries, columns)
        rows = self.work.rows
        abar = np.zeros((e.n_rows, e.n_outputs, fbar.shape[2]))
        for t, A in scores_backwards(self.trace, rows):
            if not knock_on:
                break
            state = e.loss.state(A)
            j = e.loss.jacobian(state, rows.y)
            k = e.loss.third_diagonal(state, rows.y)
            for r in range(e.trees(t).start, e.trees(t).stop):
                o = int(e.first_output[r])
                pulls = self._pulls(t, r, rows, fbar[e.leaf_range(t)])
                for output in range(e.n_outputs):
                    slope = pulls.dot(j[:, o, output], k[:, o, output])
                    abar[:, output] += rows.w[:, None] * slope
            self._undo_moves(t, abar, fbar, base)
        return LinearAdjoint(fbar, base + abar.sum(axis=0))

    def _seeds(self, queries: Queries, columns: slice) -> tuple[F64, F64]:
        """Direct derivatives of queries in all leaf values (leaves, 2 + P, B) and in the base (K, B)."""
        e = self._ensemble
        numbers = range(len(queries))[columns]
        if queries.reduce:
            leaves = queries.leaves
            c = np.stack([queries.slice_gradient(s) for s in numbers], axis=2)  # (m, K, B)
        else:
            leaves = queries.leaves[:, columns]
            c = queries.gradient[columns][:, :, None] * np.eye(len(numbers))[:, None]
        fbar = np.zeros((*e.values.shape, len(numbers)))
        for t in range(e.n_steps):
            self._add_to_values(t, leaves, e.factors[t] * c, fbar)
        return fbar, e.base_scale * c.sum(axis=0)

    def _add_to_values(self, t: int, leaves: Ids, abar: F64, fbar: F64) -> None:
        """Add derivatives abar (m, K, B) in the scores of rows to those in the values of step t."""
        e = self._ensemble
        here, _, values = self._step(t)
        of_step = fbar[e.leaf_range(t)]
        for r in range(e.trees(t).start, e.trees(t).stop):
            ids = np.asarray(leaves[r])
            phi = here.factors(ids, columns_of(leaves), values)
            for leaf, rows in rows_by_leaf(ids, len(values)):
                of_step[leaf] += phi[rows].T @ abar[rows, e.first_output[r]]

    def _undo_moves(self, t: int, abar: F64, fbar: F64, base: F64) -> None:
        """Go back over the moves between step t - 1 and step t, as `backward.undo_moves` does."""
        e = self._ensemble
        for r, factor in reversed(e.moves_before(t)):
            if r == SHRINK:
                abar *= factor
            elif r == BASE:
                base += factor * abar.sum(axis=0)
            else:
                self._add_to_values(r, e.leaves, factor * abar, fbar)

    def _pulls(self, t: int, r: int, rows: PlacedRows, fbar: F64) -> _Pulls:
        """The derivatives in the terms of rows in tree r of step t, from those in its values (M, 2 + P, B)."""
        here, functions, _ = self._step(t)
        constants = self.trace.steps[t]
        ids = np.asarray(rows.leaves[r])
        z = fit_numbers(here, ids, columns_of(rows.leaves))
        in_c = fbar[:, 0] + np.where(functions.fitted[:, None], 0.0, fbar[:, 1])
        in_c = constants.N[0, :, :, 0] * in_c
        solved = -self._ensemble.rate(t) * functions.inverse @ fbar[:, 1:]  # (M, 1 + P, B)
        of_function = np.zeros((len(ids), fbar.shape[2]))
        for leaf, own in rows_by_leaf(ids, len(fbar)):
            of_function[own] = z[own] @ solved[leaf]
        drawn = 1.0 if rows.sample is None else rows.sample[r][:, None]
        output = np.einsum("np,np->n", z, functions.theta[ids])
        return _Pulls(drawn * in_c[ids], drawn * of_function, constants.s[0, ids, 0], output)

    # ---- from leaves to rows ----

    def weight_slopes(self, adjoint: LinearAdjoint, rows: PlacedRows) -> F64:
        """(rows, B) dQ/d(sample weight) of any rows; at weight zero for those outside the training set."""
        e = self._ensemble
        out = np.zeros((len(rows), adjoint.fbar.shape[2]))
        for t, A in forward_scores(self.trace, rows):
            state = e.loss.state(A)
            g = e.loss.gradient(state, rows.y)
            h = e.loss.hessian(state, rows.y)
            for r in range(e.trees(t).start, e.trees(t).stop):
                o = int(e.first_output[r])
                self._refuse_jumps(t, r, rows)
                pulls = self._pulls(t, r, rows, adjoint.fbar[e.leaf_range(t)])
                out += pulls.dot(g[:, o], h[:, o, o])
        out *= rows.factor[:, None]
        return out + base_effect(self.trace, rows) @ adjoint.base

    def _refuse_jumps(self, t: int, r: int, rows: PlacedRows) -> None:
        """Raise an error if rows of weight zero would decide what the rows of their leaf leave open."""
        here, functions, _ = self._step(t)
        ids = np.asarray(rows.leaves[r])
        drawn = 1.0 if rows.sample is None else rows.sample[r]
        new = np.flatnonzero((rows.w == 0) & (rows.factor * drawn > 0) & functions.fitted[ids])
        own = ids[new]
        z = fit_numbers(here, own, columns_of(rows.leaves)[new])
        beyond = np.abs(z - np.einsum("nab,nb->na", functions.follows[own], z))
        jumps = np.any(beyond > BEYOND * np.abs(z).max(axis=1, keepdims=True), axis=1)
        if jumps.any():
            raise InvalidInput(
                f"{np.count_nonzero(jumps)} rows of weight zero, the first is row {new[jumps][0]} of these, differ in "
                f"a column in which all training rows of their leaf in tree {r + 1} are the same, or follow from "
                "others. Any weight of theirs decides a slope there, which jumps, so there is no derivative; leave "
                "them out, or train with linear_lambda."
            )

    def label_slopes(self, adjoint: LinearAdjoint, rows: PlacedRows) -> F64:
        """(rows, B, Y) dQ/dy of these rows."""
        e = self._ensemble
        by_base = base_label_effect(self.trace, rows)  # (n, K, Y)
        out = np.einsum("nky,kb->nby", by_base, adjoint.base)
        for t, A in forward_scores(self.trace, rows):
            state = e.loss.state(A)
            dg = e.loss.label_gradient(state, rows.y)  # (n, K, Y)
            for r in range(e.trees(t).start, e.trees(t).stop):
                o = int(e.first_output[r])
                pulls = self._pulls(t, r, rows, adjoint.fbar[e.leaf_range(t)])
                dh = e.loss.label_hessian_dot(state, rows.y, _one_output(o, A))
                for y in range(out.shape[2]):
                    out[:, :, y] += rows.w[:, None] * pulls.dot(dg[:, o, y], dh[:, o, y])
        return out

    def add_own_pull(self, t: int, A: F64, own: F64) -> None:
        """Add to own (n, K) how far each training row moves its own output in step t.

        This is f - f_-i if row i left its leaf and all else stayed: with the row's leverage
        w h z' M^-1 z (w h / D for constants), w (df/dw) / (1 - leverage). A row that decides its leaf alone
        pulls the whole output.
        """
        e = self._ensemble
        here, functions, values = self._step(t)
        constants = self.trace.steps[t]
        columns = columns_of(e.leaves)
        g = e.gradients(A, t)
        h = e.second_derivatives(A, t)
        for r in range(e.trees(t).start, e.trees(t).stop):
            o = int(e.first_output[r])
            ids = np.asarray(e.leaves[r])
            z = fit_numbers(here, ids, columns)
            w = e.tree_weight(r)
            complete = here.factors(ids, columns, values)[:, 0] == 0
            by_function = functions.fitted[ids] & complete
            spread = np.einsum("na,nab,nb->n", z, functions.inverse[ids], z)
            spread = np.where(by_function, spread, -constants.N[0, ids, 0, 0] / e.rate(t))
            s = np.einsum("np,np->n", z, functions.theta[ids])
            s = np.where(by_function, s, constants.s[0, ids, 0])
            rest = 1 - w * h[:, o] * spread
            pull = -e.rate(t) * w * (g[:, o] + h[:, o] * s) * spread
            whole = here.outputs(ids, columns, values)
            pull = np.where(rest > ALONE, pull / np.maximum(rest, ALONE), whole)
            own[:, o] += e.factors[t] * pull

    # ---- forwards ----

    def score_changes(self, dw: F64, leaves: Ids) -> F64:
        """(m, K) first-order changes of the scores of rows along changes dw (n,) of sample weights."""
        e = self._ensemble
        rows = self.work.rows
        dbase = dw @ base_effect(self.trace, rows)
        dw = dw * rows.factor
        df = np.zeros_like(e.values)
        dA = np.tile(dbase, (e.n_rows, 1))
        for t, A in forward_scores(self.trace, rows):
            self._move_changes(t, e.leaves, dA, df, dbase)
            df[e.leaf_range(t)] = self._value_changes(t, A, dA, dw)
        dF = np.tile(e.base_scale * dbase, (leaves.shape[1], 1))
        for t in range(e.n_steps):
            self._add_changes(t, leaves, e.factors[t] * df[e.leaf_range(t)], dF)
        return dF

    def _value_changes(self, t: int, A: F64, dA: F64, dw: F64) -> F64:
        """(M, 2 + P) changes of the values of step t, for changes dA (n, K) of scores and dw (n,) of weights."""
        e = self._ensemble
        rows = self.work.rows
        here, functions, values = self._step(t)
        constants = self.trace.steps[t]
        state = e.loss.state(A)
        g = e.loss.gradient(state, rows.y)
        h = e.loss.hessian(state, rows.y)
        j = e.loss.jacobian(state, rows.y)
        k = e.loss.third_diagonal(state, rows.y)
        out = np.zeros_like(values)
        for r in range(e.trees(t).start, e.trees(t).stop):
            o = int(e.first_output[r])
            ids = np.asarray(e.leaves[r])
            drawn = 1.0 if rows.sample is None else rows.sample[r]
            dg = drawn * (dw * g[:, o] + rows.w * np.einsum("nk,nk->n", j[:, o], dA))
            dh = drawn * (dw * h[:, o, o] + rows.w * np.einsum("nk,nk->n", k[:, o], dA))
            z = fit_numbers(here, ids, columns_of(e.leaves))
            by_function = dg + dh * np.einsum("np,np->n", z, functions.theta[ids])
            by_c = dg + dh * constants.s[0, ids, 0]
            for leaf, own in rows_by_leaf(ids, len(values)):
                out[leaf, 0] = constants.N[0, leaf, 0, 0] * by_c[own].sum()
                out[leaf, 1:] = -e.rate(t) * functions.inverse[leaf] @ (z[own].T @ by_function[own])
                if not functions.fitted[leaf]:
                    out[leaf, 1] = out[leaf, 0]
        return out

    def _move_changes(self, t: int, leaves: Ids, dA: F64, df: F64, dbase: F64) -> None:
        """Bring changes dA (rows, K) of scores from before step t - 1 to before step t."""
        e = self._ensemble
        for r, factor in e.moves_before(t):
            if r == SHRINK:
                dA *= factor
            elif r == BASE:
                dA += factor * dbase
            else:
                self._add_changes(r, leaves, factor * df[e.leaf_range(r)], dA)

    def _add_changes(self, t: int, leaves: Ids, df: F64, dA: F64) -> None:
        """Add what changes df (M, 2 + P) of the values of step t do to the scores of rows."""
        e = self._ensemble
        here, _, values = self._step(t)
        for r in range(e.trees(t).start, e.trees(t).stop):
            ids = np.asarray(leaves[r])
            phi = here.factors(ids, columns_of(leaves), values)
            dA[:, e.first_output[r]] += np.einsum("np,np->n", phi, df[ids])


def _one_output(o: int, A: F64) -> F64:
    """(n, K) one in this output, zero in the others."""
    return np.broadcast_to(np.eye(A.shape[1])[o], A.shape)
