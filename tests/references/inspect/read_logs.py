"""Read logs with Inspect, and print what it found as JSON: ``read_logs.py FOLDER``."""

from __future__ import annotations

import json
import sys

from inspect_ai.log import list_eval_logs, read_eval_log, read_eval_log_sample, read_eval_log_sample_summaries


def main() -> None:
    """Print the header and the samples of each log, by the name of its file."""
    found = {}
    for info in list_eval_logs(sys.argv[1]):
        log = read_eval_log(info, resolve_attachments=True)
        summaries = read_eval_log_sample_summaries(info)
        alone = [read_eval_log_sample(info, id=one.id, epoch=one.epoch) for one in summaries]
        found[info.name.rpartition("/")[2]] = {
            "header": read_eval_log(info, header_only=True).model_dump(mode="json"),
            "samples": [one.model_dump(mode="json") for one in log.samples or []],
            "alone": [[one.id, one.epoch] for one in alone],
        }
    print(json.dumps(found))


main()
