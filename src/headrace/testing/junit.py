"""Results as JUnit's XML, which continuous integration reads."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from headrace.testing.run import TestResult

# What XML cannot hold, even escaped.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def write_junit(file: Path, project: str, results: Sequence[TestResult]) -> None:
    failed = sum(not result.passed for result in results)
    suite = ElementTree.Element(
        "testsuite", name=_clean(project), tests=str(len(results)), failures=str(failed), errors="0", skipped="0"
    )
    for result in results:
        case = ElementTree.SubElement(
            suite,
            "testcase",
            name=_clean(result.name),
            classname=_clean(result.file.removesuffix(".toml")),
            time=f"{result.seconds:.3f}",
        )
        if not result.passed:
            failure = ElementTree.SubElement(case, "failure", message=_clean(result.differences[0]))
            failure.text = _clean("\n".join(result.differences))
    ElementTree.ElementTree(suite).write(file, encoding="utf-8", xml_declaration=True)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("\ufffd", text)
