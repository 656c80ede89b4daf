"""inspect-ai with `--batch`: an eval whose samples are answered by batches."""

import json
import os
import sys

from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import BatchConfig, GenerateConfig, get_model
from inspect_ai.scorer import includes

FAST = BatchConfig(size=4, send_delay=0.2, tick=0.2)


def evaluate(name):
    model = get_model(
        f"openai/{name}",
        base_url=os.environ["OPENAI_BASE_URL"],
        api_key="none",
        responses_api=False,
        config=GenerateConfig(batch=FAST, max_tokens=40),
    )
    samples = [Sample(input=f"Say {number}.", target=" ") for number in range(4)]
    task = Task(dataset=samples, scorer=includes())
    [log] = eval(task, model=model, display="none", log_dir="logs", fail_on_error=False)
    outputs = [sample.output for sample in log.samples]
    return {
        "status": log.status,
        "answers": [output.completion for output in outputs],
        "tokens": [output.usage and output.usage.output_tokens for output in outputs],
        "errors": [sample.error and sample.error.message for sample in log.samples],
    }


report = {"run": evaluate("tiny"), "rejected": evaluate("unknown")}
sys.stdout.write(f"\n{json.dumps(report)}\n")
