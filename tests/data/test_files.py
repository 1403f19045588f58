"""Files are found, read in pieces whatever their compression, and complained of by name."""

import gzip
import random
import tracemalloc
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ringshard.data import files
from ringshard.data.documents import Piece, filled, separated, whole
from ringshard.errors import ConfigError


def compress(path: Path, content: bytes) -> None:
    if path.suffix == ".gz":
        content = gzip.compress(content)
    elif path.suffix == ".zst":
        half = len(content) // 2  # two frames, as `cat a.zst b.zst` makes
        pack = zstandard.ZstdCompressor().compress
        content = pack(content[:half]) + pack(content[half:])
    path.write_bytes(content)


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "a.txt.zst"])
def test_text_is_read_whole_and_cut_at_lines(tmp_path: Path, name: str) -> None:
    text = "".join(f"{number} größer als ∞\r\n" for number in range(60_000))
    compress(tmp_path / name, text.encode())
    chunks = list(files.text(tmp_path / name))
    assert "".join(chunks) == text
    assert len(chunks) > 3 and all(chunk.endswith("\n") for chunk in chunks)


def test_one_endless_line_is_read_in_pieces(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("ü" * 1_000_000)
    chunks = list(files.text(tmp_path / "a"))
    assert "".join(chunks) == "ü" * 1_000_000 and max(map(len, chunks)) < 300_000


def test_undecodable_byte_is_named_with_its_offset(tmp_path: Path) -> None:
    content = "ä".encode() * 200_000  # beyond the first block, after an odd number of bytes
    (tmp_path / "bad.txt").write_bytes(b"x" + content + b"\xff" + content)
    with pytest.raises(
        ConfigError, match=rf"bad\.txt is no utf-8 text: byte {len(content) + 1} is 0xff"
    ):
        list(files.text(tmp_path / "bad.txt"))


def test_character_cut_off_at_the_end_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"abc\xc3")
    with pytest.raises(ConfigError, match="byte 3 is 0xc3"):
        list(files.text(tmp_path / "bad.txt"))


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_damaged_archive_is_named(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"a.txt{suffix}"
    compress(path, b"some text " * 10_000)
    path.write_bytes(b"\x00" * 20 + path.read_bytes()[20:])
    with pytest.raises(ConfigError, match=rf"a\.txt\{suffix} is no intact"):
        list(files.text(path))


@pytest.mark.parametrize("frames", [1, 2])
@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_an_archive_that_is_cut_short_is_read_as_if_it_were_whole(
    tmp_path: Path, suffix: str, frames: int
) -> None:
    path = tmp_path / f"a.txt{suffix}"
    compress(path, random.Random(0).randbytes(300_000).hex().encode())
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: size * frames // 2 - 100])
    with pytest.raises(ConfigError, match=rf"a\.txt\{suffix} is no intact"):
        list(files.text(path))


def test_folder_gives_all_files_in_one_order_but_hidden_ones(tmp_path: Path) -> None:
    for name in ("b.txt", "a/z.md", "a/.secret", ".git/x", "c.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    found = files.found(str(tmp_path), "key")
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a/z.md", "b.txt", "c.py"]


def test_globs_find_files_at_any_depth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    (tmp_path / "a/b/c.txt").write_text("x")
    assert len(files.found(f"{tmp_path}/**/*.txt", "key")) == 1
    monkeypatch.chdir(tmp_path)
    assert files.found("a/*/c.t?t", "key") == [Path("a/b/c.txt")]


@pytest.mark.parametrize("pattern", ["none.txt", "*.nothing", "empty"])
def test_nothing_found_names_key_and_value(tmp_path: Path, pattern: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match=r"^key=.*(matches no file|folder without files)"):
        files.found(str(tmp_path / pattern), "key")


def test_fingerprint_follows_content_not_place(tmp_path: Path) -> None:
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("same")
    two.write_text("same")
    assert files.fingerprint([one]) == files.fingerprint([two])
    two.write_text("sane")
    assert files.fingerprint([one]) != files.fingerprint([two])


def test_large_corpora_are_told_apart_by_size_time_and_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_HASHED", 10)
    path = tmp_path / "long.txt"
    path.write_bytes(b"x" * 1_000_000)
    before = files.fingerprint([path])
    assert files.fingerprint([path]) == before
    path.write_bytes(b"x" * 999_999 + b"y")
    assert files.fingerprint([path]) != before


TEXT = st.text(alphabet="ab|-", max_size=60)


@given(st.lists(TEXT, max_size=8), st.sampled_from(["|", "||", "|-|"]))
def test_documents_do_not_depend_on_how_the_text_comes(chunks: list[str], separator: str) -> None:
    pieces = list(filled(separated(chunks, separator)))
    assert [piece.text for piece in pieces] == [
        text for text in "".join(chunks).split(separator) if text
    ]


def test_documents_longer_than_memory_come_in_pieces() -> None:
    chunks = ["a" * 100_000] * 30 + ["|", "|b"]
    tracemalloc.start()
    pieces = list(separated(iter(chunks), "||"))
    assert tracemalloc.get_traced_memory()[1] < 8e6
    tracemalloc.stop()
    assert "".join(p.text for p in pieces[:-1]) == "a" * 3_000_000
    assert [p.ends for p in pieces] == [False] * (len(pieces) - 2) + [True, True]


def test_files_without_text_are_no_documents() -> None:
    pieces = [*whole([]), *whole(["a", "b"]), *whole([""]), Piece(""), Piece("c")]
    documents = [p for p in filled(pieces) if p.ends]
    assert len(documents) == 2
