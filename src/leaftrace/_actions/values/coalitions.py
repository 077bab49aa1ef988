"""Shapley values of a few players, exact or from random orders.

With v(S) the cost of the coalition S of K players, of which lower is better, player k is worth

    phi_k = sum over S without k of |S|! (K - |S| - 1)! / K!  (v(S) - v(S and k))

the mean, over all orders in which players can come, of what the cost falls by as k joins. In every
order the players share v(nobody) - v(all), so that values add up to it, and so do their averages
over some orders alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import factorial

import numpy as np

from ..._data.arrays import F64

# Cost of a coalition, which is a number with a bit for each player.
Cost = Callable[[int], float]


def shapley_of_costs(cost: F64, players: int) -> F64:
    """(K,) exact values from the costs (2^K,) of all coalitions."""
    coalition = np.arange(1 << players)
    size = np.array([int(c).bit_count() for c in coalition])
    weight = np.array(
        [factorial(s) * factorial(players - s - 1) / factorial(players) for s in range(players)]
    )
    values = np.empty(players)
    for k in range(players):
        without = coalition[(coalition >> k & 1) == 0]
        falls = cost[without] - cost[without | 1 << k]
        values[k] = weight[size[without]] @ falls
    return values


def order_falls(cost: Cost, order: np.ndarray) -> F64:
    """(K,) what the cost falls by as each player joins, in this order (K,)."""
    falls = np.empty(len(order))
    coalition = 0
    before = cost(coalition)
    for player in order.tolist():
        coalition |= 1 << player
        after = cost(coalition)
        falls[player] = before - after
        before = after
    return falls


def sampled_falls(
    cost: Cost, players: int, pairs: int, random: np.random.Generator
) -> Iterator[F64]:
    """(K,) for each pair of random orders: the mean over an order and its reverse.

    A player that comes early in one comes late in the other, which makes the means vary less.
    """
    for _ in range(pairs):
        order = random.permutation(players)
        yield (order_falls(cost, order) + order_falls(cost, order[::-1])) / 2
