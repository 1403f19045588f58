"""Stores are reused while nothing has changed and never when something has; mistakes are told."""

import gzip
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as arrow
import pytest
from pyarrow import parquet

from ringshard import registry
from ringshard.config.schema.data import (
    Corpus,
    CorpusKind,
    Data,
    DocumentUnit,
    Packing,
    Split,
    Tokenizer,
    TokenizerKind,
)
from ringshard.config.schema.job import Job, Output, User
from ringshard.config.schema.reader import plain
from ringshard.data import corpus as corpora
from ringshard.data.dataset import Dataset
from ringshard.data.prepare import Prepared, prepare
from ringshard.data.store import Store
from ringshard.errors import ConfigError
from ringshard.registry import register

Make = Callable[..., Data]


def stores(data: Data) -> set[str]:
    return {path.name for path in (Path(data.cache) / "stores").iterdir()}


def dataset(prepared: Prepared) -> Dataset:
    return Dataset(Path(prepared.prepared), "train", 1)


def text_of(data: Data) -> str:
    """All text of the only store of a fresh cache."""
    made = dataset(prepare(data))
    (store,) = (Path(data.cache) / "stores").iterdir()
    return made.decode(Store(store).tokens)


def test_default_corpus_is_the_standard_library(tmp_path: Path) -> None:
    data = Data(
        corpora={"stdlib": Corpus(kind=CorpusKind.python_stdlib)}, cache=str(tmp_path / "cache")
    )
    prepared = prepare(data)
    assert prepared.documents > 300 and 5e6 < prepared.tokens < 3e7
    assert prepared.bigram_entropy is not None and 1.5 < prepared.bigram_entropy < 3
    assert len(dataset(prepared).read(0, 4).tokens) == 4


def test_second_preparation_builds_nothing(texts: Path, make: Make) -> None:
    first = prepare(make(texts))
    times = {path: path.stat().st_mtime_ns for path in Path(first.prepared).parent.rglob("*")}
    assert prepare(make(texts)) == first
    assert times == {
        path: path.stat().st_mtime_ns for path in Path(first.prepared).parent.rglob("*")
    }


def test_other_rows_of_the_same_text_share_its_store(texts: Path, make: Make) -> None:
    digests = {
        prepare(make(texts, **options)).digest
        for options in [
            {},
            {"seq_len": 17},
            {"packing": Packing.concat},
            {"packing": Packing.none},
            {"split": Split.position},
            {"validation_share": 0.3},
        ]
    }
    assert len(digests) == 6 and len(stores(make(texts))) == 1


def test_changed_file_makes_a_new_store(texts: Path, make: Make) -> None:
    path, before = texts / "07.txt", prepare(make(texts))
    state = path.stat()
    content = path.read_bytes()
    path.write_bytes(content.replace(b"Line 0", b"Lime 0"))
    os.utime(path, ns=(state.st_atime_ns, state.st_mtime_ns))  # same size, same time
    assert prepare(make(texts)).digest != before.digest
    path.write_bytes(content)
    assert prepare(make(texts)) == before


def test_added_and_removed_files_make_new_stores(texts: Path, make: Make) -> None:
    digests = [prepare(make(texts)).digest]
    (texts / "new.txt").write_text("new")
    digests.append(prepare(make(texts)).digest)
    (texts / "00.txt").unlink()
    digests.append(prepare(make(texts)).digest)
    assert len(set(digests)) == 3


def test_corpus_that_moved_is_the_same(texts: Path, make: Make) -> None:
    before = prepare(make(texts))
    texts.rename(texts.parent / "moved")
    assert prepare(make(texts.parent / "moved")) == before


def test_cache_that_moved_is_read(texts: Path, make: Make, tmp_path: Path) -> None:
    before = prepare(make(texts))
    rows = dataset(before).read(0, 9)
    (tmp_path / "cache").rename(tmp_path / "other")
    after = prepare(make(texts, cache=str(tmp_path / "other")))
    assert (dataset(after).read(0, 9).tokens == rows.tokens).all() and after.digest == before.digest


def test_removed_store_is_built_again(texts: Path, make: Make) -> None:
    data, before = make(texts), prepare(make(texts))
    (store,) = (Path(data.cache) / "stores").iterdir()
    store.rename(store.parent.parent / "gone")
    assert prepare(data) == before and len(dataset(before).read(0, 1).tokens) == 1


