"""Long work: the latest request wins, and retraining runs beside the page and can be cancelled."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..._data.arrays import F64
from ..._data.errors import LeaftraceError
from ..._data.stopping import Stopped, stoppable_threads
from .basket import Basket
from .effects import RETRAINED, effect, mean_loss_change, row_loss_change
from .session import Session

RETRAINED_CONTROLS = 3
_SECONDS_BETWEEN_LOOKS = 0.1
_MOST_CLIENTS = 64


class Superseded(Exception):
    """Ends work whose answer nobody waits for, since the same page has asked again."""


class Latest:
    """Numbers the requests of each page and kind, so that older ones can end early."""

    def __init__(self) -> None:
        self._numbers: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def begin(self, client: str, kind: str) -> Callable[[], None]:
        """Note a request. The result raises Superseded once there is a newer one of its kind."""
        key = (client, kind)
        with self._lock:
            number = self._numbers.get(key, 0) + 1
            self._numbers[key] = number
            self._numbers.move_to_end(key)
            while len(self._numbers) > _MOST_CLIENTS:
                self._numbers.popitem(last=False)

        def check() -> None:
            if self._numbers.get(key, number) != number:
                raise Superseded

        return check


@dataclass
class RetrainingState:
    """How far a retraining has come.

    ``basket``    the hash of what is retrained
    ``status``    "running", "done", "cancelled" or "failed"
    ``done``      models that are trained, of ``total``: the basket's, then random controls
    ``scores``    (m, K) of the test rows by the basket's model, once it is trained
    ``controls``  (m, K) of the test rows by each control
    """

    basket: str
    total: int
    status: str = "running"
    done: int = 0
    started: float = 0.0
    ended: float | None = None
    error: str = ""
    trees_changed: bool | None = None
    rounds: str = ""
    scores: F64 | None = None
    controls: tuple[F64, ...] = ()


class Retraining:
    """Trains models again on a thread of its own, one basket at a time."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self.state: RetrainingState | None = None

    def start(self, basket: Basket) -> None:
        """Begin with a basket, after ending whatever runs; nothing if it is done or on its way."""
        with self._lock:
            state = self.state
            if state and state.basket == basket.hash and state.status in ("running", "done"):
                return
            self._end()
            self._cancel = threading.Event()
            state = RetrainingState(basket.hash, 1 + RETRAINED_CONTROLS, started=time.monotonic())
            self.state = state
            arguments = (basket, state, self._cancel)
            self._thread = threading.Thread(target=self._run, args=arguments, daemon=True)
            self._thread.start()

    def cancel(self) -> None:
        """End the retraining that runs, if any."""
        with self._lock:
            self._end()

    def _end(self) -> None:
        self._cancel.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self, basket: Basket, state: RetrainingState, cancel: threading.Event) -> None:
        """Train the models and put their scores into the state."""
        try:
            with stoppable_threads(1) as submit:
                for number in range(state.total):
                    future = submit(self._train, basket, number, state)
                    while not future.done():
                        if cancel.wait(_SECONDS_BETWEEN_LOOKS):
                            raise Stopped
                    F = future.result()
                    if number == 0:
                        state.scores = F
                    else:
                        state.controls = (*state.controls, F)
                    state.done += 1
            state.status = "done"
        except Stopped:
            state.status = "cancelled"
        except LeaftraceError as error:
            state.status = "failed"
            state.error = str(error)
        except Exception as error:  # a library's own error about this training set
            state.status = "failed"
            state.error = f"{type(error).__name__}: {error}"
        finally:
            state.ended = time.monotonic()

    def _train(self, basket: Basket, number: int, state: RetrainingState) -> F64:
        """(m, K) scores of the basket's model (0), or of a control."""
        if number:
            seed = [int(basket.hash[:8], 16), number - 1]
            basket = basket.random_like(np.random.default_rng(seed))
        model = basket.retrain()
        if not number:
            state.trees_changed = model.structure_changed
            state.rounds = model.rounds.kind
        return model.scores(self._session.rows.X)

    def answer(self, basket: Basket, position: int) -> dict[str, Any]:
        """The state of a basket's retraining, and its effect as far as it is known."""
        state = self.state
        if state is None or state.basket != basket.hash:
            return {"status": "none"}
        answer: dict[str, Any] = {
            "status": state.status,
            "done": state.done,
            "total": state.total,
            "seconds": (state.ended or time.monotonic()) - state.started,
            "error": state.error,
            "effect": None,
        }
        if state.scores is not None:
            answer["effect"] = self._effect(state, position)
        return answer

    def _effect(self, state: RetrainingState, position: int) -> dict[str, Any]:
        assert state.scores is not None
        session = self._session
        controls = [
            [row_loss_change(session, F[[position]], position), mean_loss_change(session, F)]
            for F in state.controls
        ]
        return {
            "level": RETRAINED,
            "trees_changed": state.trees_changed,
            "rounds": state.rounds,
            "controls": {"row": [c[0] for c in controls], "all": [c[1] for c in controls]},
            **effect(session, state.scores, position),
        }
