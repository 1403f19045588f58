"""Whether texts can be encoded: `python -m ringshard.data.encode FOLDER`, before a rank needs it.

Reads a JSON list of texts on stdin; one that the tokenizer of the prepared data in FOLDER can't
encode is one sentence on stderr and exit code 2.
"""

import json
import sys
from pathlib import Path

from ringshard.data.tokenizer import load
from ringshard.errors import ConfigError


def main() -> int:
    """See the module's docstring."""
    tokenizer = load(Path(sys.argv[1]))
    for text in json.load(sys.stdin):
        try:
            tokenizer.encode([text], [False])
        except ConfigError as error:
            print(f"prompts=[{json.dumps(text, ensure_ascii=False)}]: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
