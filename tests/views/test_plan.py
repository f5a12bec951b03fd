"""What a change would do, said before anything is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from headrace.sql.api import Draft, parse, plan_query, source_from
from headrace.sql.statements import CreateAsSelect, CreateSource
from headrace.views.change import Figures, Plan, Runs, Wanted
from headrace.views.plan import plan_changes

CLICKS = "CREATE STREAM clicks (userid VARCHAR KEY, page VARCHAR, ms INT) WITH (KAFKA_TOPIC='clicks', PARTITIONS=1);"
HOME = "CREATE STREAM home AS SELECT userid, page, ms FROM clicks WHERE page = '/home';"
BY_USER = "CREATE TABLE by_user AS SELECT userid, COUNT(*) AS n FROM home GROUP BY userid;"
TOP = "CREATE TABLE top AS SELECT userid, n FROM by_user WHERE n > 10;"
BY_PAGE = "CREATE TABLE by_page AS SELECT page, COUNT(*) AS n FROM clicks GROUP BY page;"
ALL = (CLICKS, HOME, BY_USER, TOP, BY_PAGE)
FIGURES = Figures({"clicks": 1_000, "HOME": 300, "BY_USER": 50}, rows_per_second=100)


def running(*texts: str) -> dict[str, Runs]:
    draft, found = Draft(), {}
    for text in texts:
        [statement] = parse(text)
        if isinstance(statement, CreateSource):
            runs = Runs(replace(source_from(statement, draft), statement=text), 1)
        else:
            assert isinstance(statement, CreateAsSelect)
            query = plan_query(statement, draft)
            sink = replace(query.sink, statement=text, query=f"Q_{query.sink.name}")
            runs = Runs(sink, 1, replace(query, sink=sink), offsets={0: 7})
        draft.add(runs.source)
        found[runs.source.name] = runs
    return found


def planned(now: dict[str, Runs], *texts: str, figures: Figures = FIGURES, **options: Any) -> Plan:
    draft = Draft()
    for runs in now.values():
        draft.add(runs.source)
    wanted = []
    for text in texts:
        [statement] = parse(text)
        assert isinstance(statement, CreateSource | CreateAsSelect)
        wanted.append(Wanted(statement, "pipelines/all.sql", 1, 1))
    return plan_changes(now, draft, wanted, figures, lambda name: 2, frozenset(now), **options)


def verdicts(plan: Plan) -> dict[str, str]:
    return {change.name: change.verdict for change in plan.pending}


def test_what_runs_needs_nothing() -> None:
    layout = BY_PAGE.replace("SELECT", "\n  SELECT -- a comment\n")
    plan = planned(running(*ALL), CLICKS, HOME, BY_USER, TOP, layout)
    assert not plan.pending
    assert len(plan.changes) == 5


def test_a_filter_rebuilds_what_it_filters_and_all_that_read_it() -> None:
    plan = planned(running(*ALL), TOP, BY_USER, HOME.replace("'/home'", "'/'"), CLICKS, BY_PAGE)
    assert verdicts(plan) == {"HOME": "rebuilds", "BY_USER": "rebuilds", "TOP": "rebuilds"}
    home, by_user, top = plan.pending
    assert home.dependents == ("BY_USER", "TOP")
    assert home.reason == "what it has written would be different"
    assert by_user.reason == "it reads `home`, which is rebuilt"
    # Each reads the new version of what is before it.
    assert home.source is not None
    assert home.source.topic == "HOME.v2"
    assert by_user.query is not None
    assert [source.topic for source in by_user.query.inputs] == ["HOME.v2"]
    assert top.query is not None
    assert [source.topic for source in top.query.inputs] == ["BY_USER.v2"]
    assert (home.replays, by_user.replays, top.replays) == (1_000, 300, 50)
    assert plan.seconds(plan.replays) == 13.5


def test_the_first_change_after_a_switch_is_named_after_the_same_topic() -> None:
    now = running(*ALL)
    now["BY_PAGE"] = replace(now["BY_PAGE"], source=replace(now["BY_PAGE"].source, topic="BY_PAGE.v2"), number=2)
    assert not planned(now, *ALL).pending
    changed = planned(now, CLICKS, HOME, BY_USER, TOP, BY_PAGE.replace("COUNT(*)", "SUM(ms)"))
    assert verdicts(changed) == {"BY_PAGE": "rebuilds"}


def test_in_place_it_goes_on_where_that_can_be() -> None:
    filtered = HOME.replace("'/home'", "'/'")
    plan = planned(running(*ALL), CLICKS, filtered, BY_USER, TOP, BY_PAGE, in_place=True)
    assert verdicts(plan) == {"HOME": "continues"}
    assert plan.pending[0].offsets == {0: 7}
    doubled = BY_PAGE.replace("COUNT(*)", "COUNT(*) * 2")
    plan = planned(running(*ALL), CLICKS, HOME, BY_USER, TOP, doubled, in_place=True)
    assert verdicts(plan) == {"BY_PAGE": "keeps its state"}
    summed = BY_PAGE.replace("COUNT(*)", "SUM(ms)")
    plan = planned(running(*ALL), CLICKS, HOME, BY_USER, TOP, summed, in_place=True)
    assert verdicts(plan) == {"BY_PAGE": "rebuilds"}


def test_a_further_column_of_a_source_keeps_all_state_but_of_those_who_select_everything() -> None:
    wider = CLICKS.replace("ms INT", "ms INT, referrer VARCHAR")
    everything = "CREATE STREAM everything AS SELECT * FROM clicks;"
    plan = planned(running(*ALL, everything), wider, HOME, BY_USER, TOP, BY_PAGE, everything)
    assert verdicts(plan) == {"CLICKS": "keeps its state", "EVERYTHING": "rebuilds"}
    assert set(plan.pending[0].dependents) == {"HOME", "BY_USER", "TOP", "BY_PAGE", "EVERYTHING"}


def test_a_join_keeps_its_state_when_a_source_gets_a_column_that_it_does_not_use() -> None:
    users = "CREATE TABLE users (userid VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=1);"
    others = CLICKS.replace("clicks", "others")
    joined = (
        "CREATE STREAM towns AS SELECT c.userid, page, town FROM clicks c LEFT JOIN users u ON c.userid = u.userid;"
    )
    both = (
        "CREATE STREAM twice AS SELECT c.userid, c.page, o.ms FROM clicks c JOIN others o WITHIN 1 HOUR "
        "ON c.userid = o.userid;"
    )
    everything = "CREATE STREAM everything AS SELECT * FROM clicks c JOIN users u ON c.userid = u.userid;"
    now = CLICKS, users, others, joined, both, everything
    wider = CLICKS.replace("ms INT", "ms INT, referrer VARCHAR")
    plan = planned(running(*now), wider, *now[1:])
    assert verdicts(plan) == {"CLICKS": "keeps its state", "EVERYTHING": "rebuilds"}
    # One that uses another column than before is another one.
    other = joined.replace("page, town", "referrer, town")
    assert verdicts(planned(running(*now[:5]), wider, users, others, other, both))["TOWNS"] == "rebuilds"


def test_a_column_that_becomes_another_is_refused_and_so_is_what_reads_it() -> None:
    retyped = CLICKS.replace("ms INT", "ms BIGINT")
    plan = planned(running(*ALL), retyped, HOME, BY_USER, TOP, BY_PAGE)
    assert set(verdicts(plan).values()) == {"refused"}
    assert plan.refused[0].reason == "its column `ms` is INTEGER, and would be BIGINT"
    assert plan.refused[0].hint == (
        "declare `clicks_2` like this, with a topic of its own;  INSERT INTO clicks_2 SELECT * FROM clicks;  "
        "copies what there is; then let queries and senders use it: docs/howto/evolve-a-schema.md#another-type"
    )
    assert plan.refused[1].reason == "it reads `clicks`, which cannot be changed"
    hints = {refused.name: refused.hint for refused in plan.refused[1:]}
    assert (hints["HOME"], hints["BY_USER"]) == ("put `clicks` right", "put `home` right")
    # One is wrong, and the others follow from it, however far.
    assert [change.name for change in plan.wrong] == ["CLICKS"]
    assert {change.because for change in plan.refused[1:]} == {"CLICKS"}


def test_partitions_that_a_topic_does_not_have_are_refused_and_none_are_no_matter() -> None:
    two, three, none = (CLICKS.replace(", PARTITIONS=1", given) for given in (", PARTITIONS=2", ", PARTITIONS=3", ""))
    [refused] = planned(running(two), three).refused
    assert refused.reason == "topic `clicks` has 2 partitions, not 3"
    assert refused.hint == "leave PARTITIONS out, or name another KAFKA_TOPIC"
    [kept] = planned(running(two), none).pending
    assert (kept.verdict, kept.reason) == ("keeps its state", "it is declared over the same records")


def test_what_no_file_has_any_more_is_dropped_unless_others_use_it() -> None:
    assert verdicts(planned(running(*ALL), CLICKS, HOME, BY_USER, BY_PAGE)) == {"TOP": "drops"}
    # TOP and BY_USER go together; BY_USER alone cannot.
    assert verdicts(planned(running(*ALL), CLICKS, HOME, BY_PAGE)) == {"BY_USER": "drops", "TOP": "drops"}
    everything = {"BY_PAGE": "drops", "BY_USER": "drops", "HOME": "drops", "TOP": "drops"}
    assert verdicts(planned(running(*ALL), CLICKS)) == everything
    plan = planned(running(*ALL), CLICKS, HOME, TOP, BY_PAGE)
    assert verdicts(plan) == {"BY_USER": "refused"}
    assert plan.refused[0].reason == "no file defines it, but `top` uses it"
    [refused] = planned(running(*ALL), HOME, BY_USER, TOP, BY_PAGE).refused
    assert refused.reason == "no file defines it, but `home`, `by_page` use it"


def test_new_statements_are_created_in_whatever_order_they_are_written() -> None:
    plan = planned(running(CLICKS), TOP, BY_USER, HOME, CLICKS)
    assert verdicts(plan) == {"HOME": "creates", "BY_USER": "creates", "TOP": "creates"}
    assert plan.pending[0].replays == 1_000


def test_a_mistake_is_refused_where_it_stands_and_the_rest_is_planned() -> None:
    plan = planned(running(CLICKS), CLICKS, HOME.replace("page =", "pge ="), BY_PAGE)
    assert verdicts(plan) == {"HOME": "refused", "BY_PAGE": "creates"}
    assert "pge" in plan.refused[0].reason
    assert plan.refused[0].wanted is not None
    assert plan.refused[0].wanted.line == 1


def test_what_statements_of_insert_write_is_not_left_behind() -> None:
    now = running(*ALL)
    now["HOME"] = replace(now["HOME"], inserted_by=("INSERTQUERY_9",))
    plan = planned(now, CLICKS, HOME.replace("'/home'", "'/'"), BY_USER, TOP, BY_PAGE)
    assert plan.refused[0].hint == "first:  TERMINATE INSERTQUERY_9;"
    assert set(verdicts(plan).values()) == {"refused"}


def test_records_that_are_gone_are_missed_aloud() -> None:
    figures = replace(FIGURES, removed={"clicks": 5_000})
    plan = planned(running(*ALL), *ALL[:4], BY_PAGE.replace("COUNT(*)", "COUNT(ms)"), figures=figures)
    gone = "5,000 earlier records of topic `clicks` are gone: it replays from what is left"
    assert plan.pending[0].warnings == (gone,)
    compacted = replace(FIGURES, compacted=frozenset({"clicks"}))
    plan = planned(running(*ALL), *ALL[:4], BY_PAGE.replace("COUNT(*)", "SUM(ms)"), figures=compacted)
    assert "is compacted" in plan.pending[0].warnings[0]
    assert plan.seconds(1_000) == 10.0
    assert replace(plan, figures=Figures()).seconds(1_000) is None


def test_groups_that_only_a_compacted_topic_knew_are_missed_aloud() -> None:
    users = "CREATE TABLE users (userid VARCHAR PRIMARY KEY, city VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=1);"
    cities = "CREATE TABLE cities AS SELECT city, COUNT(*) AS n FROM users GROUP BY city;"
    figures = replace(FIGURES, compacted=frozenset({"users"}))
    changed = cities.replace("COUNT(*)", "COUNT(*) * 2")
    [change] = planned(running(users, cities), users, changed, figures=figures).pending
    assert change.warnings == (
        "topic `users` is compacted: groups that have become empty may be missing in the new version",
    )
    # A new table misses nothing.
    assert [one.warnings for one in planned(running(users), users, cities, figures=figures).pending] == [()]


def test_a_join_of_what_is_rebuilt_with_what_is_not_says_what_that_means() -> None:
    users = "CREATE TABLE users (userid VARCHAR PRIMARY KEY, name VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=1);"
    named = "CREATE STREAM named AS SELECT home.userid, page, name FROM home JOIN users ON home.userid = users.userid;"
    plan = planned(running(CLICKS, HOME, users, named), CLICKS, HOME.replace("'/home'", "'/'"), users, named)
    assert verdicts(plan) == {"HOME": "rebuilds", "NAMED": "rebuilds"}
    [note] = plan.pending[1].warnings
    assert note == "it joins what is rebuilt with it: rows of the past meet the others as they are now"
    # Changed itself, it reads both as they came.
    other = planned(
        running(CLICKS, HOME, users, named), CLICKS, HOME, users, named.replace("name FROM", "UCASE(name) AS name FROM")
    )
    assert (verdicts(other), other.pending[0].warnings) == ({"NAMED": "rebuilds"}, ())


def test_every_refusal_says_what_to_do_instead() -> None:
    mistakes = [
        (CLICKS, HOME.replace("page =", "pge ="), BY_USER, TOP, BY_PAGE),
        (CLICKS, HOME.replace("clicks", "klicks"), BY_USER, TOP, BY_PAGE),
        (CLICKS.replace("ms INT", "ms BIGINT"), HOME, BY_USER, TOP, BY_PAGE),
        (CLICKS, HOME, BY_USER, TOP, BY_PAGE.replace("GROUP BY page", "")),
        (CLICKS, HOME, TOP, BY_PAGE),
        (CLICKS, HOME, BY_USER, TOP, "CREATE TABLE by_page (page VARCHAR PRIMARY KEY) WITH (KAFKA_TOPIC='x');"),
    ]
    for texts in mistakes:
        refused = planned(running(*ALL), *texts).refused
        assert refused
        assert all(change.reason and change.hint for change in refused), refused


def test_a_table_cannot_become_a_stream() -> None:
    other = "CREATE STREAM by_page AS SELECT userid, page FROM clicks;"
    plan = planned(running(*ALL), CLICKS, HOME, BY_USER, TOP, other)
    assert [change.reason for change in plan.refused] == ["it is a table"]
    assert "DROP TABLE by_page" in plan.refused[0].hint


def test_where_partitions_are_in_no_order_layers_are_only_for_what_needs_none() -> None:
    users = "CREATE TABLE users (id VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC='users', PARTITIONS=1);"
    last = BY_PAGE.replace("COUNT(*)", "LATEST_BY_OFFSET(ms)").replace("by_page", "last")
    town = "CREATE TABLE towns AS SELECT town, COUNT(*) AS n FROM clicks JOIN users ON userid = id GROUP BY town;"

    def refused(figures: Figures) -> dict[str, str]:
        plan = planned(running(CLICKS), CLICKS, users, BY_PAGE, last, town, figures=figures, strategy="lambda")
        return {change.name: change.reason for change in plan.refused}

    assert refused(FIGURES) == {}
    joined = "it joins a table, and on Kafka a cut does not say which rows of it a stream's row has met"
    assert refused(replace(FIGURES, apart={"clicks": 1, "users": 1})) == {"TOWNS": joined}
    ordered = "LATEST_BY_OFFSET goes by order, and on Kafka partitions are not cut in order"
    assert refused(replace(FIGURES, apart={"clicks": 2, "users": 1})) == {"LAST": ordered, "TOWNS": joined}


def test_a_topic_that_is_read_as_a_stream_and_as_a_table_is_not_cut() -> None:
    seen = "CREATE STREAM seen (id VARCHAR KEY, town VARCHAR) WITH (KAFKA_TOPIC='people', PARTITIONS=1);"
    people = "CREATE TABLE people (id VARCHAR PRIMARY KEY, town VARCHAR) WITH (KAFKA_TOPIC='people');"
    by_town = (
        "CREATE TABLE by_town AS SELECT p.town AS town, COUNT(*) AS n "
        "FROM seen s JOIN people p ON s.id = p.id GROUP BY p.town;"
    )
    [refused] = planned(running(seen, people), seen, people, by_town, strategy="lambda").refused
    assert (refused.reason, refused.hint) == (
        "it reads topic `people` twice, as the stream `seen` and the table `people`: what is before the cut would be "
        "counted by both layers",
        "--strategy kappa replays it",
    )
    assert verdicts(planned(running(seen, people), seen, people, by_town)) == {"BY_TOWN": "creates"}
    # Nor by the schedule that its statement asks for.
    asked = by_town.replace("GROUP BY p.town", "GROUP BY p.town REFRESH EVERY 1 HOUR")
    [refused] = planned(running(seen, people), seen, people, asked).refused
    assert refused.reason.startswith("it reads topic `people` twice")
    assert refused.hint == "take REFRESH EVERY out of its statement: then it is replayed"
    # What an older version made so is rebuilt without layers, and where its statement asks for them, that is said.
    now = running(seen, people, by_town)
    now["BY_TOWN"] = replace(now["BY_TOWN"], strategy="lambda")
    [rebuilt] = planned(now, seen, people, by_town).pending
    assert (rebuilt.verdict, rebuilt.strategy) == ("rebuilds", "kappa")
    assert rebuilt.reason.startswith("what its layers show is wrong: it reads topic `people` twice")
    now = running(seen, people, asked)
    now["BY_TOWN"] = replace(now["BY_TOWN"], strategy="lambda")
    plan = planned(now, seen, people, asked)
    assert not plan.pending
    [(noted,)] = [change.warnings for change in plan.changes if change.name == "BY_TOWN"]
    assert noted.endswith("by both layers; take REFRESH EVERY out of its statement: then it is replayed")
    assert verdicts(planned(now, seen, people, by_town)) == {"BY_TOWN": "rebuilds"}
    apart = people.replace("'people'", "'others', PARTITIONS=1")
    assert not planned(running(seen, apart), seen, apart, by_town, strategy="lambda").refused


def test_a_stream_whose_records_are_read_otherwise_is_read_anew() -> None:
    """Where the log keeps bytes, what is declared says what they mean."""
    lines = CLICKS.replace("PARTITIONS=1", "VALUE_FORMAT='DELIMITED', VALUE_DELIMITER='|'")
    plan = planned(running(lines, BY_PAGE), lines.replace("'|'", "';'"), BY_PAGE)
    assert verdicts(plan) == {"CLICKS": "keeps its state", "BY_PAGE": "rebuilds"}
    assert plan.pending[1].reason == "what it reads is declared differently"
