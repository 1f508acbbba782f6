"""What a log alone shows of a site whose truth is known: its order, limits, tiers and outages."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from forerun.cluster.policies.easy import Easy
from forerun.cluster.policies.orders.fcfs import Fcfs
from forerun.cluster.policies.orders.multifactor import Multifactor
from forerun.cluster.policies.orders.sjf import ShortestRequest
from forerun.site.history import History, read_history
from forerun.site.inference import infer, with_outages
from forerun.site.machine import System
from forerun.site.order import recorded_order
from forerun.site.replay.calibration import UNIDENTIFIED, calibrated, cases_of
from forerun.site.replay.play import one_step
from forerun.site.replay.rules import ruled
from forerun.site.replay.scores import main_case

from .export import write
from .sites import Site, draw

pytestmark = pytest.mark.filterwarnings("error")
JOBS, DAYS = 500, 20
DAY_S = 86_400.0


@pytest.fixture(scope="module")
def site() -> Site:
    return draw(4, JOBS, DAYS)


@pytest.fixture(scope="module")
def log(site: Site, tmp_path_factory: pytest.TempPathFactory) -> History:
    folder: Path = tmp_path_factory.mktemp("site")
    return read_history(write(site, site.attempts(), folder)["sacct.txt"], zone=site.zone)


@pytest.fixture(scope="module")
def order(site: Site, log: History) -> Multifactor:
    found = recorded_order(log, len(site.world.nodes))
    assert found is not None
    assert found[1].about == "order"
    return found[0]


def test_recorded_priorities_show_their_weights(site: Site, order: Multifactor) -> None:
    truth = site.world.priorities
    assert order.weights.age / order.max_age_s == pytest.approx(truth.age / truth.max_age_s, rel=0.01)
    assert order.weights.qos == pytest.approx(truth.qos * 90 / 100, rel=0.01), (
        "what counts is how far two are apart"
    )
    # the account root has a user of its own, who never comes
    users = sum(len(one.users) for one in order.accounts.values())
    listed = sum(len(one.users) for one in truth.accounts.values())
    assert order.weights.fairshare / users == pytest.approx(truth.fairshare / listed, rel=0.01)


def test_priorities_that_no_factor_explains_are_no_order(site: Site, log: History) -> None:
    noise = np.random.default_rng(1).uniform(1, 10_000, len(log))
    assert recorded_order(replace(log, more={**log.more, "priority": noise}), len(site.world.nodes)) is None
    assert recorded_order(replace(log, more={}), len(site.world.nodes)) is None


def test_the_reason_is_what_is_missing(log: History) -> None:
    """Without priorities a log does not show its order, however often jobs are overtaken by their users' own later ones."""
    guesses = Easy(order=Fcfs()), Easy(order=ShortestRequest())
    blind = calibrated(replace(log, more={}), 12 * DAY_S, 6 * DAY_S, off=("limits",), candidates=guesses)
    assert [one.reason for one in blind.refusals] == [UNIDENTIFIED]


def test_rules_explain_what_the_order_does_not(log: History) -> None:
    """With tiers and limits the decisions of the past come out better, and all of it can be written down."""
    system, _ = infer(log, log.last_s)
    assert system.order is not None
    main, easy = main_case(cases_of(log, system)), Easy(order=system.order)
    before = one_step(main, easy, log.complete_from_s, log.last_s)
    ruled_system, policy, findings = ruled(log, system, main.pool, easy, log.complete_from_s, log.last_s)
    assert findings
    after = one_step(main_case(cases_of(log, ruled_system)), policy, log.complete_from_s, log.last_s)
    assert after.f1 > before.f1
    with_rules = msgspec.structs.replace(ruled_system, order=policy.order)
    assert msgspec.convert(msgspec.to_builtins(with_rules), System) == with_rules


def test_nodes_that_failed_and_maintenance_show(site: Site, log: History) -> None:
    system = with_outages(log, infer(log, log.last_s)[0], None, ())
    (away,) = site.world.maintenance
    seen = [one for one in system.windows if one.announced_s < one.from_s]
    assert any(abs(one.to_s - away.to_s - site.origin_s) <= 600 for one in seen)
    failed = [one for one in system.windows if one.announced_s == one.from_s]
    for one in failed:
        at_s = one.from_s - site.origin_s
        assert any(true.node in one.nodes and abs(true.from_s - at_s) <= 1 for true in site.world.failures)
    assert failed
