"""Real engines over made-up logits, for workers to run."""

from __future__ import annotations

from dataclasses import dataclass, field

from batchjobs import catalogue
from batchjobs.deployment import Deployment
from batchjobs.models import Model
from batchjobs.worker.engines import LoadedModel
from executor.engine import Engine
from executor.fake import ByteTokenizer, HashModel
from executor.llguidance_grammar import LLGuidance
from executor.settings import Limits, Scheduling
from tests.support.scarce_memory import ScarceModel

LIMITS = Limits(
    max_num_seqs=8, max_num_batched_tokens=64, max_model_len=256, num_blocks=256, block_size=8
)


@dataclass
class FakeEngines:
    """An `EngineSource`; `loaded` are the models in the order of their loading."""

    limits: Limits = LIMITS
    tokenizer: ByteTokenizer = field(default_factory=ByteTokenizer)
    loaded: list[str] = field(default_factory=list)
    engines: list[Engine] = field(default_factory=list)

    def model(self) -> HashModel:
        return HashModel(self.limits)

    @property
    def scheduling(self) -> Scheduling:
        return Scheduling()

    def load(self, model: Model) -> LoadedModel:
        self.loaded.append(model.name)
        library = LLGuidance(self.tokenizer)
        engine = Engine(self.model(), self.tokenizer, self.limits, self.scheduling, library=library)
        self.engines.append(engine)
        return LoadedModel(engine=engine, tokenizer=self.tokenizer, fingerprint="fp_fake")


class HastyEngines(FakeEngines):
    """Nothing may run for longer than a nanosecond."""

    @property
    def scheduling(self) -> Scheduling:
        return Scheduling(request_timeout_seconds=1e-9)


class ScarceEngines(FakeEngines):
    """Steps of more than 20 positions do not fit the memory, nor any with a "é" among them."""

    def model(self) -> HashModel:
        return ScarceModel(self.limits, most=20, poison="é".encode()[0])


def add_models(deployment: Deployment, *names: str) -> None:
    with deployment.database.write() as session:
        for name in names:
            catalogue.add(
                session, deployment.clock, name=name, source=f"/models/{name}", revision="1"
            )
