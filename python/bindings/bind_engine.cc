#include <pybind11/stl.h>

#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "headrace/cpu.h"
#include "headrace/engine.h"
#include "headrace/gpu.h"
#include "headrace/output_selector.h"
#include "interpreter/engine_holder.h"
#include "interpreter/py_callback.h"
#include "interpreter/waiting.h"
#include "loading.h"
#include "short_repr.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

using std::chrono::nanoseconds;

std::shared_ptr<EngineHolder> make_engine(const std::optional<py::object>& log_sink) {
  EngineOptions options;
  if (log_sink) {
    options.log_sink = [callback = PyCallback(*log_sink)](LogLevel level, std::string_view text) {
      callback(log_level_name(level), text);
    };
  }
  return EngineHolder::make(std::move(options));
}

/// Calls `method` of the engine without the GIL.
template <class Method, class... Args>
auto without_gil(const EngineHolder& holder, Method method, Args&&... args) {
  const GilRelease release;
  const auto engine = holder.get();
  return ((*engine).*method)(std::forward<Args>(args)...);
}

std::vector<int32_t> to_token_ids(const std::vector<int64_t>& ids) {
  std::vector<int32_t> out;
  out.reserve(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] > std::numeric_limits<int32_t>::max()) {
      throw Error(ErrorCode::kInvalidArgument, "prompt_token_ids[" + std::to_string(i) + "] is " +
                                                   std::to_string(ids[i]) +
                                                   ", which is no token id.");
    }
    out.push_back(static_cast<int32_t>(ids[i]));
  }
  return out;
}

Request submit(const EngineHolder& holder, const std::string& model,
               const std::vector<int64_t>& prompt_token_ids, const SamplingParams& sampling,
               const std::string& request_id, int32_t priority,
               const std::optional<double>& timeout,
               const std::shared_ptr<TokenConstraint>& constraint, const std::string& lora_name,
               const std::optional<PoolingParams>& pooling, const std::vector<MediaInput>& media) {
  RequestOptions options;
  options.request_id = request_id;
  options.prompt_token_ids = to_token_ids(prompt_token_ids);
  options.sampling = sampling;
  options.priority = priority;
  options.timeout = to_timeout(timeout);
  options.constraint = constraint;
  options.lora_name = lora_name;
  options.pooling = pooling;
  options.media = media;
  return without_gil(holder, &Engine::submit, model, std::move(options));
}

std::optional<Output> get(ResultQueue& queue, const std::optional<double>& timeout) {
  std::optional<Output> out;
  try_then_wait(to_timeout(timeout), [&](std::optional<nanoseconds> slice) {
    out = slice ? queue.get(*slice) : queue.get();
    return out.has_value();
  });
  return out;
}

void on_output(ResultQueue& queue, const std::optional<py::object>& callback) {
  std::function<void()> function;
  if (callback) function = PyCallback(*callback);
  const GilRelease release;
  queue.on_output(std::move(function));
}

void install_model(const EngineHolder& holder, const std::string& name, const ModelOptions& options,
                   const std::optional<py::object>& progress) {
  struct User {
    std::shared_ptr<Engine> engine;
    ~User() {  // perhaps the last
      const GilRelease release;
      engine.reset();
    }
  } const user{holder.get()};
  run_load(
      options, progress, holder.closing(),
      [&](const ModelOptions& hooked) { user.engine->install_model(name, hooked); },
      [&] { user.engine->release_model(name); });
}

bool stop_model(const EngineHolder& holder, const std::string& name,
                const std::optional<double>& timeout) {
  return wait_interruptibly(to_timeout(timeout), [&](std::optional<nanoseconds> slice) {
    const auto engine = holder.get();
    if (slice) return engine->stop_model(name, *slice);
    engine->stop_model(name);
    return true;
  });
}

void bind_request(py::module_& module) {
  py::class_<ResultQueue>(module, "ResultQueue")
      .def("get", get, py::arg("timeout") = py::none())
      .def("get_nowait", &ResultQueue::get_nowait)
      .def("status", &ResultQueue::status)
      .def("finish_reason", &ResultQueue::finish_reason)
      .def("generated_length", &ResultQueue::generated_length)
      .def("stats", &ResultQueue::stats)
      .def("on_output", on_output, py::arg("callback").none(true));

  py::class_<Request>(module, "Request")
      .def_property_readonly("id", &Request::id)
      .def_property_readonly("seed", &Request::seed)
      .def("results", &Request::results)
      .def("cancel", &Request::cancel)
      .def(
          "wait",
          [](const Request& request, const std::optional<double>& timeout) {
            return try_then_wait(to_timeout(timeout), [&](std::optional<nanoseconds> slice) {
              if (slice) return request.wait(*slice);
              request.wait();
              return true;
            });
          },
          py::arg("timeout") = py::none());

  py::class_<OutputSelector>(module, "OutputSelector")
      .def(py::init())
      .def(
          "add",
          [](OutputSelector& selector, const ResultQueue& queue, int64_t tag, bool only_end) {
            using Until = OutputSelector::Until;
            selector.add(queue, tag, only_end ? Until::kFinished : Until::kOutput);
          },
          py::arg("queue"), py::arg("tag"), py::kw_only(), py::arg("only_end") = false)
      .def("remove", &OutputSelector::remove, py::arg("tag"))
      .def("wake", &OutputSelector::wake)
      .def("take", [](OutputSelector& selector) { return selector.take(); })
      .def("fileno", &OutputSelector::ready_fd)
      .def(
          "wait",
          [](OutputSelector& selector, const std::optional<double>& timeout) {
            try_then_wait(to_timeout(timeout),
                          [&](std::optional<nanoseconds> slice) { return selector.wait(slice); });
            return selector.take();
          },
          py::arg("timeout") = py::none());
}

