"""What MLflow gets of an attempt's files holds no secret, whatever it is written in."""

from pathlib import Path

import pytest

from ringshard.tracking import attachments
from ringshard.tracking.attachments import readable, without_secrets

KEY = """+-----BEGIN OPENSSH PRIVATE KEY-----
+b3BlbnNzaC1rZXktdjEAAAAABG5vbmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtzc2gtZW
+QyNTUxOQAAACDf
+-----END OPENSSH PRIVATE KEY-----
"""


@pytest.mark.parametrize("key", [KEY, KEY.replace("\n+", r"\n"), KEY[:150]])
def test_a_private_key_is_sent_but_for_its_first_line(key: str) -> None:
    assert without_secrets(f"+before\n{key}").startswith("+before\n")
    assert not {"b3BlbnNz", "QyNTUxOQ"} & set(_pieces(without_secrets(key)))
    assert without_secrets(f"{KEY}+after\n").endswith("+after\n")


def _pieces(text: str) -> list[str]:
    return [text[at : at + 8] for at in range(len(text))]


@pytest.mark.parametrize(
    ("line", "sent"),
    [
        ("+WANDB_API_KEY=0123456789abcdef", "+WANDB_API_KEY=[secret]"),
        ("+password: hunter2hunter2", "+password: [secret]"),
        ("+export DB_PASSWD=hunter2hunter2", "+export DB_PASSWD=[secret]"),
        ("+password = 'correct horse battery'", "+password = '[secret]'"),
        ('+password: str = "hunter2hunter2"', '+password: str = "[secret]"'),
        ('+os.environ["API_KEY"] = "0123456789abcdef"', '+os.environ["API_KEY"] = "[secret]"'),
        ('+{"x-api-key": "0123456789abcdef"}', '+{"x-api-key": "[secret]"}'),
        ("+auth_token: 0123456789abcdef", "+auth_token: [secret]"),
    ],
)
def test_a_value_of_a_secret_name_is_sent_where_it_has_no_quotes(line: str, sent: str) -> None:
    assert without_secrets(f"+a\n{line}\n+b\n") == f"+a\n{sent}\n+b\n"


@pytest.mark.parametrize(
    "line",
    [
        "train.tokens=1_000_000",
        "warmup_tokens: 1.5e+09",
        "+tokens = tokens[:, 1:]",
        "+password = os.environ['DB']",
        "+token=$HF_TOKEN",
        "end_token: <|endoftext|>",
        "tokenizer: byte-level",
    ],
)
def test_what_is_no_secret_is_kept_from_mlflow(line: str) -> None:
    assert without_secrets(line) == line


def test_a_huge_difference_is_searched_whole_before_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attachments, "_MOST", 100)
    searched: list[str] = []
    monkeypatch.setattr(attachments, "without_secrets", lambda text: searched.append(text) or text)
    file = tmp_path / "code.diff"
    file.write_text("+0123456\n" * 10 + "+a_token=0123456789abcdef\n" * 1000)
    kept = "+0123456\n" * 10
    assert readable(file) == f"{kept}\n[the rest is in {file}]\n"
    assert searched == [kept]
