"""One call: the options that all commands share, the model, the training rows, the tracer."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from typing import Annotated, Any, get_type_hints

import numpy as np
import pandas as pd
import typer

from .. import __version__
from .._data.errors import InvalidInput
from .._tracer.tracer import Tracer
from . import INTERRUPTED
from .columns import Labels, Types, features, need, target_of
from .models import Told, read_model
from .output import Output, check_output
from .tables import File, open_table

_TABLES = "CSV, Parquet, Arrow or Feather, by its ending"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What every command takes."""

    model: Annotated[
        str,
        typer.Argument(help="File of a CatBoost, XGBoost or LightGBM model.", show_default=False),
    ]
    train: Annotated[
        str,
        typer.Option(help=f"The table the model was trained on: {_TABLES}.", show_default=False),
    ]
    target: Annotated[str, typer.Option(help="Column of labels.", show_default=False)]
    weight: Annotated[str | None, typer.Option(help="Column of training weights.")] = None
    baseline: Annotated[
        str | None, typer.Option(help="Column(s) of scores given before the first tree.")
    ] = None
    id: Annotated[str | None, typer.Option(help="Column that names the rows in results.")] = None
    drop: Annotated[str, typer.Option(help="Columns not to use: a,b.")] = ""
    categorical: Annotated[
        str, typer.Option(help="Columns of categories, where the model does not say: a,b.")
    ] = ""
    missing: Annotated[
        str | None, typer.Option(help="Text that stood for missing categories (CatBoost).")
    ] = None
    classes: Annotated[
        str, typer.Option(help="Classes in order, if the model knows them by number: no,yes.")
    ] = ""
    param: Annotated[
        list[str] | None, typer.Option(help="A training parameter the file lacks: max_depth=4.")
    ] = None
    fidelity: Annotated[str, typer.Option(help="If the replay is not exact: raise or warn.")] = (
        "raise"
    )
    jobs: Annotated[int | None, typer.Option(help="Threads; all cores by default.")] = None
    allow_pickle: Annotated[
        bool, typer.Option("--allow-pickle", help="Read pickles, which run code in them.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False
    debug: Annotated[bool, typer.Option("--debug", help="Show where an error came from.")] = False


def command(app: typer.Typer) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Register a function (job, *, own options) -> exit code as a command that also takes `Options`."""

    def register(body: Callable[..., int]) -> Callable[..., int]:
        own = list(inspect.signature(body).parameters.values())[1:]
        hints = get_type_hints(body, include_extras=True)
        shared = get_type_hints(Options, include_extras=True)

        def called(**given: Any) -> int:
            job = Job(
                Options(**{f.name: given.pop(f.name) for f in fields(Options)}), body.__name__
            )
            try:
                return job.out.finish(body(job, **given))
            except KeyboardInterrupt:
                job.out.say("Interrupted before there was an answer; no file was written.")
                return INTERRUPTED

        kind = inspect.Parameter.KEYWORD_ONLY
        empty = inspect.Parameter.empty
        defaults = {f.name: empty if f.default is MISSING else f.default for f in fields(Options)}
        plain = [
            inspect.Parameter(n, kind, default=d, annotation=shared[n]) for n, d in defaults.items()
        ]
        more = [p.replace(kind=kind, annotation=hints[p.name]) for p in own]
        place = 3  # the required ones, then what is the command's own
        parameters = [*plain[:place], *more, *plain[place:]]
        setattr(called, "__signature__", inspect.Signature(parameters))  # noqa: B010
        called.__annotations__ = {p.name: p.annotation for p in parameters}
        called.__doc__ = body.__doc__
        app.command(body.__name__)(called)
        return body

    return register


@dataclass(frozen=True)
class Rows:
    """A table as the model takes it."""

    X: Any  # a DataFrame
    y: np.ndarray | None  # labels as the model knows them
    weight: np.ndarray | None
    baseline: np.ndarray | None
    extra: dict[str, Any]  # other columns that were asked for


class Job:
    def __init__(self, options: Options, name: str) -> None:
        self.options = options
        self.out = Output(options.as_json)
        self.out.document |= {"leaftrace": __version__, "command": name}
        if options.fidelity not in ("raise", "warn"):
            raise InvalidInput(f"--fidelity is '{options.fidelity}'; it can be raise or warn.")
        self.labels = Labels()

    @cached_property
    def told(self) -> Told:
        return read_model(self.options.model, self.options.allow_pickle)

    @cached_property
    def _types(self) -> Types:
        o = self.options
        return Types(self.told, split(o.categorical), o.missing)

    @cached_property
    def params(self) -> dict[str, Any]:
        pairs = [p.partition("=") for p in self.options.param or []]
        if bad := [p[0] for p in pairs if not p[1]]:
            raise InvalidInput(f"--param {bad[0]} has no value; write it as --param name=value.")
        return {name: _value(text) for name, _, text in pairs}

    def writes(self, path: str | None, *more: str | None, device: bool = False) -> None:
        check_output(path, [self.options.model, self.options.train, *more], device)

    def open(
        self, path: str, *, labelled: bool = True, extra: Sequence[str | None] = ()
    ) -> tuple[File, list[str]]:
        """Check a table's columns: it, and the model's columns in it."""
        o = self.options
        file = open_table(path)
        need(file, split(o.baseline or ""), "--baseline")
        need(file, [o.id], "--id")
        need(file, split(o.categorical), "--categorical")
        need(file, extra, "this")
        if labelled:
            need(file, [o.target], "--target")
        others = [n for n in (o.weight, o.id, *split(o.baseline or ""), *extra) if n is not None]
        inside = set(extra) & set(self.told.columns or ())
        return file, features(
            file, self.told, o.target, [n for n in others if n not in inside], split(o.drop)
        )

    def read(
        self,
        opened: tuple[File, list[str]],
        *,
        training: bool = False,
        labelled: bool = True,
        extra: Any = (),
    ) -> Rows:
        o = self.options
        (file, names) = opened
        weight = o.weight if training else None
        baseline = split(o.baseline or "")
        others = [o.target if labelled else None, *baseline, *extra, weight, o.id]
        named = list(dict.fromkeys([*names, *(n for n in others if n is not None)]))
        with self.out.step(f"reading {os.path.basename(file.path)}", clock=file.at_once):
            frame = file.read(named)
            if o.id is not None:
                frame.index = pd.Index(frame[o.id])
            features = set(names)  # what is left of the frame; large tables are not copied
            aside = {
                n: frame[n] if n in features else frame.pop(n)
                for n in named
                if n not in features or n in extra
            }
            y = target_of(aside[o.target], file.path) if labelled else None
            if training and y is not None:
                self.labels = Labels.of(y, self.told, split(o.classes))
                if self.labels.names is not None:
                    shown = ", ".join(
                        f"{name} is {i}" for i, name in enumerate(self.labels.names.tolist())
                    )
                    self.out.say(f"the model knows its classes by number: {shown}")
            y = None if y is None else self.labels.codes(y, file.path)
            X = self._types.apply(frame, file.path)
        scores = (
            np.asarray(pd.concat([aside[b] for b in baseline], axis=1), float) if baseline else None
        )
        return Rows(X, y, None if weight is None else np.asarray(aside[weight]), scores, aside)

    def trace(
        self, opened: tuple[File, list[str]], *, fidelity: str | None = None, extra: Any = ()
    ) -> tuple[Tracer, Rows]:
        """Read the training rows and replay the training."""
        o = self.options
        need(opened[0], [o.weight], "--weight")
        rows = self.read(opened, training=True, extra=extra)
        with self.out.step("replaying the training"):
            given: Any = {
                "fidelity": fidelity or o.fidelity,
                "n_jobs": o.jobs,
                "params": self.params,
            }
            tracer = Tracer(
                self.told.model, rows.X, rows.y, rows.weight, baseline=rows.baseline, **given
            )
        f = tracer.fidelity
        e = tracer.engine.ensemble
        self.out.document |= {
            "model": {"file": o.model, "name": tracer.engine.source.name, "loss": e.loss.name, "steps": e.n_steps,
                      "training_rows": e.n_rows, "classes": self._classes(tracer)},
            "fidelity": {"exact": f.exact, "max_error": f.max_error, "verdict": f.verdict},
        }  # fmt: skip
        return tracer, rows

    def _classes(self, tracer: Tracer) -> Any:
        return tracer.classes if self.labels.names is None else self.labels.names

    def no_baseline(self, what: str) -> None:
        if self.options.baseline is not None:
            raise InvalidInput(
                f"{what} cannot give test rows a baseline; `explain` without --html and `check` can."
            )


def split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def row_list(text: str, n: int, of: str) -> list[int]:
    """Positions below n from 0,5-9."""
    rows: list[int] = []
    for part in split(text):
        low, dash, high = part.partition("-")
        if not low.isdecimal() or (dash and not high.isdecimal()):
            raise InvalidInput(
                f"'{part}' is not a row or a range of rows; write positions such as 0,5-9."
            )
        if int(high if dash else low) >= n:
            raise InvalidInput(
                f"there is no row {part}: the {of} go from 0 to {n - 1}, counted in the table's order."
            )
        rows += range(int(low), int(high if dash else low) + 1)
    if not rows:
        raise InvalidInput("no rows were given; write positions such as 0,5-9.")
    return list(dict.fromkeys(rows))


def _value(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
