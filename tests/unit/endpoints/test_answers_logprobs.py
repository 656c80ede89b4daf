"""Log-probabilities as they are printed."""

from __future__ import annotations

import json
import math

import pytest

from batchjobs.endpoints.answers import IMPOSSIBLE_LOGPROB, LOGPROB_DIGITS, wire_logprob


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (math.log(0.5), "-0.6931"),
        (-0.12345678, "-0.1235"),
        (-1e-9, "0.0"),
        (0.0, "0.0"),
        (-17.0, "-17.0"),
        (-math.inf, "-9999.0"),
        (math.nan, "-9999.0"),
    ],
)
def test_log_probabilities_have_four_decimals(value: float, printed: str) -> None:
    assert json.dumps(wire_logprob(value)) == printed


def test_what_cannot_be_is_not_rounded_to_something_that_can() -> None:
    assert wire_logprob(-math.inf) == IMPOSSIBLE_LOGPROB


def test_company_within_half_a_unit_moves_what_is_printed_by_one_unit_at_most() -> None:
    unit = 10**-LOGPROB_DIGITS
    values = [-3.2 - number * 1e-6 for number in range(400)]
    moved = [wire_logprob(value) - wire_logprob(value - unit / 2) for value in values]
    assert {round(step / unit) for step in moved} == {0, 1}