def test_cut_off_store_is_refused(texts: Path, make: Make) -> None:
    data, before = make(texts), prepare(make(texts))
    (store,) = (Path(data.cache) / "stores").iterdir()
    os.truncate(store / "tokens.bin", 100)
    with pytest.raises(ConfigError, match="is damaged: remove it"):
        dataset(before)


@pytest.mark.parametrize("kind", [TokenizerKind.bytes, TokenizerKind.characters, TokenizerKind.bpe])
def test_text_comes_back_from_its_store(texts: Path, make: Make, kind: TokenizerKind) -> None:
    size = 300 if kind is TokenizerKind.bpe else None
    text = text_of(make(texts, tokenizer=Tokenizer(kind=kind, vocab_size=size)))
    files = [path.read_text(encoding="utf-8") for path in sorted(texts.iterdir())]
    assert text == "".join(content + "<|endoftext|>" for content in files)


def test_tokenizer_of_a_folder(texts: Path, make: Make, tmp_path: Path) -> None:
    trained = prepare(make(texts, tokenizer=Tokenizer(kind=TokenizerKind.bpe, vocab_size=300)))
    (folder,) = (Path(trained.prepared).parent.parent / "tokenizers").iterdir()
    again = prepare(
        make(texts, tokenizer=Tokenizer(kind=TokenizerKind.directory, path=str(folder)))
    )
    assert again.digest == trained.digest and again.vocab_size == 300


DOCUMENTS = [f"document {number}" for number in range(30)]
RECORDS = [{"body": text, "id": number} for number, text in enumerate(DOCUMENTS)]


def write_records(path: Path) -> None:
    if ".parquet" in path.name:
        parquet.write_table(arrow.Table.from_pylist(RECORDS), path, row_group_size=7)
    else:
        path.write_text("".join(json.dumps(record) + "\n\n" for record in RECORDS))
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(path.read_bytes()))


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.parquet", "a.parquet.gz"])
def test_records_are_documents(tmp_path: Path, make: Make, name: str) -> None:
    write_records(tmp_path / name)
    text = text_of(make(tmp_path / name, {"text_field": "body"}))
    assert text == "".join(document + "<|endoftext|>" for document in DOCUMENTS)


@pytest.mark.parametrize("separator", [None, "\n\n", "=="])
def test_plain_text_is_cut_into_documents(
    tmp_path: Path, make: Make, separator: str | None
) -> None:
    (tmp_path / "a.txt").write_text((separator or "\n").join(DOCUMENTS))
    unit = DocumentUnit.separator if separator else DocumentUnit.line
    text = text_of(make(tmp_path / "a.txt", {"document": unit, "separator": separator}))
    assert text == "".join(document + "<|endoftext|>" for document in DOCUMENTS)


def test_conversations_of_parquet_are_masked(tmp_path: Path, make: Make) -> None:
    talk = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    parquet.write_table(arrow.Table.from_pylist([{"talk": talk}] * 50), tmp_path / "a.parquet")
    options = {"seq_len": 64, "packing": Packing.none}
    made = dataset(prepare(make(tmp_path / "a.parquet", {"messages_field": "talk"}, **options)))
    rows = made.read(0, 1)
    assert made.decode(rows.tokens[0, 1:][rows.loss_mask[0]]) == "hello<|end|>"


@register("corpus", "counted")
def counted(count: int, field: str | None = None) -> Any:
    for number in range(count):
        text = f"document {number}"
        yield {field: text} if field else text


def custom(tmp_path: Path, **corpus: Any) -> Data:
    one = Corpus(kind=CorpusKind.custom, **{"name": "counted", "args": {"count": 30}, **corpus})
    return Data(
        corpora={"mine": one}, seq_len=8, validation_share=0.3, cache=str(tmp_path / "cache")
    )


def test_registered_corpus_is_read(tmp_path: Path) -> None:
    text = "".join(document + "<|endoftext|>" for document in DOCUMENTS)
    assert text_of(custom(tmp_path)) == text
    fields = {"text_field": "body", "args": {"count": 30, "field": "body"}}
    assert prepare(custom(tmp_path, **fields)).digest == prepare(custom(tmp_path)).digest


def test_registered_corpus_whose_documents_change_is_built_anew(tmp_path: Path) -> None:
    before = prepare(custom(tmp_path)).digest
    assert prepare(custom(tmp_path, args={"count": 31})).digest != before


