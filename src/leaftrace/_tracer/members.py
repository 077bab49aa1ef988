"""`MembersTracer`: a model made of several models, each with a tracer of its own.

Let F_m be the raw scores of member m and Q a number of the predictions of the whole model, which its
own code makes of those of the members. The weight of a training row acts through each member that
was trained on it:

    dQ/dw_i = sum over members m of  dQ/dF_m . dF_m/dw_i

The first factor comes from differences of the wrapper's own code, the second from the member's
tracer by one backward pass. Final models of stacking and calibrators are held as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from .._adapters.wrappers.members import MemberModel
from .._data import inputs
from .._data.arrays import F64, Ints
from .._data.errors import InvalidInput, UnsupportedModel
from .._data.grouping import SourceTables
from .._data.row_labels import aligned, labels_of, row_index, row_numbers
from .._engine.fidelity import Fidelity
from .._engine.methods import LeafInfluence, StructureInfluence
from .._engine.queries import Of, Reduce
from .influence import Influence
from .member_models import AlteredMembers, Combination, altered_members
from .member_opening import open_members
from .tracer import Tracer


class MembersTracer(Tracer):
    """A model made of several models: voting, stacking, CalibratedClassifierCV, models of folds.

    `Tracer` and `Tracer.of_folds` make it for such models. It answers `influence`, `by_member`,
    `out_of_fold`, `top`, `refit` and `retrain` about the whole model. For everything else, such as
    the actions, pass one of its members: ``tracer.members["fold 0"]``.

    ``members``      a `Tracer` for each member, by name
    ``member_rows``  positions of the training rows of each, in the order of its own rows
    ``held``         names of members that are not traced, and are held as they are
    """

    members: dict[str, Tracer]
    member_rows: dict[str, Ints]
    held: Sequence[str]

    def __init__(
        self,
        model: Any,
        X_train: Any,
        y_train: Any = None,
        sample_weight: Any = None,
        *,
        folds: Any = None,
        fidelity: str = "raise",
        **settings: Any,
    ) -> None:
        index = labels_of(X_train)
        y = aligned(y_train, index, "y_train", "X_train")
        weight = aligned(sample_weight, index, "sample_weight", "X_train")
        opened = open_members(model, X_train, y, weight, folds, fidelity, settings)
        self.X_train = X_train
        self.y_train = opened.y
        self._given_weight = inputs.weights(weight, len(opened.y))
        self._has_weights = weight is not None
        self._combination = Combination(opened.made, opened.tracers, opened.classes)
        self.members = opened.tracers
        self.member_rows = opened.rows
        self.held = [m.name for m in opened.made.members if m.name not in opened.tracers]
        self._set_labels(index)

    # ---- what a tracer is asked for ----

    @property
    def engine(self) -> NoReturn:  # pyright: ignore[reportIncompatibleVariableOverride]
        some = next(iter(self.members))
        names = ", ".join(map(repr, list(self.members)[:6]))
        more = f" and {len(self.members) - 6} more" if len(self.members) > 6 else ""
        raise UnsupportedModel(
            f"this model is made of {len(self._made.members)} others ({names}{more}), and this question is about one; "
            f"pass one of its members, such as tracer.members[{some!r}], whose training rows are at the positions "
            f"tracer.member_rows[{some!r}]. A MembersTracer itself answers influence, by_member, out_of_fold, top, "
            "refit and retrain."
        )

    @property
    def _made(self) -> MemberModel:
        return self._combination.made

    @property
    def n_rows(self) -> int:
        return len(self.y_train)

    @property
    def sample_weight(self) -> F64:
        return inputs.weights(self._given_weight, self.n_rows)

    @property
    def classes(self) -> np.ndarray | None:
        return self._combination.classes

    @property
    def fidelity(self) -> Fidelity:
        """The fidelity of the member that is replayed least exactly."""
        return max((t.fidelity for t in self.members.values()), key=lambda f: f.max_error)

    def __repr__(self) -> str:
        lines = [f"MembersTracer({self._made.name}, {self.n_rows:,} training rows)"]
        for name, tracer in self.members.items():
            rows = len(self.member_rows[name])
            lines.append(
                f"  {name}: {tracer.engine.source.name}, {rows:,} rows; {tracer.fidelity.verdict}"
            )
        if self.held:
            lines.append(f"  held as they are: {', '.join(self.held)}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{repr(self).replace('<', '&lt;')}</pre>"

    # ---- influence ----

    def influence(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        method: LeafInfluence | StructureInfluence | None = None,
        of: Of = "loss",
        reduce: Reduce = None,
        rows: Any = None,
        output: int | None = None,
    ) -> Influence:
        """Influence of the training rows on predictions of the whole model.

        The loss is the log loss of its probabilities, or half the squared error of its number;
        "prediction" is the probability of a class (`output`, or the one predicted; of two, the
        second), or the number. A row acts through all members that were trained on it.
        """
        method = _derivatives(method)
        X_test, y_test = _test_rows(X_test, y_test)
        X = self._made.transform(X_test)
        if self._made.combined is None:  # one member, which is asked itself
            (name,) = self.members
            found = self.members[name].influence(
                X, y_test, method=method, of=of, reduce=reduce, output=output
            )
            values = self._spread(name, found.values)
            columns = found.test_index if reduce else row_index(X_test, inputs.row_count(X_test))
            return self._influence(
                values, columns, found.of, method, rows, X_test, found.lower_is_better
            )
        slopes = self._combination.slopes(X, y_test, of, output)
        values = np.zeros((self.n_rows, 1 if reduce else inputs.row_count(X_test)))
        for name, slope in slopes.items():
            part = self.members[name].influence(X, of=slope, reduce=reduce, method=method)
            values += self._spread(name, part.values)
        columns = np.array([reduce]) if reduce else row_index(X_test, values.shape[1])
        better = True if of == "loss" else None
        return self._influence(values, columns, str(of), method, rows, X_test, better)

    def by_member(
        self,
        X_test: Any,
        y_test: Any = None,
        *,
        method: LeafInfluence | StructureInfluence | None = None,
        of: Of = "loss",
        rows: Any = None,
        output: int | None = None,
    ) -> Influence:
        """Influence of the training rows on each member by itself: a column a member.

        A column is about the mean of the member's own loss (or raw prediction, or a goal) over the
        test rows. Rows that a member was not trained on have zero there.
        """
        method = _derivatives(method)
        X_test, y_test = _test_rows(X_test, y_test)
        X = self._made.transform(X_test)
        columns = []
        found: Influence | None = None
        for name, tracer in self.members.items():
            y = None if y_test is None else self._combination.labels_for(name, y_test)
            reduce: Reduce = "mean" if isinstance(of, (str, np.ndarray)) else None
            found = tracer.influence(X, y, of=of, reduce=reduce, output=output, method=method)
            columns.append(self._spread(name, found.values)[:, 0])
        assert found is not None
        names = np.array(list(self.members), dtype=object)
        values = np.column_stack(columns)
        return self._influence(values, names, found.of, method, rows, None, found.lower_is_better)

    def out_of_fold(
        self, *, method: LeafInfluence | StructureInfluence | None = None, rows: Any = None
    ) -> Influence:
        """Influence of the training rows on the cross-validated loss, in one column.

        That is the mean of the members' own losses of the rows that they were not trained on.
        """
        method = _derivatives(method)
        values = np.zeros((self.n_rows, 1))
        count = 0
        for name, tracer in self.members.items():
            held = np.setdiff1d(np.arange(self.n_rows), self.member_rows[name])
            if not len(held):
                continue
            X = self._made.transform(inputs.take_rows(self.X_train, held))
            y = self._combination.labels_for(name, self.y_train[held])
            part = tracer.influence(X, y, reduce="sum", method=method)
            values += self._spread(name, part.values)
            count += len(held)
        if not count:
            raise InvalidInput(
                "every member was trained on all rows, so none is out of its fold; use influence() with test rows."
            )
        columns = np.array(["out of fold"])
        return self._influence(values / count, columns, "loss", method, rows, None, True)

    def top(
        self,
        X_test: Any,
        y_test: Any = None,
        k: int = 10,
        *,
        effect: str | None = None,
        **asked: Any,
    ) -> Any:
        """The table of `influence(...).top(k)`."""
        return self.influence(X_test, y_test, **asked).top(k, effect)

    def _spread(self, name: str, values: Any) -> F64:
        """(n, columns) values of a member's rows, at the rows of the whole training set."""
        spread = np.zeros((self.n_rows, values.shape[1]))
        np.add.at(spread, self.member_rows[name], values)
        return spread

    def _influence(
        self,
        values: F64,
        columns: np.ndarray,
        of: str,
        method: Any,
        rows: Any,
        X_test: Any,
        lower_is_better: bool | None,
    ) -> Influence:
        index = row_numbers(rows, self.n_rows, labels=self.row_labels)
        some = None if rows is None else index
        reduced = X_test is None or len(columns) != inputs.row_count(X_test)
        tables = SourceTables(
            self.X_train, some, None if reduced else X_test, reduced, self.table_kind
        )
        return Influence(
            values[index],
            self.train_index[index],
            columns,
            of,
            f"{method!r}, {len(self.members)} member" + ("s" if len(self.members) > 1 else ""),
            weight=self.sample_weight[index],
            lower_is_better=lower_is_better,
            tables=tables,
            positions=index,
        )

    # ---- other training sets ----

    def refit(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, without: Any = None, *, y: Any = None, sample_weight: Any = None, added: Any = None
    ) -> AlteredMembers:
        """The model with the trees of all members fixed, and their leaf values refitted: see `Tracer.refit`."""
        return self._altered("refit", without, y, sample_weight, added)

    def retrain(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, without: Any = None, *, y: Any = None, sample_weight: Any = None, added: Any = None
    ) -> AlteredMembers:
        """The model with all members trained again, and what combines them held as it is."""
        return self._altered("retrain", without, y, sample_weight, added)

    def _altered(self, how: str, without: Any, y: Any, weight: Any, added: Any) -> AlteredMembers:
        gone = np.zeros(0, np.intp)
        if without is not None:
            gone = row_numbers(without, self.n_rows, "without", labels=self.row_labels)
        y = aligned(y, self.row_labels, "y", "X_train")
        weight = aligned(weight, self.row_labels, "sample_weight", "X_train")
        changes: Mapping[str, Any] = {
            "y": None if y is None else inputs.vector(y, "y", self.n_rows),
            "sample_weight": None if weight is None else inputs.weights(weight, self.n_rows),
            "added": added,
        }
        return altered_members(how, self._combination, self.member_rows, gone, changes)


def _derivatives(method: Any) -> Any:
    """Check that a method gives derivatives, which add up over members."""
    method = LeafInfluence() if method is None else method
    if not isinstance(method, (LeafInfluence, StructureInfluence)):
        raise InvalidInput(
            f"method is {method!r}; for a model made of others it can be LeafInfluence() or StructureInfluence(), "
            "whose effects add up over members. Use refit(without=...) or retrain(without=...) for the others."
        )
    return method


def _test_rows(X: Any, y: Any) -> tuple[Any, Any]:
    """Test rows as a table, and their labels in their order."""
    X = inputs.as_table(X)
    inputs.needs_rows(X)
    y = aligned(y, labels_of(X), "y_test", "X_test")
    return X, None if y is None else inputs.vector(y, "y_test", inputs.row_count(X))
