"""What was repaired stays repaired: a version that is built anew counts by the same rules, without what came too late.
Where somebody has had that counted in the version before, it is counted in the new one too, before both are compared.
"""

from __future__ import annotations

import logging

from headrace.clock import Clock
from headrace.coordinate.catalog import Catalog
from headrace.coordinate.layers import is_layered
from headrace.coordinate.subjects import view_subject
from headrace.errors import HeadraceError
from headrace.log.base import Log
from headrace.store.follow import Followers
from headrace.store.revisions import Revisions
from headrace.types import display_name
from headrace.views.repair import repair
from headrace.views.versions import NONE, Deployment

logger = logging.getLogger("headrace.deploy")


def carry_repairs(
    log: Log, catalog: Catalog, followers: Followers, clock: Clock, revisions: Revisions, deployment: Deployment
) -> None:
    """Of every view of the deployment. What cannot be repaired is left for whoever looks at the comparison."""
    for item in deployment.items:
        view = catalog.view(item.name)
        if view is None or NONE in (item.before, item.number) or item.before == item.number:
            continue
        done = [one for one in revisions.of_view(item.name, item.before) if one.old != one.new]
        if not done:
            continue
        between = min(one.window_start for one in done), max(one.window_end for one in done)
        try:
            subject = view_subject(catalog, view, item.number)
            if is_layered(catalog, subject.source):
                continue
            store = followers.version(item.name, item.number)
            found = repair(log, subject, store, clock, revisions, between)
        except HeadraceError as error:
            logger.warning("`%s` v%d is not repaired: %s", display_name(item.name), item.number, error)
        else:
            logger.info("`%s` v%d: %d rows repaired", display_name(item.name), item.number, len(found.revised))
