"""Requests to the models of an engine, by status codes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from headrace.allspark.core import engine_api
from headrace.allspark.enums import AsStatus
from headrace.allspark.serving.adapter_calls import AdapterCalls
from headrace.allspark.serving.generation_fields import Refusal, read_fields, verify
from headrace.allspark.serving.installed_model import InstalledModel, RequestHandle
from headrace.allspark.serving.lora import adapter_name
from headrace.allspark.serving.model_calls import REFUSING, fail
from headrace.allspark.serving.multimedia import media_inputs
from headrace.allspark.serving.results import ResultQueue
from headrace.allspark.serving.sampling import sampling_values
from headrace.allspark.serving.token_ids import TokenIdsError, read_rows
from headrace.native import GenerationConfig
from headrace.quoting import quoted

Started = tuple[AsStatus, RequestHandle | None, ResultQueue | None]
Handles = RequestHandle | list[RequestHandle] | tuple[RequestHandle, ...] | None


class RequestCalls(AdapterCalls):
    """The part of AsEngine that is about requests."""

    def _start_request(
        self, model_name: str, inputs: Mapping[str, Any], generate_config: Mapping[str, Any]
    ) -> Started:
        try:
            handle = self._submit(model_name, inputs, generate_config)
        except Refusal as refusal:
            return fail(refusal.status, f"start_request: {refusal}"), None, None
        return AsStatus.ALLSPARK_SUCCESS, handle, handle.queue

    def _submit(
        self, model_name: str, inputs: Mapping[str, Any], generate_config: Mapping[str, Any]
    ) -> RequestHandle:
        model = self._find(model_name)
        if model is None:
            raise Refusal(
                AsStatus.ALLSPARK_PARAM_ERROR, f"no model {quoted(model_name)} is installed"
            )
        fields = read_fields(generate_config)
        prompt = verify(
            fields,
            _read_inputs(inputs),
            model.config.engine_max_length,
            model.config.engine_max_batch,
        )
        values = sampling_values(
            fields, len(prompt), model.info.eos_token_ids, model.info.vocab_size
        )
        try:
            media = []
            if fields.mm_info is not None:
                media = media_inputs(fields.mm_info, prompt, model.info.hidden_size)
            request = self._engine.submit(
                model.name,
                prompt,
                GenerationConfig(**values),
                request_id=fields.uuid,
                guided=fields.response_format or None,
                lora=self._adapter(model, fields.lora_name),
                media=media,
            )
        except engine_api.HeadraceError as error:
            raise Refusal(self._submit_status(model, error), str(error)) from error
        except (OverflowError, TypeError, ValueError) as error:
            raise Refusal(AsStatus.ALLSPARK_PARAM_ERROR, str(error)) from error
        return model.add(request)

    def _adapter(self, model: InstalledModel, lora_name: str) -> str:
        name = adapter_name(lora_name)
        if lora_name and name not in self._adapters(model):
            raise Refusal(
                AsStatus.ALLSPARK_LORA_NOT_FOUND, f"no adapter {quoted(lora_name)} is loaded"
            )
        return name

    def _submit_status(self, model: InstalledModel, error: engine_api.HeadraceError) -> AsStatus:
        if error.code != "invalid_state":
            return engine_api.status_of(error)
        # A model that runs by now was released or started meanwhile.
        return REFUSING.get(self._state(model), AsStatus.ALLSPARK_REQUEST_DENIED)

    def stop_request(self, model_name: str, request_handle: Handles) -> AsStatus:
        """Ends a request and returns once it has; what it generated stays in its queue.

        A list of handles stands for each of them, here and below.
        """
        return self._on_requests(model_name, request_handle, InstalledModel.stop)

    def release_request(self, model_name: str, request_handle: Handles) -> AsStatus:
        """Ends a request, if it runs, and gives all of it back but the queue, which stays readable.

        ALLSPARK_ILLEGAL_REQUEST_ID if it was released before.
        """
        return self._on_requests(model_name, request_handle, InstalledModel.release)

    def sync_request(self, model_name: str, request_handle: Handles) -> AsStatus:
        """Waits until a request has ended; None waits for all the model has now."""
        if request_handle is None:
            model = self._find(model_name)
            if model is None:
                return AsStatus.ALLSPARK_PARAM_ERROR
            for handle in model.handles():
                handle.sync()
            return AsStatus.ALLSPARK_SUCCESS
        return self._on_requests(model_name, request_handle, InstalledModel.sync)

    def _on_requests(
        self,
        model_name: str,
        handles: Handles,
        action: Callable[[InstalledModel, RequestHandle], bool],
    ) -> AsStatus:
        """ALLSPARK_ILLEGAL_REQUEST_ID if one is unknown, after all have been tried."""
        model = self._find(model_name)
        if model is None:
            return AsStatus.ALLSPARK_PARAM_ERROR
        if handles is None:
            return AsStatus.ALLSPARK_EMPTY_REQUEST
        each = handles if isinstance(handles, (list, tuple)) else [handles]
        for handle in each:
            if not isinstance(handle, RequestHandle):
                raise TypeError(f"not a request handle: {quoted(handle)}")
        done = [action(model, handle) for handle in each]
        if all(done):
            return AsStatus.ALLSPARK_SUCCESS
        message = (
            f"not a request of {quoted(model_name)}, or released: {quoted(each[done.index(False)])}"
        )
        return fail(AsStatus.ALLSPARK_ILLEGAL_REQUEST_ID, message)


def _read_inputs(inputs: Mapping[str, Any]) -> list[list[int]]:
    if not isinstance(inputs, Mapping) or "input_ids" not in inputs:
        raise Refusal(AsStatus.ALLSPARK_PARAM_ERROR, 'inputs must be a dict with "input_ids" in it')
    try:
        return read_rows(inputs["input_ids"])
    except TokenIdsError as error:
        raise Refusal(AsStatus.ALLSPARK_PARAM_ERROR, str(error)) from error
