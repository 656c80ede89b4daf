"""Why lines of jobs failed, kept: a result file never changes, and is long to read."""

from __future__ import annotations

import threading
from collections import OrderedDict

from batchjobs import browse
from batchjobs.browse import Reasons
from batchjobs.deployment import Deployment
from batchjobs.models import Job

MAX_KEPT = 256

_Version = tuple[str, str | None, int]


class KeptReasons:
    """For many threads; the least recently asked for go first."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._lock = threading.Lock()
        self._known: OrderedDict[_Version, Reasons] = OrderedDict()

    def of(self, job: Job, failed: int) -> Reasons:
        """Of a job with so many failed lines by now. Raises NotFoundError, ObjectMissingError."""
        version = (job.id, job.error_file_id, failed)
        with self._lock:
            if version in self._known:
                self._known.move_to_end(version)
                return self._known[version]
        reasons = browse.reasons(self._deployment, job)
        with self._lock:
            self._known[version] = reasons
            if len(self._known) > MAX_KEPT:
                self._known.popitem(last=False)
        return reasons
