"""Models of an engine by name, by status codes."""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable

from headrace import __version__
from headrace.allspark.core import engine_api
from headrace.allspark.core.as_model_config import AsModelConfig
from headrace.allspark.enums import AsStatus
from headrace.allspark.errors import AsException
from headrace.allspark.loading import packed_model
from headrace.allspark.loading.install_options import plan_installation
from headrace.allspark.serving.engine_stat import AsEngineStat, AsFileInfo, read_stat
from headrace.allspark.serving.installed_model import InstalledModel
from headrace.allspark.serving.lora import AdapterFolders
from headrace.quoting import quoted

logger = logging.getLogger("headrace")

# What a model that takes no requests answers, by its state.
REFUSING = {
    "INSTALLED": AsStatus.ALLSPARK_INVALID_CALL_ERROR,
    "STOPPING": AsStatus.ALLSPARK_REQUEST_DENIED,
    "STOPPED": AsStatus.ALLSPARK_REQUEST_DENIED,
    "FAILED": AsStatus.ALLSPARK_RUNTIME_ERROR,
}


class ModelCalls:
    """The part of AsEngine that is about models."""

    def __init__(self) -> None:
        self._engine = engine_api.Engine()
        self._lock = threading.Lock()
        self._models: dict[str, InstalledModel] = {}
        self.adapters = AdapterFolders()
        weakref.finalize(self, self._engine.close)
        logger.info("AllSpark Init with Version: %s", self.get_version_full())

    def _install(self, config: AsModelConfig) -> None:
        if not isinstance(config, AsModelConfig):
            raise TypeError(f"install_model takes an AsModelConfig, got {type(config).__name__}")
        plan = plan_installation(config)
        try:
            self._engine.install_model(config.model_name, engine_api.model_options(plan.options))
            info = self._engine.model_info(config.model_name)
        except engine_api.HeadraceError as error:
            raise AsException(engine_api.status_of(error), str(error)) from error
        with self._lock:
            self._models[config.model_name] = InstalledModel(config, info, self._engine)

    def start_model(self, model_name: str) -> AsStatus:
        """Warms the model up; then it takes requests. A stopped one can be started again."""
        return self._on_model(model_name, lambda model: self._engine.start_model(model.name))

    def stop_model(self, model_name: str) -> AsStatus:
        """Refuses new requests and waits for those in hand, queued ones too, to end.

        ALLSPARK_RUNTIME_ERROR if some of them have not been released by release_request (the model
        has stopped all the same), ALLSPARK_REQUEST_DENIED if it was stopping before.
        """
        model = self._find(model_name)
        if model is None:
            return AsStatus.ALLSPARK_PARAM_ERROR
        state = self._state(model)
        if state != "RUNNING":
            return fail(REFUSING[state], f"stop_model: {quoted(model_name)} is {state.lower()}")
        status = self._on_model(model_name, lambda model: self._engine.stop_model(model.name))
        left = len(model.handles())
        if status == AsStatus.ALLSPARK_SUCCESS and left:
            message = f"stop_model: {left} requests of {quoted(model_name)} have not been released"
            return fail(AsStatus.ALLSPARK_RUNTIME_ERROR, message)
        return status

    def release_model(self, model_name: str) -> AsStatus:
        """Ends what still runs and gives all memory of the model back."""
        with self._lock:
            model = self._models.pop(model_name, None)
        if model is None:
            return self._unknown(model_name)
        model.release_all()
        try:
            self._engine.release_model(model_name)
        except engine_api.HeadraceError as error:
            return fail(engine_api.status_of(error), f"release_model: {error}")
        return AsStatus.ALLSPARK_SUCCESS

    def unload_device_mem(self, model_name: str) -> None:
        """Not available on the CPU: raises AsException."""
        raise _no_swapping(model_name)

    def load_device_mem(self, model_name: str) -> None:
        """Not available on the CPU: raises AsException."""
        raise _no_swapping(model_name)

    def get_as_engine_stat(self, model_name: str) -> AsEngineStat:
        """The numbers of a model; all are 0 for one that isn't installed."""
        model = self._find(model_name)
        if model is not None:
            try:
                return read_stat(model_name, model.info, self._engine.model_stats(model_name))
            except engine_api.HeadraceError as error:
                fail(engine_api.status_of(error), f"get_as_engine_stat: {error}")
        return AsEngineStat(model_name=model_name)

    def get_model_info(self, model_name: str) -> str:
        """What is known of an installed model, a line for each. Raises AsException for no model."""
        model = self._find(model_name)
        if model is None:
            message = f"no model {quoted(model_name)} is installed"
            raise AsException(AsStatus.ALLSPARK_PARAM_ERROR, message)
        names = [name for name in dir(model.info) if not name.startswith("_")]
        return "\n".join(f"{name}: {getattr(model.info, name)}" for name in names)

    def get_op_profiling_info(self, model_name: str) -> str:
        return ""

    def get_file_information(self, as_graph_path: str, as_param_path: str) -> AsFileInfo:
        """The versions that wrote the files of serialize_to_path. Raises ValueError for others."""
        graph, param = packed_model.file_versions(as_graph_path, as_param_path)
        return AsFileInfo(graph, param, __version__)

    def get_version_full(self) -> str:
        return f"{__version__}/(GitSha1:headrace)"

    def get_rank_id(self) -> int:
        return 0

    def is_allspark_work_as_service(self) -> bool:
        return False

    def _find(self, model_name: str) -> InstalledModel | None:
        with self._lock:
            model = self._models.get(model_name)
        if model is None:
            self._unknown(model_name)
        return model

    @staticmethod
    def _unknown(model_name: str) -> AsStatus:
        return fail(AsStatus.ALLSPARK_PARAM_ERROR, f"no model {quoted(model_name)} is installed")

    def _state(self, model: InstalledModel) -> str:
        try:
            return self._engine.model_stats(model.name).state.name
        except engine_api.HeadraceError:  # released meanwhile
            return "STOPPED"

    def _on_model(self, model_name: str, action: Callable[[InstalledModel], object]) -> AsStatus:
        model = self._find(model_name)
        if model is None:
            return AsStatus.ALLSPARK_PARAM_ERROR
        try:
            action(model)
        except engine_api.HeadraceError as error:
            return fail(engine_api.status_of(error), str(error))
        return AsStatus.ALLSPARK_SUCCESS


def fail(status: AsStatus, message: str) -> AsStatus:
    logger.warning("%s (%s)", message, status.name)
    return status


def _no_swapping(model_name: str) -> AsException:
    return AsException(
        AsStatus.ALLSPARK_PARAM_ERROR,
        f"the weights of {quoted(model_name)} are in host memory and can't be swapped out: "
        "release_model gives the memory back",
    )
