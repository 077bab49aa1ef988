"""CatBoost's random numbers, and the pairs of YetiRank, against transcriptions number by number."""

import numpy as np
import pytest

from leaftrace._adapters.catboost.generators import Generators, draws, fractions, normal_numbers
from leaftrace._adapters.catboost.yeti import YetiPairs, YetiSettings

MASK = 2**64 - 1


class PCG32:
    """One stream of 32-bit numbers."""

    def __init__(self, state, sequence):
        self.x = state
        self.step = (sequence << 1 | 1) & MASK

    def word(self):
        self.x = (self.x * 6364136223846793005 + self.step) & MASK
        shifted = ((self.x >> 18 ^ self.x) >> 27) & 0xFFFFFFFF
        turn = self.x >> 59
        return (shifted >> turn | shifted << (-turn & 31)) & 0xFFFFFFFF


class Generator:
    """Two streams, seeded by a third."""

    def __init__(self, seed):
        seeds = PCG32(int(seed), 0)
        words = [seeds.word() for _ in range(6)]
        high = words[2]
        low = words[5]
        if high & 0x7FFFFFFF == low & 0x7FFFFFFF:
            low = ~low & 0xFFFFFFFF
        self.high = PCG32(words[0] | words[1] << 32, high)
        self.low = PCG32(words[3] | words[4] << 32, low)

    def number(self):
        return self.high.word() << 32 | self.low.word()

    def fraction(self):
        return (self.number() >> 11) / (2**53 - 1)

    def normal(self):
        while True:
            x = 2 * self.fraction() - 1
            y = 2 * self.fraction() - 1
            q = x * x + y * y
            if 0 < q <= 1:
                return x * np.sqrt(-2 * np.log(q) / q)


@pytest.mark.parametrize("seed", [0, 5, 2**63 + 11])
def test_numbers(seed):
    generator = Generator(seed)
    expected = np.array([generator.number() for _ in range(40)], np.uint64)
    np.testing.assert_array_equal(draws(seed, 40), expected)


def test_normal_numbers():
    seeds = draws(3, 30)
    expected = []
    for seed in seeds:
        generator = Generator(seed)
        expected.append([generator.normal() for _ in range(6)])
    np.testing.assert_allclose(normal_numbers(seeds, 6), expected, rtol=1e-12)


def test_pairs_of_yetirank():
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 150)  # more queries than blocks
    number = np.repeat(np.arange(150), sizes)
    y = rng.integers(0, 3, len(number)).astype(float)
    A = rng.normal(size=len(number))
    pairs = YetiPairs(YetiSettings(3, 0.8, 0, 4, 1.0, 1, 6), y, number)
    seed = draws(9, 1)
    drawn = pairs.step(seed, A)
    blocks = Generator(seed[0])
    expected = {}
    start = 0
    for first in range(0, 150, 2):
        in_block = Generator(blocks.number())
        for size in sizes[first : first + 2]:
            generator = Generator(in_block.number())
            for _ in range(3):
                u = np.float32([generator.fraction() for _ in range(size)])
                key = np.exp(A[start : start + size]) * (u / (np.float32(1.000001) - u))
                order = start + np.argsort(-key, kind="stable")
                for k in range(size - 1):
                    a, b = sorted(order[k : k + 2], key=lambda row: -y[row])
                    if y[a] > y[b]:
                        weight = 0.15 * 0.8**k * (y[a] - y[b]) / 3
                        expected[a, b] = expected.get((a, b), 0.0) + weight
            start += size
    found = dict(
        zip(zip(drawn.a.tolist(), drawn.b.tolist(), strict=True), drawn.weight, strict=True)
    )
    assert set(found) == set(expected)
    for pair, weight in expected.items():
        assert found[pair] == pytest.approx(weight, rel=1e-6)  # CatBoost adds in float32


def test_places_of_several_generators():
    seeds = draws(1, 3)
    found = Generators(seeds).numbers(np.array([2, 0, 2]), np.array([4, 0, 1]))
    one = [draws(int(seed), 5) for seed in seeds]
    np.testing.assert_array_equal(found, [one[2][4], one[0][0], one[2][1]])
    assert fractions(np.array([0, 2**64 - 1], np.uint64)).tolist() == [0.0, 1.0]
