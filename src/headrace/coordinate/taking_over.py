"""Since when a version is what its name means."""

from __future__ import annotations

from headrace.coordinate.base import CATALOG_TOPIC
from headrace.coordinate.catalog import Catalog
from headrace.log.base import ARRIVAL, Log
from headrace.sql.source import Source
from headrace.store.arrivals import has_arrivals


def took_over(log: Log, catalog: Catalog, source: Source) -> int:
    """The arrival number at which this version of a table first took over from another. 0 if there was no other, and
    where there are no such numbers (Kafka)."""
    found = [version for version in catalog.versions(source.name) if version.source.topic == source.topic]
    served = found[0].served if found else ()
    if not served or not served[0][0] or not has_arrivals(log):
        return 0
    # The switch is a record of the catalog, written a moment after the time it names.
    end = log.snapshot().ends[CATALOG_TOPIC][0].end
    offset = log.offset_at_time(CATALOG_TOPIC, 0, served[0][0])
    for records in log.read(CATALOG_TOPIC, 0, offset, min(offset + 1, end), [ARRIVAL]):
        arrival: int = records.batch.column(ARRIVAL)[0].as_py()
        return arrival
    return 0