void bind_engine_class(py::module_& module) {
  using H = EngineHolder;
  py::class_<H, std::shared_ptr<H>>(module, "Engine")
      .def(py::init(&make_engine), py::kw_only(), py::arg("log_sink") = py::none())
      .def("install_model", install_model, py::arg("name"), py::arg("options"), py::kw_only(),
           py::arg("progress") = py::none())
      .def(
          "start_model",
          [](const H& holder, const std::string& name) {
            without_gil(holder, &Engine::start_model, name);
          },
          py::arg("name"))
      .def("stop_model", stop_model, py::arg("name"), py::arg("timeout") = py::none())
      .def(
          "release_model",
          [](const H& holder, const std::string& name) {
            without_gil(holder, &Engine::release_model, name);
          },
          py::arg("name"))
      .def("submit", submit, py::arg("model"), py::kw_only(), py::arg("prompt_token_ids"),
           py::arg("sampling"), py::arg("request_id") = "", py::arg("priority") = 0,
           py::arg("timeout") = py::none(), py::arg("constraint") = py::none(),
           py::arg("lora_name") = "", py::arg("pooling") = py::none(),
           py::arg("media") = py::tuple())
      .def(
          "load_lora",
          [](const H& holder, const std::string& model, const std::string& name,
             const std::string& path) {
            without_gil(holder, &Engine::load_lora, model, name, path);
          },
          py::arg("model"), py::arg("name"), py::arg("path"))
      .def(
          "unload_lora",
          [](const H& holder, const std::string& model, const std::string& name) {
            without_gil(holder, &Engine::unload_lora, model, name);
          },
          py::arg("model"), py::arg("name"))
      .def(
          "loras",
          [](const H& holder, const std::string& model) {
            return without_gil(holder, &Engine::loras, model);
          },
          py::arg("model"))
      .def(
          "model_info",
          [](const H& holder, const std::string& name) {
            return without_gil(holder, &Engine::model_info, name);
          },
          py::arg("name"))
      .def(
          "model_stats",
          [](const H& holder, const std::string& name) {
            return without_gil(holder, &Engine::model_stats, name);
          },
          py::arg("name"))
      .def("models", [](const H& holder) { return without_gil(holder, &Engine::models); })
      .def(
          "clear_prefix_cache",
          [](const H& holder, const std::string& name) {
            without_gil(holder, &Engine::clear_prefix_cache, name);
          },
          py::arg("name"))
      .def("close", [](H& holder) {
        const GilRelease release;
        holder.close();
      });
}

// Runs before the interpreter is torn down: no thread of ours touches Python afterwards.
void at_exit() {
  const GilRelease release;
  InterpreterGate::instance().close();
  EngineHolder::close_all();
}

}  // namespace

void bind_engine(py::module_& module) {
  bind_request(module);
  bind_engine_class(module);
  module.def("available_cpu_isas", available_cpu_isas);
  py::class_<CpuIsaInfo>(module, "CpuIsaInfo")
      .def_readonly("name", &CpuIsaInfo::name)
      .def_readonly("missing", &CpuIsaInfo::missing)
      .def("__repr__", short_repr);
  py::class_<CpuInfo>(module, "CpuInfo")
      .def_readonly("brand", &CpuInfo::brand)
      .def_readonly("isa", &CpuInfo::isa)
      .def_readonly("isas", &CpuInfo::isas)
      .def_readonly("cores", &CpuInfo::cores)
      .def_readonly("num_threads", &CpuInfo::num_threads)
      .def_readonly("numa_nodes", &CpuInfo::numa_nodes)
      .def_readonly("huge_pages", &CpuInfo::huge_pages)
      .def("__repr__", short_repr);
  module.def("describe_cpu", describe_cpu);
  py::class_<GpuInfo>(module, "GpuInfo")
      .def_readonly("device", &GpuInfo::device)
      .def_readonly("name", &GpuInfo::name)
      .def_readonly("compute_capability", &GpuInfo::compute_capability)
      .def_readonly("total_bytes", &GpuInfo::total_bytes)
      .def_readonly("unusable", &GpuInfo::unusable)
      .def("__repr__", short_repr);
  module.def("describe_gpus", [] {
    const GilRelease release;
    return describe_gpus();
  });
  module.def(
      "model_family",
      [](const std::string& folder) {
        const GilRelease release;
        return describe_model(folder);
      },
      py::arg("folder"));
  py::module_::import("atexit").attr("register")(py::cpp_function(at_exit));
}

}  // namespace headrace::python
