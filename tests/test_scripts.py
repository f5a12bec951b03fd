"""What the project's own scripts make for the tests."""

from __future__ import annotations

import uuid

from scripts.kafka import cluster_id


def test_no_cluster_has_a_name_that_looks_like_an_option() -> None:
    names = [cluster_id(uuid.UUID(int=first << 120)) for first in range(256)]
    assert not any(name.startswith("-") for name in names)
    assert {len(name) for name in names} == {22}
