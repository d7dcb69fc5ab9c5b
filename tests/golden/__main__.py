"""Compare accredit with golden files: ``python -m tests.golden FILE…``."""

import sys
from collections.abc import Sequence

from tests.golden.runner import files_of, run_file


def main(arguments: Sequence[str]) -> int:
    """Print one line a file and the counts; return 1 if a file failed, 2 if there was none."""
    files = files_of(arguments)
    if not files:
        print("usage: python -m tests.golden FILE…  (golden JSON files, or folders of them)", file=sys.stderr)
        return 2
    failed = 0
    for path in files:
        outcome = run_file(path)
        failed += bool(outcome.reason)
        print(outcome.line(), flush=True)
    print(f"{len(files) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
