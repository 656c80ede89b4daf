"""`batchjobs evals …`, one file a command. As in the package above, help imports only click."""

from __future__ import annotations

from batchjobs.cli.command import Group
from batchjobs.cli.evals.baseline import baseline
from batchjobs.cli.evals.check import check
from batchjobs.cli.evals.compare import compare
from batchjobs.cli.evals.listing import list_runs
from batchjobs.cli.evals.pin import pin, unpin
from batchjobs.cli.evals.report import report
from batchjobs.cli.evals.rescore import rescore
from batchjobs.cli.evals.resume import resume
from batchjobs.cli.evals.run import run
from batchjobs.cli.evals.show import show
from batchjobs.cli.evals.simulate import simulate

evals = Group(
    "evals",
    help="Run eval suites, and tell whether a model got worse.\n\n"
    "A suite is a YAML or JSON file (docs/evals.md). Runs and their scores are kept with the data"
    " here; requests are answered here, or by the server that $BATCHJOBS_URL names.",
)
for _command in (
    check,
    run,
    resume,
    rescore,
    list_runs,
    show,
    compare,
    baseline,
    pin,
    unpin,
    simulate,
    report,
):
    evals.add_command(_command)
