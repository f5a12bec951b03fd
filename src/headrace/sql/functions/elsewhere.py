"""What functions are called in other SQLs, and what does the same here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headrace.nearest import did_you_mean

ELSEWHERE: Mapping[str, str] = {
    "ANY_VALUE": "LATEST_BY_OFFSET",
    "ARG_MAX": "LATEST_BY_OFFSET, or TOPK",
    "ARRAY_AGG": "COLLECT_LIST",
    "CEILING": "CEIL",
    "CHAR_LENGTH": "LEN",
    "CURRENT_DATE": "FROM_DAYS(UNIX_DATE())",
    "CURRENT_TIMESTAMP": "FROM_UNIXTIME(UNIX_TIMESTAMP())",
    "DATE_ADD": "DATEADD(DAYS, 1, …)",
    "DATE_FORMAT": "FORMAT_DATE or FORMAT_TIMESTAMP",
    "DATE_TRUNC": "a WINDOW, or FORMAT_TIMESTAMP with a shorter pattern",
    "FIRST": "EARLIEST_BY_OFFSET",
    "FIRST_VALUE": "EARLIEST_BY_OFFSET",
    "GETDATE": "FROM_UNIXTIME(UNIX_TIMESTAMP())",
    "GROUP_CONCAT": "COLLECT_LIST, with ARRAY_JOIN around it",
    "IIF": "CASE WHEN … THEN … ELSE … END",
    "IF": "CASE WHEN … THEN … ELSE … END",
    "ISNULL": "IFNULL, or IS NULL",
    "JSON_EXTRACT": "EXTRACTJSONFIELD",
    "JSON_VALUE": "EXTRACTJSONFIELD",
    "LAST": "LATEST_BY_OFFSET",
    "LAST_VALUE": "LATEST_BY_OFFSET",
    "LENGTH": "LEN",
    "LISTAGG": "COLLECT_LIST, with ARRAY_JOIN around it",
    "LOWER": "LCASE",
    "MEAN": "AVG",
    "MOD": "the operator %",
    "NOW": "FROM_UNIXTIME(UNIX_TIMESTAMP())",
    "NVL": "IFNULL",
    "POSITION": "INSTR",
    "POW": "POWER",
    "RAND": "RANDOM",
    "SIZE": "ARRAY_LENGTH, or LEN",
    "STRING_AGG": "COLLECT_LIST, with ARRAY_JOIN around it",
    "STRPOS": "INSTR",
    "STR_TO_DATE": "PARSE_DATE",
    "SUBSTR": "SUBSTRING",
    "TO_CHAR": "FORMAT_TIMESTAMP",
    "TO_DATE": "PARSE_DATE",
    "TO_TIMESTAMP": "PARSE_TIMESTAMP",
    "UNNEST": "EXPLODE",
    "UPPER": "UCASE",
}


def function_hint(name: str, known: Iterable[str]) -> str | None:
    """For a function that does not exist."""
    elsewhere = ELSEWHERE.get(name.upper())
    listed = "SHOW FUNCTIONS; lists all"
    return f"here it is {elsewhere};  {listed}" if elsewhere else did_you_mean(name, known, listed)
