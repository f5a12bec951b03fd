"""Random pipelines in a running project, changed while events arrive, against DuckDB over the raw log.

Each is deployed, then deployed again in other words, refreshed where it is made of two layers, deployed as another one,
and rolled back. Whether it is replayed (Kappa) or made of a batch and a stream (Lambda) is left to chance each time, so
that either takes over from either. What two versions say of the same records is compared by the project itself, while
events arrive: in other words they may not differ, and however they differ, DuckDB has to find the same differences
below the same arrival number. In the end every version that is kept has to show what DuckDB says.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

from pyspark.sql import SparkSession

from headrace.config import SparkSettings
from headrace.coordinate.deployments import Options
from headrace.coordinate.how_far import lag_of
from headrace.errors import HeadraceError
from headrace.views.versions import NONE, Deployment, Strategy, Version
from tests.process.oracle.layers import NAMES
from tests.process.oracle.queries import RandomQuery, aggregation, hopping, no_window, random_chain, tumbling
from tests.process.oracle.relations import SOURCES, STREAM, stream_table
from tests.process.oracle.run import bag, connect, differences
from tests.process.pipeline import Records
from tests.support import wait_for
from tests.views.live import PATIENCE, Live, live
from tests.views.oracle.expected import counts_between
from tests.views.oracle.sender import Sender

Chapter = Literal["said again", "exchanged"]
CHAPTERS: tuple[Chapter, ...] = get_args(Chapter)
AT_ONCE = 5
"""Pipelines of a project: with more of them two cores have no time left between their batches."""
SETTINGS = SparkSettings(shuffle_partitions=1, trigger_ms=2500)
"""Batches cost the most of it, and a burst of appends would be several of each query."""
QUIET = "[views]\ncheck_every_seconds = 0\n"
APPENDS = 5
"""At least so many come before, within and after a step."""
LAST_ROWS_S = 5.0
"""For rows that wait for time to pass: they come out after everything is read."""
COUNTS = ("same", "changed", "only_old", "only_new")
Say = Callable[[str], None]


@dataclass
class Story:
    """One project, and what every version of its pipelines means."""

    project: Live
    sender: Sender
    chance: random.Random
    seed: int
    wanted: dict[str, RandomQuery]
    meaning: dict[tuple[str, int], RandomQuery] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    tally: Counter[str] = field(default_factory=Counter)
    say: Say = lambda line: None

    def tell(self, chapters: Collection[Chapter]) -> None:
        self.sender.more(APPENDS)
        self.change({name: query.whole for name, query in self.wanted.items()})
        if "said again" in chapters:
            self.say_again()
        if "exchanged" in chapters:
            self.exchange()

    def say_again(self) -> None:
        """In other words, and then with a new batch layer."""
        self.change({name: query.again for name, query in self.wanted.items()}, max_changed=0.0)
        self.forget()
        self.refresh()

    def exchange(self) -> None:
        """For other pipelines, and back."""
        self.wanted = {name: another(self.chance, query) for name, query in self.wanted.items()}
        before = {name: self.project.serving(name) for name in self.wanted}
        changed = self.change({name: query.whole for name, query in self.wanted.items()}, approve=True)
        self.sender.more(APPENDS)
        self.project.services.deployments.rollback(changed.items[0].name)
        assert {name: self.project.serving(name) for name in self.wanted} == before
        self.sender.more(APPENDS)

    def change(self, texts: Mapping[str, str], **options: Any) -> Deployment:
        """Deploy these, each as a replay or in layers, whichever chance says and its definition allows."""
        self.project.write(SOURCES + "\n".join(text.format(name.lower()) for name, text in texts.items()))
        deployment = self.project.deploy(strategies=self._strategies(), **options)
        self.sender.more(APPENDS)
        done = self.project.reaches(deployment, "switched", "waiting")
        if done.stage == "waiting":
            self.wrong.append(f"{self._where(done)}: not switched, {done.detail}")
            self.project.services.deployments.approve(done.id)
            done = self.project.reaches(deployment, "switched")
        for item in done.items:
            if item.name in self.wanted:
                self.meaning[item.name, item.number] = self.wanted[item.name]
        self._check_comparisons(done)
        self.say(f"deployment {done.id}: {self.sender.sent} appends, {len(done.comparisons)} compared")
        return done

    def forget(self) -> None:
        """What says the same as the version that took over: it costs as much as that."""
        for name in self.wanted:
            for each in (name, f"{name}_BELOW"):
                self.project.services.deployments.forget(each)

    def refresh(self) -> None:
        """A view that has layers, if there is one."""
        layered = [name for name in self.wanted if self._serving(name).layers is not None]
        for name in self.chance.sample(layered, min(1, len(layered))):
            before = self._serving(name)
            started = self.project.services.deployments.refresh(name, "oracle")
            self.sender.more(APPENDS)
            self.project.reaches(started, "switched")
            self.meaning[name, self._serving(name).number] = self.meaning[name, before.number]
            self.project.services.deployments.forget(name)
            self.tally["refreshed"] += 1
            self.say(f"refreshed {name}: {self.sender.sent} appends")

    def settle(self) -> None:
        """Until every version includes all there is."""
        services = self.project.services
        log, catalog, followers = services.log, services.catalog, services.followers
        versions = [version for name in self.wanted for version in catalog.versions(name)]

        def done() -> bool:
            queries = [query for query in catalog.queries() if query.wanted == "running"]
            rows = [version for version in versions if version.source.kind == "table"]
            return not any(lag_of(log, query) for query in queries) and not any(
                followers.lag(version.name, version.number) for version in rows
            )

        # What one has committed by the first look, the next is seen to have read by the second.
        wait_for(lambda: done() and done(), PATIENCE, "the queries to have read everything")

    def check(self) -> None:
        """Every version there is."""
        records = Records(self.project.services.log)
        connection = connect(records)
        for (name, number), query in self.meaning.items():
            version = self.project.services.catalog.state.versions[name].get(number)
            if version is None:
                continue  # it is forgotten
            self.tally[f"{_strategy(version)} versions"] += 1
            what = f"seed {self.seed}, version {number} ({_strategy(version)}) of {version.source.statement}"
            expected = bag(query.expected(connection))
            shown = partial(self._rows, records, version, query)
            with suppress(TimeoutError):
                wait_for(lambda: bag(shown()) == expected, LAST_ROWS_S, what)  # noqa: B023
            self.wrong += differences(what, bag(shown()), expected)

    def _rows(self, records: Records, version: Version, query: RandomQuery) -> list[tuple[Any, ...]]:
        if not query.table:
            return records.result(query.names, version.source.topic, False)
        view = self.project.services.followers.version(version.name, version.number)
        return view.select([NAMES.get(name, name) for name in query.names])[0].rows

    def _strategies(self) -> dict[str, Strategy]:
        strategies: dict[str, Strategy] = {}
        for name, query in self.wanted.items():
            if query.table and self.chance.random() < 0.6:
                strategies[name] = "lambda"
        refused = self.project.services.deployments.plan(self.project.files, Options(strategies=strategies)).refused
        return {name: how for name, how in strategies.items() if name not in {change.name for change in refused}}

    def _check_comparisons(self, deployment: Deployment) -> None:
        compared = {comparison["view"].upper(): comparison for comparison in deployment.comparisons}
        for item in deployment.items:
            query = self.wanted.get(item.name)
            if item.before in (NONE, item.number) or query is None or not query.table:
                continue
            comparison = compared.get(item.name)
            if comparison is None:
                self.wrong.append(f"{self._where(deployment)}: {item.name} was not compared, {deployment.detail}")
                continue
            old = self.meaning[item.name, item.before]
            connection = connect(Records(self.project.services.log), comparison["cut"])
            expected = counts_between(connection, old, query)
            found = Counter({name: comparison[name] for name in COUNTS})
            self.tally["comparisons"] += 1
            if found != expected:
                self.wrong.append(
                    f"{self._where(deployment)}: below {comparison['cut']}, {dict(expected)}, but {dict(found)} of\n"
                    f"    {item.old_statement}\n    {item.statement}\n    {comparison['samples']}"
                )

    def _serving(self, name: str) -> Version:
        return self.project.services.catalog.state.versions[name][self.project.serving(name)]

    def _where(self, deployment: Deployment) -> str:
        return f"seed {self.seed}, deployment {deployment.id}"


def random_pipeline(chance: random.Random) -> RandomQuery:
    """Any, or one that can most likely be made of layers: of all there are, few can."""
    if chance.random() < 0.5:
        return random_chain(chance)
    relation = STREAM if chance.random() < 0.5 else stream_table(chance)
    return aggregation(chance, relation, chance.choice((no_window, tumbling, hopping)))


def another(chance: random.Random, query: RandomQuery) -> RandomQuery:
    """One that may take its place: of the same kind. What is over a table of its own is said as it was at first."""
    if query.below:
        return query
    while True:
        found = random_pipeline(chance)
        if found.table == query.table and not found.below:
            return found


def _caught_up(project: Live) -> bool:
    """Whether everything is read by what is not held up on purpose."""
    queries = [query for query in project.services.catalog.queries() if query.wanted == "running" and not query.until]
    return not any(lag_of(project.services.log, query) for query in queries)


def _strategy(version: Version) -> Strategy:
    return "lambda" if version.layers is not None else "kappa"


def compare(
    spark: SparkSession,
    folder: Path,
    seed: int,
    pipelines: int = AT_ONCE,
    say: Say = lambda line: None,
    chapters: Collection[Chapter] = CHAPTERS,
) -> tuple[list[str], Counter[str]]:
    """What differs, in words, nothing if all is right; and what was done."""
    chance = random.Random(seed)
    wanted = {f"Q{number}": random_pipeline(chance) for number in range(pipelines)}
    with live(folder, spark, SOURCES, QUIET, settings=SETTINGS) as project:
        sender = Sender(project.services.log, random.Random(seed), partial(_caught_up, project))
        story = Story(project, sender, chance, seed, wanted, say=say)
        try:
            with sender:
                story.tell(chapters)
            story.settle()
            story.check()
        except (AssertionError, TimeoutError, HeadraceError) as error:
            story.wrong.append(f"seed {seed}, it did not come to its end: {error!r}\n    {project.files}")
        story.tally["appends"] += sender.sent
        return story.wrong, story.tally
