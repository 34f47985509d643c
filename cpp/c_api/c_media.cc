#include "c_api/c_media.h"

#include <algorithm>
#include <memory>
#include <span>
#include <vector>

#include "c_api/c_array.h"
#include "c_api/c_struct.h"

namespace headrace::c_api {

namespace {

constexpr size_t kTableSize = 768;

headrace_media_input default_media_input() {
  const PatchLayout layout;
  headrace_media_input out{};
  out.frames = layout.frames;
  out.patch_size = layout.patch_size;
  out.merge_size = layout.merge_size;
  out.temporal_patch_size = layout.temporal_patch_size;
  return out;
}

PixelInput to_pixels(const headrace_media_input& in) {
  PixelInput out;
  out.layout = {in.frames,     in.height,     in.width,
                in.patch_size, in.merge_size, in.temporal_patch_size};
  static_cast<void>(patch_values(out.layout));  // the layout's numbers are in bounds
  const std::span table(&deref(in.table, "table"), kTableSize);
  out.table.assign(table.begin(), table.end());
  const std::span bytes(in.pixels, static_cast<size_t>(3 * in.frames * in.height * in.width));
  out.data = std::make_shared<const std::vector<uint8_t>>(bytes.begin(), bytes.end());
  return out;
}

EmbeddingInput to_embeddings(const headrace_media_input& in) {
  const auto values = array(in.embeddings, in.num_embeddings, "embeddings");
  return {std::make_shared<const std::vector<float>>(values.begin(), values.end()), in.rows,
          in.added};
}

}  // namespace

MediaInput to_media_input(const headrace_media_input* given) {
  const auto in = read_struct(given, default_media_input(), "media");
  MediaInput out;
  out.video = in.video != 0;
  if (in.pixels != nullptr) out.pixels = to_pixels(in);
  if (in.embeddings != nullptr) out.embeddings = to_embeddings(in);
  std::ranges::copy(in.key, out.key.begin());
  for (const headrace_media_run& run : array(in.runs, in.num_runs, "runs")) {
    out.runs.push_back({run.position,
                        run.count,
                        run.first_row,
                        {run.grid_t, run.grid_h, run.grid_w},
                        to_ids(run.steps, run.num_steps, "steps")});
  }
  return out;
}

}  // namespace headrace::c_api

using namespace headrace::c_api;

void headrace_media_input_init(headrace_media_input* input, size_t size) {
  init_struct(input, size, default_media_input());
}
