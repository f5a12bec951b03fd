"""What was repaired stays repaired: a version that is built anew counts by the same rules, without what came too late.
Where somebody has had that counted in the version before, it is counted in the new one too: before both are compared,
and again before the new one serves. A repair finds nothing to do twice.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Carrier:
    """Takes repairs from one version of a view to another."""

    log: Log
    catalog: Catalog
    followers: Followers
    clock: Clock
    revisions: Revisions

    def carry(self, deployment: Deployment) -> int:
        """From the versions before a deployment to those it made; how many rows were revised. What cannot be repaired
        is left for whoever looks at the comparison."""
        return sum(self._carry(item.name, item.before, item.number) for item in deployment.items)

    def carry_back(self, deployment: Deployment) -> int:
        """The other way, before a rollback: what was repaired since the switch."""
        return sum(self._carry(item.name, item.number, item.before) for item in deployment.items)

    def _carry(self, name: str, source: int, target: int) -> int:
        view = self.catalog.view(name)
        if view is None or NONE in (source, target) or source == target:
            return 0
        between = self.revisions.windows(name, source)
        if between is None:
            return 0
        try:
            subject = view_subject(self.catalog, view, target)
            if is_layered(self.catalog, subject.source):
                return 0
            store = self.followers.version(name, target)
            found = repair(self.log, subject, store, self.clock, self.revisions, between)
        except Exception as error:
            unknown = not isinstance(error, HeadraceError)
            logger.warning("`%s` v%d is not repaired: %s", display_name(name), target, error, exc_info=unknown)
            return 0
        logger.info("`%s` v%d: %d rows repaired", display_name(name), target, len(found.revised))
        return len(found.revised)
