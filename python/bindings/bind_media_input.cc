#include <pybind11/stl.h>

#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings.h"
#include "headrace/media_input.h"
#include "headrace/status.h"
#include "interpreter/interpreter_gate.h"
#include "interpreter/locked_bytes.h"
#include "short_repr.h"

namespace py = pybind11;

namespace headrace::python {

namespace {

constexpr size_t kTableSize = 768;

using Grid = std::array<int32_t, 3>;

MediaRun make_run(int32_t position, int32_t count, int32_t first_row,
                  const std::optional<Grid>& grid, std::vector<int32_t> steps) {
  MediaRun run{position, count, first_row, {}, std::move(steps)};
  if (grid) run.grid = {(*grid)[0], (*grid)[1], (*grid)[2]};
  return run;
}

/// float32 numbers [rows, n] or [1 + added, rows, n], which are copied.
EmbeddingInput to_embeddings(const py::object& given) {
  const auto info = given.cast<py::buffer>().request();
  const bool is_floats =
      info.item_type_is_equivalent_to<float>() && (info.ndim == 2 || info.ndim == 3);
  if (!is_floats || PyBuffer_IsContiguous(info.view(), 'C') == 0) {
    throw py::type_error(
        "embeddings must be float32 numbers in C order, [rows, hidden_size] or "
        "[1 + added, rows, hidden_size], such as an array of numpy");
  }
  const auto size = [&](py::ssize_t axis) {
    const py::ssize_t count = info.shape[static_cast<size_t>(axis)];
    if (count < 1 || count > (py::ssize_t{1} << 30)) {
      throw Error(ErrorCode::kInvalidArgument,
                  "embeddings: a side of " + std::to_string(count) + " is no size of rows.");
    }
    return static_cast<int32_t>(count);
  };
  const py::ssize_t last = info.ndim - 1;
  EmbeddingInput out;
  out.rows = size(last - 1);
  out.added = info.ndim == 3 ? size(0) - 1 : 0;
  static_cast<void>(size(last));
  const auto* const first = static_cast<const float*>(info.ptr);
  const auto count = static_cast<size_t>(info.size);
  const GilRelease release;
  out.values = std::make_shared<const std::vector<float>>(first, first + count);
  return out;
}

PixelInput to_pixels(const py::object& given, const PatchLayout& layout, const py::object& table) {
  static_cast<void>(patch_values(layout));  // the layout's numbers are in bounds
  const LockedBytes source(given), levels(table);
  const auto count = static_cast<size_t>(3 * layout.frames * layout.height * layout.width);
  source.require("pixels", count);
  levels.require("table", kTableSize * sizeof(float));
  PixelInput out;
  out.layout = layout;
  out.table.resize(kTableSize);
  std::memcpy(out.table.data(), levels.data(), kTableSize * sizeof(float));
  const GilRelease release;
  out.data = std::make_shared<const std::vector<uint8_t>>(source.data(), source.data() + count);
  return out;
}

std::array<uint64_t, 4> to_key(const py::bytes& given) {
  const std::string_view bytes = given;
  std::array<uint64_t, 4> key{};
  if (bytes.size() != sizeof key) {
    throw Error(ErrorCode::kInvalidArgument,
                "key must have 32 bytes, got " + std::to_string(bytes.size()) + ".");
  }
  std::memcpy(key.data(), bytes.data(), sizeof key);
  return key;
}

MediaInput make_input(bool video, std::vector<MediaRun> runs,
                      const std::optional<py::object>& pixels, int64_t frames, int64_t height,
                      int64_t width, int32_t patch_size, int32_t merge_size,
                      int32_t temporal_patch_size, const std::optional<py::object>& table,
                      const std::optional<py::object>& embeddings,
                      const std::optional<py::bytes>& key) {
  MediaInput out;
  out.video = video;
  out.runs = std::move(runs);
  if (pixels.has_value() != table.has_value()) {
    throw Error(ErrorCode::kInvalidArgument,
                "pixels and table go together: give both, or embeddings.");
  }
  if (pixels) {
    out.pixels = to_pixels(
        *pixels, {frames, height, width, patch_size, merge_size, temporal_patch_size}, *table);
  }
  if (embeddings) out.embeddings = to_embeddings(*embeddings);
  if (key) out.key = to_key(*key);
  return out;
}

py::bytes key_of(const MediaInput& input) {
  return {reinterpret_cast<const char*>(input.key.data()), sizeof input.key};
}

}  // namespace

void bind_media_input(py::module_& module) {
  py::class_<MediaRun>(module, "MediaRun")
      .def(py::init(&make_run), py::arg("position"), py::arg("count"), py::arg("first_row") = 0,
           py::arg("grid") = py::none(), py::arg("steps") = std::vector<int32_t>())
      .def_readonly("position", &MediaRun::position)
      .def_readonly("count", &MediaRun::count)
      .def_readonly("first_row", &MediaRun::first_row)
      .def_property_readonly(
          "grid",
          [](const MediaRun& run) -> std::optional<std::tuple<int32_t, int32_t, int32_t>> {
            if (run.grid.t == 0) return std::nullopt;
            return std::tuple(run.grid.t, run.grid.h, run.grid.w);
          })
      .def_readonly("steps", &MediaRun::steps)
      .def("__repr__", short_repr);

  py::class_<MediaInput>(module, "MediaInput")
      .def(py::init(&make_input), py::arg("video"), py::arg("runs"), py::kw_only(),
           py::arg("pixels") = py::none(), py::arg("frames") = 1, py::arg("height") = 0,
           py::arg("width") = 0, py::arg("patch_size") = 14, py::arg("merge_size") = 2,
           py::arg("temporal_patch_size") = 1, py::arg("table") = py::none(),
           py::arg("embeddings") = py::none(), py::arg("key") = py::none())
      .def_readonly("video", &MediaInput::video)
      .def_readonly("runs", &MediaInput::runs)
      .def_property_readonly("key", key_of)
      .def("__repr__", short_repr);
}

}  // namespace headrace::python
