"""Adapters (LoRA) of the models of an engine, by status codes."""

from __future__ import annotations

from headrace.allspark.core import engine_api
from headrace.allspark.enums import AsStatus
from headrace.allspark.serving.installed_model import InstalledModel
from headrace.allspark.serving.lora import adapter_name
from headrace.allspark.serving.model_calls import ModelCalls, fail
from headrace.quoting import quoted


class AdapterCalls(ModelCalls):
    """The part of AsEngine that is about adapters."""

    def load_lora(self, model_name: str, lora_name: str) -> AsStatus:
        """Reads a PEFT folder (adapter_config.json, adapter_model.safetensors) for requests to use.

        lora_name: the folder's path, or its name if it is in or beside the folder of the model's
            weights, or was given to a loader's lora_cfg. Requests say `lora_name` with the same
            text, or with the last part of the path.

        ALLSPARK_LORA_ALREADY_LOADED, ALLSPARK_LORA_IN_USE (loaded, and requests use it),
        ALLSPARK_LORA_NOT_FOUND (no such folder), ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR,
        ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR, ALLSPARK_PARAM_ERROR (no adapter of this model).
        """
        model = self._find(model_name)
        if model is None:
            return AsStatus.ALLSPARK_PARAM_ERROR
        if not lora_name:
            return fail(AsStatus.ALLSPARK_PARAM_ERROR, "load_lora: the name is empty")
        name = adapter_name(lora_name)
        loaded = self._adapters(model)
        if name in loaded:
            return fail(_taken(loaded[name]), f"load_lora: {quoted(name)} is loaded already")
        folder = self.adapters.find(lora_name, model.config.weights_path)
        if folder is None:
            status = AsStatus.ALLSPARK_LORA_NOT_FOUND
            return fail(status, f"load_lora: there is no folder {quoted(lora_name)}")
        try:
            self._engine.load_lora(model.name, name, str(folder))
        except engine_api.HeadraceError as error:
            return fail(_load_status(error, model, len(loaded)), f"load_lora: {error}")
        return AsStatus.ALLSPARK_SUCCESS

    def unload_lora(self, model_name: str, lora_name: str) -> AsStatus:
        """ALLSPARK_LORA_NOT_FOUND if it is not loaded, ALLSPARK_LORA_IN_USE if requests use it."""
        model = self._find(model_name)
        if model is None:
            return AsStatus.ALLSPARK_PARAM_ERROR
        try:
            self._engine.unload_lora(model.name, adapter_name(lora_name))
        except engine_api.HeadraceError as error:
            statuses = {
                "not_found": AsStatus.ALLSPARK_LORA_NOT_FOUND,
                "invalid_state": AsStatus.ALLSPARK_LORA_IN_USE,
            }
            return fail(
                statuses.get(error.code, engine_api.status_of(error)), f"unload_lora: {error}"
            )
        return AsStatus.ALLSPARK_SUCCESS

    def _adapters(self, model: InstalledModel) -> dict[str, int]:
        """The loaded ones by name, with the number of requests that use each."""
        try:
            return {info.name: info.live_requests for info in self._engine.loras(model.name)}
        except engine_api.HeadraceError:  # released meanwhile
            return {}


def _taken(live_requests: int) -> AsStatus:
    if live_requests > 0:
        return AsStatus.ALLSPARK_LORA_IN_USE
    return AsStatus.ALLSPARK_LORA_ALREADY_LOADED


def _load_status(error: engine_api.HeadraceError, model: InstalledModel, loaded: int) -> AsStatus:
    if error.code == "limit_exceeded":
        if loaded >= model.config.lora_max_num:
            return AsStatus.ALLSPARK_LORA_NUM_EXCEED_LIMIT_ERROR
        return AsStatus.ALLSPARK_LORA_RANK_EXCEED_LIMIT_ERROR
    if error.code == "invalid_state":  # somebody else loaded it meanwhile
        return AsStatus.ALLSPARK_LORA_ALREADY_LOADED
    return engine_api.status_of(error)
