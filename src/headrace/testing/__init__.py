"""What users need to test their own pipelines."""

from headrace.testing.cases import Case, load_cases
from headrace.testing.junit import write_junit
from headrace.testing.run import TestResult, run_project_tests

__all__ = ["Case", "TestResult", "load_cases", "run_project_tests", "write_junit"]
