"""Collectors that are the client: they connect to a source, and go on where they were after whatever happened.

Where a puller has got to, its *cursor*, is written with the events in one transaction (`collect.outlet`): killed at any
moment, it goes on exactly there.
"""
