"""The scorers that a suite may name by their `type`, each a file."""

from typing import Annotated

from pydantic import Field

from batchjobs.evals.scorers.choice import Choice
from batchjobs.evals.scorers.contains import Contains
from batchjobs.evals.scorers.exact import Exact
from batchjobs.evals.scorers.json_fields import JsonFields
from batchjobs.evals.scorers.judge import Judge
from batchjobs.evals.scorers.normalised import Normalised
from batchjobs.evals.scorers.numeric import Numeric
from batchjobs.evals.scorers.overlap import Bleu, Rouge
from batchjobs.evals.scorers.python import Python
from batchjobs.evals.scorers.regex import Regex
from batchjobs.evals.scorers.tool_call import ToolCall

AnyScorer = Annotated[
    Exact
    | Normalised
    | Contains
    | Regex
    | Numeric
    | Choice
    | JsonFields
    | ToolCall
    | Rouge
    | Bleu
    | Judge
    | Python,
    Field(discriminator="type"),
]