def test_parquet_with_a_damaged_page_is_a_traceback(tmp_path: Path, make: Make) -> None:
    write_records(tmp_path / "a.parquet")
    content = bytearray((tmp_path / "a.parquet").read_bytes())
    for place in range(40, len(content) // 2, 3):
        content[place] ^= 0xFF
    (tmp_path / "a.parquet").write_bytes(content)
    refused(make(tmp_path / "a.parquet", {"text_field": "body"}), r"a\.parquet is no parquet file")


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: iter([3]), "document 0 of wrong is int: yield a str, or a dict"),
        (lambda: iter([b"abc"]), "document 0 of wrong is bytes"),
        (lambda: iter([{3: "a", "text": "b"}]), "document 0 of wrong is dict"),
        (lambda: None, r"own\.name=wrong failed with TypeError: 'NoneType' object is not iterable"),
        (
            lambda: [1 / 0],
            r"ZeroDivisionError: division by zero \(test_prepare\.py:\d+, <lambda>\)",
        ),
        (sys.exit, r"own\.name=wrong failed with SystemExit"),
    ],
)
def test_a_corpus_of_the_users_that_yields_no_text_is_a_traceback(
    made: Any, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._REGISTERED, ("corpus", "wrong"), made)
    own = Corpus(kind=CorpusKind.custom, name="wrong")
    refused(Data(corpora={"own": own}, seq_len=8, cache=str(tmp_path / "cache")), said)


def test_missing_datasets_package_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    data = Data(corpora={"hf": Corpus(kind=CorpusKind.hf_dataset, path="x")}, cache="nowhere")
    with pytest.raises(ConfigError, match=r"pip install 'ringshard\[datasets\]'"):
        prepare(data)


