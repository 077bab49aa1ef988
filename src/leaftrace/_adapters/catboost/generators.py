"""CatBoost's random numbers: two PCG32 streams side by side, which a third stream seeds."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..._data.arrays import F64, Ints

U64 = NDArray[np.uint64]
_MULTIPLIER = np.uint64(6364136223846793005)
_ONE = np.uint64(1)
_HALF = np.uint64(32)
_WORD = np.uint64(0xFFFFFFFF)
_SEQUENCE = np.uint64(0x7FFFFFFF)
_LARGEST = 9007199254740991.0  # 2^53 - 1


def draws(seed: int, count: int) -> U64:
    """Return the first ``count`` numbers of the generator with this seed."""
    generator = Generators(np.array([seed], np.uint64))
    return generator.numbers(np.zeros(count, np.intp), np.arange(count))


def fractions(numbers: U64) -> F64:
    """Return numbers of generators as numbers from 0 to 1, both included."""
    return (numbers >> np.uint64(11)).astype(np.float64) / _LARGEST


class Generators:
    """Independent generators, one for each seed (G,)."""

    def __init__(self, seeds: U64) -> None:
        x = seeds.copy()
        words = []
        for _ in range(6):
            x = x * _MULTIPLIER + _ONE
            words.append(_words(x))
        high = words[2]
        low = words[5]
        low = np.where((high & _SEQUENCE) == (low & _SEQUENCE), ~low & _WORD, low)
        self._states = words[0] | words[1] << _HALF, words[3] | words[4] << _HALF
        self._steps = high << _ONE | _ONE, low << _ONE | _ONE

    def numbers(self, which: Ints, place: Ints) -> U64:
        """Return the number at a place (N,), from 0, of the generator ``which`` (N,)."""
        count = int(place.max(initial=-1)) + 1
        powers = np.cumprod(np.full(count, _MULTIPLIER))  # modulo 2^64, like everything here
        sums = np.cumsum(np.concatenate([[_ONE], powers[:-1]]), dtype=np.uint64)[:count]
        high, low = (
            _words(powers[place] * state[which] + sums[place] * step[which])
            for state, step in zip(self._states, self._steps, strict=True)
        )
        return high << _HALF | low


def _words(x: U64) -> U64:
    """Return the 32-bit outputs of PCG32 streams in these states."""
    turn = x >> np.uint64(59)
    word = (x >> np.uint64(18) ^ x) >> np.uint64(27) & _WORD
    return (word >> turn | word << (_HALF - turn & np.uint64(31))) & _WORD


def normal_numbers(seeds: U64, count: int) -> F64:
    """Return ``count`` standard normal numbers of the generators with these seeds: (G, count).

    Two numbers are a point of a square, which is used if it lies in the circle and drawn again
    otherwise."""
    G = len(seeds)
    generators = Generators(seeds)
    tries = 2 * count + 8
    out = np.empty((G, count))
    while True:
        which = np.repeat(np.arange(G), 2 * tries)
        place = np.tile(np.arange(2 * tries), G)
        points = 2 * fractions(generators.numbers(which, place)).reshape(G, tries, 2) - 1
        square = (points**2).sum(axis=2)
        used = (square > 0) & (square <= 1)
        if np.all(used.sum(axis=1) >= count):
            break
        tries *= 2
    nth = np.cumsum(used, axis=1)
    g, k = np.nonzero(used & (nth <= count))
    q = square[g, k]
    out[g, nth[g, k] - 1] = points[g, k, 0] * np.sqrt(-2 * np.log(q) / q)
    return out
