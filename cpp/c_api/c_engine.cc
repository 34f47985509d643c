#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "c_api/c_handles.h"
#include "c_api/c_options.h"
#include "c_api/c_struct.h"

using namespace headrace;
using namespace headrace::c_api;

namespace {

Engine& engine_of(headrace_engine* engine) { return deref(engine, "engine").engine; }

EngineOptions to_engine_options(const headrace_engine_options* given) {
  EngineOptions out;
  if (given == nullptr) return out;
  const auto in = read_struct(given, headrace_engine_options{}, "options");
  if (in.log != nullptr) {
    out.log_sink = [log = in.log, data = in.log_user_data](LogLevel level, std::string_view text) {
      log(data, static_cast<int32_t>(level), std::string(text).c_str());
    };
  }
  return out;
}

}  // namespace

void headrace_engine_options_init(headrace_engine_options* options, size_t size) {
  init_struct(options, size, headrace_engine_options{});
}

headrace_code headrace_engine_create(const headrace_engine_options* options,
                                     headrace_engine** engine) {
  return guarded([&] {
    headrace_engine*& out = deref(engine, "engine");
    out = new headrace_engine{Engine(to_engine_options(options))};
  });
}

void headrace_engine_destroy(headrace_engine* engine) { delete engine; }

headrace_code headrace_engine_install_model(headrace_engine* engine, const char* name,
                                            const headrace_model_options* options) {
  return guarded(
      [&] { engine_of(engine).install_model(or_empty(name), to_model_options(options)); });
}

headrace_code headrace_engine_start_model(headrace_engine* engine, const char* name) {
  return guarded([&] { engine_of(engine).start_model(or_empty(name)); });
}

headrace_code headrace_engine_stop_model(headrace_engine* engine, const char* name, int64_t timeout,
                                         int32_t* stopped) {
  return guarded([&] {
    bool done = true;
    if (const auto limit = to_timeout(timeout)) {
      done = engine_of(engine).stop_model(or_empty(name), *limit);
    } else {
      engine_of(engine).stop_model(or_empty(name));
    }
    if (stopped != nullptr) *stopped = done;
  });
}

headrace_code headrace_engine_release_model(headrace_engine* engine, const char* name) {
  return guarded([&] { engine_of(engine).release_model(or_empty(name)); });
}

headrace_code headrace_engine_clear_prefix_cache(headrace_engine* engine, const char* name) {
  return guarded([&] { engine_of(engine).clear_prefix_cache(or_empty(name)); });
}

headrace_code headrace_engine_load_lora(headrace_engine* engine, const char* name,
                                        const char* lora_name, const char* path) {
  return guarded(
      [&] { engine_of(engine).load_lora(or_empty(name), or_empty(lora_name), or_empty(path)); });
}

headrace_code headrace_engine_unload_lora(headrace_engine* engine, const char* name,
                                          const char* lora_name) {
  return guarded([&] { engine_of(engine).unload_lora(or_empty(name), or_empty(lora_name)); });
}

headrace_code headrace_engine_submit(headrace_engine* engine, const char* model,
                                     const headrace_request_options* options,
                                     headrace_request** request) {
  return guarded([&] {
    headrace_request*& out = deref(request, "request");
    std::shared_ptr<ForeignConstraint> constraint;
    RequestOptions request_options = to_request_options(options, constraint);
    Request made = engine_of(engine).submit(or_empty(model), std::move(request_options));
    if (constraint) constraint->accept();
    ResultQueue queue = made.results();
    out = new headrace_request{std::move(made), std::move(queue)};
  });
}
