"""The frontier of two costs, against its definition."""

from hypothesis import given
from hypothesis import strategies as st

from forerun.core.result.objective import pareto

COST = st.tuples(st.integers(0, 6), st.integers(0, 6))


@given(st.lists(COST))
def test_nobody_on_the_frontier_is_beaten_and_everybody_else_is(costs: list[tuple[int, int]]) -> None:
    def beaten(one: tuple[int, int]) -> bool:
        return any(other[0] <= one[0] and other[1] <= one[1] and other != one for other in costs)

    unbeaten = sorted(cost for cost in costs if not beaten(cost))
    assert pareto(costs, lambda cost: cost) == unbeaten
    assert pareto(costs, lambda cost: cost, ties=False) == sorted(set(unbeaten))