def test_hf_dataset_of_a_folder(make: Make, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    (tmp_path / "set").mkdir()
    write_records(tmp_path / "set" / "train.jsonl")
    corpus = Corpus(kind=CorpusKind.hf_dataset, path=str(tmp_path / "set"), text_field="body")
    data = replace(make(""), corpora={"hf": corpus})
    before = prepare(data)
    assert text_of(data) == "".join(document + "<|endoftext|>" for document in DOCUMENTS)
    with (tmp_path / "set" / "train.jsonl").open("a") as file:
        file.write('{"body": "more", "id": 99}\n')
    assert prepare(data).digest != before.digest


def hub(commit: str) -> SimpleNamespace:
    """Stands in for the datasets package and its hub, which a test does not reach."""

    def load_dataset(path: str, name: str | None, split: str, streaming: bool) -> Any:
        assert split == "train" and streaming
        return [{"text": document} for document in DOCUMENTS]

    builder = SimpleNamespace(hash=commit, config_id="default")
    return SimpleNamespace(load_dataset_builder=lambda *_: builder, load_dataset=load_dataset)


def test_data_set_of_the_hub_is_read_and_built_anew_for_another_commit(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = Corpus(kind=CorpusKind.hf_dataset, path="roneneldan/TinyStories")
    data = replace(make(""), corpora={"hf": corpus})
    monkeypatch.setitem(sys.modules, "datasets", hub("5a1b"))
    assert text_of(data) == "".join(document + "<|endoftext|>" for document in DOCUMENTS)
    prepare(data)
    assert len(stores(data)) == 1
    monkeypatch.setitem(sys.modules, "datasets", hub("77c0"))
    prepare(data)
    assert len(stores(data)) == 2


def test_source_that_changes_while_it_is_read_is_refused(
    texts: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = corpora.files.text

    def meddling(path: Path) -> Any:
        (texts / "39.txt").write_text("changed meanwhile")
        return read(path)

    monkeypatch.setattr(corpora.files, "text", meddling)
    with pytest.raises(ConfigError, match=r"data\.corpora\.text changed while it was read"):
        prepare(make(texts))


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


LINE = '{"text": "some text that is long enough"}\n'


def refused(data: Data, sentence: str) -> None:
    """The sentence is told and nothing is left on disk."""
    with pytest.raises(ConfigError, match=sentence) as error:
        prepare(data)
    assert "\n" not in str(error.value) and not Path(data.cache).exists()


@pytest.mark.parametrize(
    ("name", "content", "corpus", "sentence"),
    [
        ("a.txt", "", {}, r"data\.corpora\.text has no text: give another"),
        ("a.txt", b"ab\xff", {}, r"a\.txt is no utf-8 text: byte 2 is 0xff"),
        ("a.jsonl", LINE + "{oops\n", {}, r"a\.jsonl:2 is no JSON"),
        ("a.jsonl", LINE + "[1]\n", {}, r"a\.jsonl:2 is no JSON object"),
        ("a.jsonl", b'{"text": "\xff"}', {}, r"a\.jsonl:1 is no JSON"),
        ("a.jsonl", LINE, {"text_field": "body"}, r"text_field=body is not in .*:1: it has text"),
        ("a.jsonl", '{"text": 3}', {}, r"text_field=text is int in .*:1: name a field that holds"),
        ("a.jsonl", LINE, {"prompt_field": "q"}, r"prompt_field=q is not in"),
        ("a.jsonl", '{"m": "hi"}', {"messages_field": "m"}, r":1: its messages are no list of"),
        ("a.jsonl", '{"m": []}', {"messages_field": "m"}, r"has no token to learn"),
        ("a.jsonl.gz", LINE, {}, r"a\.jsonl\.gz is no intact \.gz file"),
        ("a.parquet", "PAR", {}, r"a\.parquet is no parquet file"),
        ("a.jsonl", "[" * 200_000, {}, r"a\.jsonl:1 is no JSON"),
        ("a.txt", "x", {"text_field": "body"}, r"text_field=body has no effect on plain text"),
        ("a.jsonl", LINE, {"document": DocumentUnit.line}, r"document=line has no effect on \.j"),
    ],
)  # fmt: skip
def test_bad_input_is_told_and_leaves_nothing(
    tmp_path: Path, make: Make, name: str, content: Any, corpus: dict[str, Any], sentence: str
) -> None:
    refused(make(write(tmp_path / name, content), corpus), sentence)


def test_parquet_column_that_is_missing_or_no_text_is_told(tmp_path: Path, make: Make) -> None:
    write_records(tmp_path / "a.parquet")
    refused(make(tmp_path / "a.parquet"), r"text_field=text is not in .*: it has body, id")
    refused(make(tmp_path / "a.parquet", {"text_field": "id"}), r"text_field=id is int in .*row 0")


CORPUS = {"a": Corpus(kind=CorpusKind.python_stdlib)}
BPE = Tokenizer(kind=TokenizerKind.bpe, vocab_size=256)


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (Data(), r"data\.corpora is empty"),
        (Data(corpora={"a/b": Corpus(path="x")}), r"data\.corpora\.a/b names files"),
        (Data(corpora=CORPUS, seq_len=0), r"data\.seq_len=0 must be 1 or more"),
        (Data(corpora=CORPUS, validation_share=0.0), r"validation_share=0\.0 must lie between"),
        (Data(corpora=CORPUS, validation_share=1.0), r"validation_share=1\.0 must lie between"),
        (Data(corpora=CORPUS, path="x"), r"data\.path=x has no effect"),
        (Data(corpora=CORPUS, tokenizer=BPE), r"vocab_size=256 is too small.*need 257"),
        (Data(corpora=CORPUS, tokenizer=Tokenizer(kind=TokenizerKind.bpe)), r"size is missing"),
        (Data(corpora=CORPUS, tokenizer=Tokenizer(path="x")), r"tokenizer\.path=x has no effect"),
        (Data(corpora={"a": Corpus()}), r"data\.corpora\.a\.path is missing"),
        (Data(corpora={"a": Corpus(path="x", weight=0)}), r"a\.weight=0 must be above 0"),
        (Data(corpora={"a": Corpus(path="none.txt")}), r"a\.path=none\.txt matches no file"),
        (Data(corpora={"a": Corpus(path="x", subset="y")}), r"a\.subset=y has no effect"),
        (Data(corpora={"a": Corpus(path="x", separator="y")}), r"a\.separator=y and docu"),
        (Data(corpora={"a": Corpus(kind=CorpusKind.custom, name="new")}), r"new is not registered"),
    ],
)  # fmt: skip
def test_bad_settings_are_told_before_anything_is_read(
    data: Data, sentence: str, tmp_path: Path
) -> None:
    refused(replace(data, cache=str(tmp_path / "deep" / "cache")), sentence)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("there", [False, True])
def test_folder_without_tokenizer_is_told(texts: Path, make: Make, there: bool) -> None:
    folder = texts if there else texts / "none"
    tokenizer = Tokenizer(kind=TokenizerKind.directory, path=str(folder))
    refused(make(texts, tokenizer=tokenizer), r"data\.tokenizer\.path=.* holds no tokenizer")


def test_text_too_short_for_the_rows_is_told(tmp_path: Path, make: Make) -> None:
    whole = {"packing": Packing.concat}
    path = write(tmp_path / "a.txt", "some text")
    with pytest.raises(ConfigError, match=r"data\.seq_len=16 is too long for data\.corpora\.text"):
        prepare(make(path, **whole))
    path = write(tmp_path / "a.txt", "some text " * 20)
    with pytest.raises(ConfigError, match=r"share=0\.2 of 201 tokens in 1 document leaves no row"):
        prepare(make(path, **whole))
    assert prepare(make(path, split=Split.position, **whole)).validation_rows == 2


@pytest.mark.parametrize("packing", [Packing.documents, Packing.none])
def test_documents_too_few_or_too_short_are_told(
    tmp_path: Path, make: Make, packing: Packing
) -> None:
    path = write(tmp_path / "a.txt", "some text")
    with pytest.raises(ConfigError, match="leaves no document of two tokens or more for valid"):
        prepare(make(path, packing=packing))
    path = write(tmp_path / "a.txt", "x")
    one = {"split": Split.position, "tokenizer": Tokenizer(kind=TokenizerKind.characters)}
    sentence = rf"data\.packing={packing.name} finds no document of two tokens or more to train on"
    with pytest.raises(ConfigError, match=sentence):
        prepare(make(path, packing=packing, **one))


def run(job: Job) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "ringshard.data.prepare"],
        input=json.dumps(plain(job)),
        text=True,
        capture_output=True,
    )


