"""Every name, value, signature and default of support/allspark_reference.py is there."""

from __future__ import annotations

import importlib
import inspect
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import allspark_reference as reference
import pytest

import headrace
from headrace import allspark
from headrace.allspark.loading import environment
from headrace.allspark.serving.generation_fields import GenerationFields

PACKAGE = Path(headrace.__file__).parents[1]


def classes() -> dict[str, Any]:
    modules = [importlib.import_module("headrace.allspark" + name) for name in reference.IMPORTS]
    return {name: value for module in modules for name, value in vars(module).items()}


def star(*modules: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    for module in modules:
        exec(f"from {module} import *", names)
    return names


def plain(signature: inspect.Signature) -> str:
    """Without annotations."""
    bare = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    return str(inspect.Signature(bare))


@pytest.mark.parametrize("module", reference.IMPORTS)
def test_imports(module: str) -> None:
    found = importlib.import_module("headrace.allspark" + module)
    missing = [name for name in reference.IMPORTS[module] if not hasattr(found, name)]
    assert not missing


def test_star_imports() -> None:
    assert set(reference.STAR) <= set(star("headrace.allspark"))
    both = star("headrace.allspark", "headrace.allspark.engine")
    assert set(reference.STAR_ON_THE_PAGE) <= set(both)
    assert set(reference.IMPORTS[".engine"]) <= set(star("headrace.allspark.engine"))


@pytest.mark.parametrize("name", reference.ENUMS)
def test_enums(name: str) -> None:
    enum = classes()[name]
    assert {n: member.value for n, member in enum.__members__.items()} == reference.ENUMS[name]
    for member in enum:
        assert str(member) == f"{name}.{member.name}"
        assert f"{member}" == str(member)


@pytest.mark.parametrize(
    ("owner", "method"),
    [(owner, method) for owner, methods in reference.SIGNATURES.items() for method in methods],
)
def test_signatures(owner: str, method: str) -> None:
    found = inspect.signature(getattr(classes()[owner], method))
    assert plain(found) == reference.SIGNATURES[owner][method]


def test_setters_are_fluent() -> None:
    builder = allspark.ASGenerationConfigBuilder()
    for name in reference.FLUENT_SETTERS:
        assert getattr(builder, name)(1) is builder
        assert builder.build()[name] == 1
    assert builder.update({"top_k": 3}) is builder
    assert builder.do_sample() is builder
    runtime = allspark.AsModelRuntimeConfigBuilder()
    assert runtime.max_length(5).max_batch(2).build().engine_max_length == 5


def test_defaults() -> None:
    config = allspark.AsModelConfig()
    assert {n: getattr(config, n) for n in reference.MODEL_CONFIG_DEFAULTS} == (
        reference.MODEL_CONFIG_DEFAULTS
    )
    keyword = allspark.AsModelConfig("name", "graph", "weights")
    assert (keyword.compute_unit, keyword.engine_max_length, keyword.engine_max_batch) == (
        "CUDA:0",
        0,
        0,
    )
    names = reference.MODEL_CONFIG_ORDER
    values = [f"value {i}" for i in range(len(names))]
    positional = allspark.AsModelConfig(*values)
    assert [getattr(positional, name) for name in names] == values
    with pytest.raises(TypeError, match="two values for 'num_threads'"):
        allspark.AsModelConfig(*values, num_threads=1)
    with pytest.raises(TypeError, match="at most"):
        allspark.AsModelConfig(*values, *values)
    generation = GenerationFields()
    assert {f.name: getattr(generation, f.name) for f in fields(generation)} == (
        reference.GENERATION_DEFAULTS
    )
    built = allspark.ASGenerationConfigBuilder(seed=5).build()
    assert built == {"do_sample": True, "seed": 5, "eos_token_id": 0}


def test_statistics_and_elements() -> None:
    from headrace.allspark.engine import RequestStatInfo

    values = {name: number for number, name in enumerate(reference.REQUEST_STAT_KEYS)}
    info = RequestStatInfo(values)
    for name, value in values.items():
        assert getattr(info, reference.REQUEST_STAT_ATTRIBUTES.get(name, name)) == value
    assert {key.value for key in RequestStatInfo.Key} == set(reference.REQUEST_STAT_KEYS)

    stat = allspark.AsEngineStat()
    assert all(hasattr(stat, name) for name in reference.ENGINE_STAT_ATTRIBUTES)
    known = {*reference.ENGINE_STAT_ATTRIBUTES, *reference.ENGINE_STAT_ONLY_IN_DICT}
    assert set(stat.dict()) == known
    assert all(isinstance(value, str) for value in stat.dict().values())
    assert "pendding_request" in stat.ToString()

    element = allspark.GeneratedElements()
    assert all(hasattr(element, name) for name in reference.ELEMENT_ATTRIBUTES)
    file_info = allspark.AsFileInfo("1", "2", "3")
    assert [getattr(file_info, name) for name in reference.FILE_INFO] == ["1", "2", "3"]


def test_environment_table() -> None:
    for name, default in reference.ENVIRONMENT.items():
        assert environment.VARIABLES[name].default == default, name


def test_chatml() -> None:
    from headrace.allspark.prompt_utils import PromptTemplate

    assert PromptTemplate.apply_chatml_template("a{b}") == (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        "<|im_start|>user\na{b}<|im_end|>\n<|im_start|>assistant \n"
    )


def test_importing_prints_nothing_and_needs_no_torch() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from headrace.allspark import *; from headrace.allspark.engine import *\n"
            "assert not {'torch', 'numpy', 'transformers'} & set(sys.modules)",
        ],
        env={**os.environ, "PYTHONPATH": str(PACKAGE)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_names_of_torch_without_torch() -> None:
    from headrace.allspark import engine

    if importlib.util.find_spec("torch") is not None:
        pytest.skip("torch is installed")
    with pytest.raises(AttributeError, match="torch is not installed"):
        engine.torch  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        engine.nothing  # noqa: B018


def test_names_of_torch_come_with_the_star_import(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("class Tensor: pass\n")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from headrace.allspark.engine import *\nprint(torch.__name__, Tensor is torch.Tensor)",
        ],
        env={**os.environ, "PYTHONPATH": f"{PACKAGE}{os.pathsep}{tmp_path}"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "torch True\n", done.stderr


@pytest.mark.parametrize("name", ["save_allsparky_dltensor_tofile", "set_global_header"])
def test_converters_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="reads safetensors"):
        getattr(allspark, name)("file")


def test_pickles() -> None:
    import pickle

    for value in (
        allspark.AsStatus.ALLSPARK_SUCCESS,
        allspark.AsFileInfo("1", "2", "3"),
        headrace.SamplingParams(seed=3),
        headrace.LoRARequest("a", 1, "path"),
    ):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)
    # By the public path too, which is what programs may have stored.
    assert pickle.loads(b"cheadrace.allspark.enums\nAsStatus\n.") is allspark.AsStatus
    # Or by where the classes used to be.
    assert pickle.loads(b"cheadrace.compat.allspark.enums\nAsStatus\n.") is allspark.AsStatus
