"""Parts of actions that train many members: one member of each size of bag is trained and asked."""

from __future__ import annotations

from typing import Any

from ..bags import Bag
from ..stability.arguments import make_members
from ..stability.member_influence import MemberInfluence, member_influence
from ..stability.members import Member
from ..values.action import FEWEST, MOST, make_bag_models
from .parts import Course, pass_bytes, without_limit


def of_ensemble_influence(given: Any) -> Course:
    """The parts of `ensemble_influence`."""
    queries, bags = make_members(**without_limit(given))
    course = Course(0)
    sizes = [int(bag.sum()) for bag in bags]
    # Of a share that is no whole number of rows, some bags have one row more.
    for size in [size for size in dict.fromkeys(sizes) if size - 1 not in sizes]:
        number = sizes.index(size)
        count = sum(size <= other <= size + 1 for other in sizes)

        def member(number: int = number) -> tuple[Member, MemberInfluence]:
            trained = queries.training.train(given.seed + number, bags[number])
            return trained, member_influence(queries.checked(trained), trained)

        done = course.add(f"members of {size:,} rows", count, work=member)
        assert done is not None
        values = done[1].own.values
        # Two matrices of the size of the answer for each kind of values (of members and, with refits, of the refits of
        # one), one member's values, and a number a member and row.
        kinds = 2 if queries.score_left_out else 1
        kinds += 2 if queries.refits is not False else 0
        answer = len(bags[0]) * values.shape[1] * values.itemsize
        course.bytes = max(course.bytes, (1 + 2 * kinds) * answer + len(bags) * len(bags[0]) * 8)
    return course


def of_data_values(given: Any) -> Course:
    """The parts of `data_values`; the threads of the tracer share its members."""
    tracer = given.tracer
    models, bags, sizes = make_bag_models(**without_limit(given))
    kinds = len(sizes)
    fewest = max(FEWEST, 4 * kinds) if given.members is None else given.members
    most = MOST if given.members is None else given.members
    threads = tracer.engine.work.n_jobs
    course = Course(pass_bytes(tracer.engine) + most * tracer.n_rows * 8)
    drawn = [next(bags) for _ in range(kinds * threads)]
    for place, size in enumerate(sizes):
        side_by_side = drawn[place::kinds]

        def rounds(members: int, place: int = place) -> int:
            """How many times `threads` members of this size are trained."""
            return -(-len(range(place, members, kinds)) // threads)

        def train(bags: list[Bag] = side_by_side) -> list[Any]:
            return list(tracer.engine.work.map(models.member, bags))

        what = f"times {threads} members of {size:,} rows side by side"
        if threads == 1:
            what = f"members of {size:,} rows"
        course.add(what, rounds(fewest), rounds(most), work=train)
    return course