def job_of(data: Data, tmp_path: Path, code: str) -> Job:
    (tmp_path / "own.py").write_text(code)
    return Job(data=data, output=Output(str(tmp_path), "x"), user=User(["own"], str(tmp_path)))


OWN = """
import os, signal
from pathlib import Path
from ringshard.registry import register

@register("corpus", "own")
def own(kill):
    reads = Path(__file__).with_name("reads")
    reads.write_text(reads.read_text() + "x" if reads.exists() else "x")
    for number in range(100):
        yield f"document {number}"
    if kill and len(reads.read_text()) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_command_prints_what_the_function_returns(tmp_path: Path) -> None:
    data = custom(tmp_path, name="own", args={"kill": False})
    done = run(job_of(data, tmp_path, OWN))
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout.splitlines()[-1])
    assert printed["vocab_size"] == 257 and Path(printed["prepared"]).is_dir()
    assert "Preparing mine: 100 documents" in done.stderr and "\x1b" not in done.stderr


def test_command_tells_a_mistake_in_one_sentence(tmp_path: Path) -> None:
    done = run(job_of(custom(tmp_path, name="other"), tmp_path, OWN))
    assert done.returncode == 2 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and "corpus other is not registered" in done.stderr
    assert not (tmp_path / "cache").exists()


def test_job_prints_where_the_data_lie(texts: Path, tmp_path: Path) -> None:
    jobs = Path(__file__).parents[2] / "jobs" / "prepare.py"
    overrides = ["-m", "data=text_files", f"data.path={texts}", "data.seq_len=16,32"]
    command = [sys.executable, str(jobs), *overrides, f"output.root={tmp_path / 'out'}"]
    done = subprocess.run(command, text=True, capture_output=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    folders = [Path(line.split()[1]) for line in done.stdout.splitlines() if "prepared" in line]
    assert len(set(folders)) == 2 and all(folder.is_dir() for folder in folders)


def test_killed_preparation_leaves_nothing_that_is_taken_for_a_store(tmp_path: Path) -> None:
    data = custom(tmp_path, name="own", args={"kill": True})
    job = job_of(data, tmp_path, OWN)
    assert run(job).returncode == -signal.SIGKILL
    assert not [name for name in stores(data) if not name.startswith(".")]
    done = run(job)
    assert done.returncode == 0, done.stderr
    assert len(stores(data)) == 1 and json.loads(done.stdout)["documents"] == 100


def test_no_module_of_data_imports_torch() -> None:
    code = (
        "import sys, pkgutil, importlib, ringshard.data as d\n"
        "for m in pkgutil.iter_modules(d.__path__):\n"
        "    importlib.import_module('ringshard.data.' + m.name)\n"
        "assert not {'torch', 'transformers', 'hydra', 'omegaconf', 'mlflow'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
