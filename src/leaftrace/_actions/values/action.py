"""Values of training rows: derivatives at weight zero, averaged over models of small bags.

A model is trained on each bag S_k of some of the rows. Its backward pass gives the derivative of the
mean validation loss L_k in the weight of every row left out, at weight zero. With w_i the weight
that row i has, and K_s the bags of size s,

    value_i = mean over the sizes s of  mean over k in K_s, i not in S_k of  -w_i dL_k / dw_i

This is a semivalue: the mean, over training sets drawn by size, of what row i adds to them. Its
distribution of sizes is uniform over those of `bag`, where Shapley's is uniform over all from 0 to
n - 1 and Banzhaf's is binomial around n / 2. What row i adds is taken to first order: its derivative
at weight zero, with the trees that the bag gives, instead of L(S) - L(S + i) by two trainings. Rows
of a bag are not valued by it: see docs/howto/values.md for what they would add.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..._data import inputs
from ..._data.arrays import F64, Ints
from ..._data.errors import InvalidInput, LeaftraceError, UnsupportedModel
from ..._data.grouping import SourceTables
from ..._data.progress import progress
from ..._data.time_limit import TimeLimit
from ..._data.wording import words
from ..._tracer.influence import Influence
from ..._tracer.tracer import Tracer
from ..bags import Bag
from ..common import Interruptible, check_tracer, stopping_note
from ..effects import unit_of
from ..ranking_method import RankingMethod, ranking_method
from ..stability.moments import summary
from .averages import reliability, strata_of
from .members import BagModels, Member, bags_in_turn
from .result import DataValues

CHANGE_IS = "first order in small bags"
STABLE = 0.9  # the reliability from which ranks are called stable
FEW_LEAVES = 3  # in the mean over trees
FEWEST = 20  # members before ranks can be called stable
_ROUND = 10  # members between two looks at them
MOST = 200  # members, where ranks do not become stable
_ATTEMPTS = 5  # models of a size of bags, of which one at least must be traced


def data_values(
    tracer: Tracer,
    X_val: Any,
    y_val: Any = None,
    *,
    members: int | None = 60,
    bag: float | Sequence[float] = 0.1,
    method: RankingMethod | None = None,
    seed: int = 0,
    time_limit: float | None = None,
) -> DataValues:
    """Values of the training rows to a validation set, averaged over small bags.

    The influence of a row in the model of all rows says little about sets of rows: neighbours make
    up for any one of them. In a small training set they do not. So the model is trained again on
    many small bags, each with its own parameters, and each tells how far every row left out would
    lower the mean validation loss, to first order. Positive is valuable. That need not mean right: a
    model of few rows is too sure of itself, and a wrong label can temper it. `label_noise` finds
    wrong labels.

    >>> found = lt.data_values(tracer, X_val, y_val)                       # doctest: +SKIP
    >>> found.top(20), found.curve(X_hold, y_hold)                         # doctest: +SKIP

    ``X_val, y_val``  labelled rows that were not trained on: those that the model should get right
    ``members``   number of bags. None: as many as it takes until ranks are stable, from 20 to 200.
                  They are if their `reliability` is 0.9, that is, if the values by as many other
                  bags can be expected to have this rank correlation with them
    ``bag``       share of the rows in a bag, or several: then each counts alike, and as many bags
                  of each are drawn. Many sizes down to few rows make it resemble Shapley's value
    ``method``    LeafInfluence(), which None stands for, or StructureInfluence()
    ``seed``      seed of the bags; the models have that of the tracer's model
    ``time_limit``  seconds after which no more model is trained, once every row has a value

    Bags are drawn without replacement from the rows that have a weight, each row as often as any
    other. Classes keep their shares, and a bag without any row of a class gets one in the place of
    another row. Models of bags have the parameters, the seed and the number of trees of the
    tracer's, and the steps of a Pipeline before the model stay as they are. A limit such as
    min_data_in_leaf stays, too, so that trees of small bags have few leaves; the advice says so if
    it is very few. Models that cannot be traced, such as those without any split, are left out and
    counted in the advice; if no model of a size of bags can be, that is an error.

    It trains `members` models of a bag each and finds the leaves of all rows in each of them; the
    threads of the tracer share the members. Ctrl-C ends it with the members that are finished, if
    each row has a value by then.
    """
    limit = TimeLimit(time_limit)
    X_val = inputs.as_table(X_val)
    models, bags, sizes = make_bag_models(tracer, X_val, y_val, members, bag, method, seed)
    engine = tracer.engine
    done = _Finished(members, len(sizes), tracer.sample_weight)
    with Interruptible() as run:
        trained = engine.work.map(models.member, limit.items(bags, done.has_all_rows))
        for member in progress(trained, members, "values", "model"):
            done.add(member)
            if done.is_enough():
                break
    if run.interrupted and not done.has_all_rows():
        raise KeyboardInterrupt  # too early: there is no average of all rows yet
    ended = ""
    if run.interrupted:
        ended = f"Interrupted after {len(done.members)} members."
    elif limit.passed and not done.is_enough():
        ended = limit.in_words(len(done.members), members, "members")
    return _result(tracer, X_val, models.method, done, ended)


def make_bag_models(
    tracer: Tracer,
    X_val: Any,
    y_val: Any,
    members: int | None,
    bag: float | Sequence[float],
    method: RankingMethod | None,
    seed: int,
) -> tuple[BagModels, Iterator[Bag], list[int]]:
    """Check the arguments of `data_values`: the models they ask for, their bags and the bags' sizes."""
    check_tracer(tracer)
    tracer.engine.needs_separate_rows("data_values")
    method = ranking_method(method, "data_values")
    _check_smooth(tracer)
    _check_baseline(tracer)
    sizes = _bag_sizes(tracer, bag, members)
    if inputs.row_count(X_val) == 0:
        raise InvalidInput("X_val has no rows; pass at least one validation row.")
    engine = tracer.engine
    engine.queries(X_val, y_val, "loss", "mean", None, None)  # raises for rows that do not fit
    engine.retrainings.confirm_eval_set()
    weight = tracer.sample_weight
    bags = bags_in_turn(_class_codes(tracer), weight, sizes, inputs.random_numbers(seed))
    return BagModels(tracer, X_val, y_val, method), bags, sizes


