"""bespokelabs-curator in batch mode: prompts in, a dataset of answers out."""

import json
import os
import sys

from bespokelabs import curator

ROWS = [{"name": f"ask-{number}"} for number in range(6)]
ROWS[4]["name"] *= 1000  # longer than the context
OPTIONS = {
    "base_url": os.environ["OPENAI_BASE_URL"],
    "api_key": "none",
    "batch_size": 3,
    "batch_check_interval": 1,
    "require_all_responses": False,
    "max_retries": 1,
    "invalid_finish_reasons": ["content_filter"],
}


class Asker(curator.LLM):
    def prompt(self, row):
        return f"I am {row['name']}."

    def parse(self, row, response):
        return {"name": row["name"], "answer": response}


asker = Asker(model_name="tiny", backend="openai", batch=True, backend_params=OPTIONS)
report = {"rows": asker(ROWS).dataset.to_list()}
sys.stdout.write(f"\n{json.dumps(report)}\n")