class _Finished:
    """The members so far.

    ``wanted``  number of members; None: until ranks are stable
    ``kinds``   number of sizes of bags
    ``weight``  (n,) of the rows
    """

    def __init__(self, wanted: int | None, kinds: int, weight: F64) -> None:
        self.wanted = wanted
        self.kinds = kinds
        self.weight = weight
        self.members: list[Member] = []
        self.refused: list[Member] = []

    def add(self, member: Member) -> None:
        """Take a member; raise an error where models of bags cannot be traced at all."""
        if not member.refused:
            self.members.append(member)
            return
        self.refused.append(member)
        tried = [other for other in (*self.members, *self.refused) if other.size == member.size]
        if len(tried) >= _ATTEMPTS and all(other.refused for other in tried):
            raise LeaftraceError(
                f"none of {len(tried)} models of bags of {member.size:,} rows can be traced: "
                f"{member.refused.rstrip('.')}. Use a larger bag, or trace a model whose settings let so few rows be "
                "split (such as a smaller min_data_in_leaf or min_samples_leaf)."
            )

    def is_enough(self) -> bool:
        """Whether no more members are needed."""
        count = len(self.members)
        if self.wanted is not None:
            return count + len(self.refused) >= self.wanted
        if count + len(self.refused) >= MOST:
            return True
        looks = count >= max(FEWEST, 4 * self.kinds) and count % _ROUND == 0
        return looks and self.has_all_rows() and self.reliability() >= STABLE

    def slopes(self) -> F64:
        """(members, n) derivatives; NaN for the rows of a bag."""
        return np.array([member.slopes for member in self.members])

    def values(self) -> F64:
        """(members, n) values; NaN for the rows of a bag."""
        return -self.weight * self.slopes()

    def losses(self) -> F64:
        """(members,) mean validation losses."""
        return np.array([member.loss for member in self.members])

    def sizes(self) -> Ints:
        """(members,) of the bags."""
        return np.array([member.size for member in self.members])

    def reliability(self) -> float:
        """See `averages.reliability`."""
        return reliability(self.values(), self.sizes())

    def has_all_rows(self) -> bool:
        """Whether every row was left out of two bags of every size."""
        sizes = self.sizes()
        if len(np.unique(sizes)) < self.kinds:
            return False
        known = ~np.isnan(self.slopes())
        return all((known[numbers].sum(axis=0) >= 2).all() for numbers in strata_of(sizes))


def _check_smooth(tracer: Tracer) -> None:
    """Raise an error for leaves without derivatives."""
    if why := tracer.engine.ensemble.not_smooth:
        raise UnsupportedModel(
            f"{why}, which jumps as weights move instead of having a derivative; data_values() "
            "needs derivatives. Train with a smooth loss, such as the squared error, or use "
            "ensemble_influence(method=LeafRefit())."
        )


def _check_baseline(tracer: Tracer) -> None:
    """Raise an error if rows were given scores that their table does not have."""
    engine = tracer.engine
    if engine.ensemble.offset is None:
        return
    first = inputs.take_rows(tracer.X_train, np.arange(1))
    if engine.source.rows(first)[1] is None:
        raise InvalidInput(
            "this model was trained with a baseline, which rows left out of a bag would lack; "
            "data_values() needs a model without."
        )


def _bag_sizes(tracer: Tracer, bag: float | Sequence[float], members: int | None) -> list[int]:
    """Numbers of rows in the bags, with the arguments checked."""
    shares = np.array(inputs.shares(bag))
    live = int((tracer.sample_weight > 0).sum())
    if not len(shares) or not np.all((shares > 0) & (shares < 1)):
        raise InvalidInput(
            f"bag is {bag!r}; it is a share of the training rows between 0 and 1, or several."
        )
    sizes = np.unique(np.rint(shares * live).astype(int)).tolist()
    fewest = max(2, _count_classes(tracer))
    if live <= fewest:
        raise InvalidInput(
            f"{live:,} training row(s) have a weight, too few for bags of {fewest:,} that leave some out; "
            "trace a model of more rows."
        )
    if sizes[0] < fewest or sizes[-1] >= live:
        raise InvalidInput(
            f"bag is {bag!r} of {live:,} rows that have a weight, which gives bags of {_sizes_in_words(sizes)}; "
            f"they must have {fewest:,} to {live - 1:,} rows, one of each class: pass another share."
        )
    if members is None:
        return sizes
    left_out = 0.0
    if inputs.is_whole(members):
        left_out = members // len(sizes) * (1 - sizes[-1] / live)
    if left_out < 2:
        raise InvalidInput(
            f"members is {members!r} with {len(sizes)} size(s) of bags; every row must be left out of two bags of "
            "every size at least: ask for more members, or None."
        )
    return sizes


def _count_classes(tracer: Tracer) -> int:
    """Number of classes, which must have two rows each; 0 for models of numbers."""
    codes = _class_codes(tracer)
    if codes is None:
        return 0
    count = np.bincount(codes[tracer.sample_weight > 0], minlength=codes.max() + 1)
    if count.min() < 2:
        label = tracer.y_train[np.flatnonzero(codes == count.argmin())[0]]
        raise InvalidInput(
            f"the class '{label}' has {count.min()} training row(s) with a weight. Every bag needs one, so such a row "
            "is never left out and has no value; leave the class out, or train with more rows of it."
        )
    return len(count)


def _class_codes(tracer: Tracer) -> Ints | None:
    """(n,) number of each row's class; None for models of numbers."""
    if tracer.classes is None:
        return None
    return np.unique(tracer.engine.ensemble.y, return_inverse=True)[1]


def _result(
    tracer: Tracer, X_val: Any, method: RankingMethod, done: _Finished, ended: str
) -> DataValues:
    """The result of the finished members. ``ended``: why there are no more of them; empty if all are."""
    sizes = done.sizes()
    if not done.has_all_rows():
        refused = f" ({done.refused[-1].refused.rstrip('.')})" if done.refused else ""
        raise LeaftraceError(
            f"{len(sizes)} models of bags do not leave out every row twice, and {len(done.refused)} more could not be "
            f"traced{refused}; ask for more members."
        )
    strata = strata_of(sizes)
    by_member = done.values()
    mean_slope = summary(done.slopes(), strata)[0]
    error = summary(by_member, strata)[1]
    in_words = f"{len(sizes)} bags of {_sizes_in_words(sizes)}"
    influence = Influence(
        mean_slope[:, None],
        tracer.train_index,
        np.array(["mean"]),
        method=f"{method!r}, mean of {in_words}",
        weight=done.weight,
        lower_is_better=True,
        tables=SourceTables(tracer.X_train, None, X_val, True, tracer.table_kind),
        change_is=CHANGE_IS,
    )
    unit = unit_of(tracer.engine.criterion)
    found = DataValues(
        title=(
            f"Values of {tracer.n_rows:,} training rows: by how much each lowers the {unit.name} of "
            f"{inputs.row_count(X_val):,} validation rows, by {in_words}"
        ),
        advice="",
        values=influence.data_values(),
        error=error,
        influence=influence,
        by_member=by_member,
        bag_sizes=sizes,
        unit=unit,
        mean_loss=float(summary(done.losses()[:, None], strata)[0][0]),
        reliability=done.reliability(),
        asked=done.wanted,
        interrupted=bool(ended),
        _tracer=tracer,
    )
    return replace(found, advice=_advice(found, done, ended) + stopping_note(tracer))


def _sizes_in_words(sizes: Any) -> str:
    """The sizes of bags: `100 rows`, or `50, 100 and 200 rows`."""
    *others, last = [f"{size:,}" for size in np.unique(sizes)]
    return f"{', '.join(others)} and {last} rows" if others else f"{last} rows"


def _advice(found: DataValues, done: _Finished, ended: str) -> str:
    """Advice from the values and their errors."""
    harmful = int((found.values < -2 * found.error).sum())
    parts = [ended] if ended else []
    if done.refused:
        parts.append(
            f"{len(done.refused)} models of bags were left out, which cannot be traced: "
            f"{done.refused[-1].refused.rstrip('.')}."
        )
    leaves = np.mean([member.leaves for member in done.members])
    if leaves < FEW_LEAVES:
        parts.append(
            f"Trees of so few rows have {leaves:.1f} leaves in the mean, so rows differ by little but their labels: "
            "use a larger bag, or trace a model whose settings let so few rows be split."
        )
    parts.append(
        f"As many other bags would give a ranking with a rank correlation of about {found.reliability:.2f}."
    )
    if not found.reliability >= STABLE:
        parts.append(
            f"Act on the ends of the ranking only, or use more members ({words().until_stable} goes on until it "
            f"is stable, up to {MOST})."
        )
    parts.append(
        f"{harmful:,} rows are worth less than nothing by more than two standard errors. "
        f"{words().order_judged} shows what leaving out the least valuable rows does to other rows."
    )
    return " ".join(parts)
