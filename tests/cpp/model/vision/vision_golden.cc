#include "cpp/model/vision/vision_golden.h"

#include <algorithm>

#include "base/check.h"
#include "cpp/model/golden_case.h"
#include "cpp/model/test_json.h"

namespace headrace {

namespace {

std::filesystem::path root() { return std::filesystem::path(HEADRACE_GOLDEN_DIR) / "vision"; }

VisionGolden::Prompt read_prompt(const Json& entry) {
  VisionGolden::Prompt out;
  out.tokens = entry.at("prompt").get<std::vector<int32_t>>();
  for (const Json& run : entry.at("runs")) {
    out.runs.push_back({run.at("position"), run.at("count"), run.at("item"), run.at("first_row")});
  }
  for (size_t axis = 0; axis < 3; ++axis) {
    out.positions[axis] = entry.at("positions").at(axis).get<std::vector<int32_t>>();
  }
  out.next = entry.at("next");
  out.greedy = entry.at("tokens").get<std::vector<int32_t>>();
  return out;
}

}  // namespace

std::vector<std::string> vision_golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(root())) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::ranges::sort(names);
  return names;
}

VisionGolden load_vision_golden(const std::string& name) {
  VisionGolden out;
  out.folder = root() / name;
  Json json = Json::parse(read_golden_text(out.folder / "vision.json"));
  // Another layout of the same model.
  const std::filesystem::path answers =
      json.contains("answers_of") ? root() / json.at("answers_of") : out.folder;
  if (answers != out.folder) json = Json::parse(read_golden_text(answers / "vision.json"));
  auto arrays = read_golden_arrays(answers / "vision.safetensors");
  out.row_tolerance = json.at("tolerance").at("rows");
  out.logit_tolerance = json.at("tolerance").at("logits");
  out.bfloat16_max = json.at("bfloat16_error").at("rows_max");
  out.bfloat16_rms = json.at("bfloat16_error").at("rows_rms");
  out.steps = json.at("steps").get<std::vector<int32_t>>();
  for (const Json& entry : json.at("items")) {
    const Json& grid = entry.at("grid");
    const size_t i = out.items.size();
    out.items.push_back({{grid.at(0), grid.at(1), grid.at(2)},
                         arrays[str_cat("patches.", i)],
                         arrays[str_cat("rows.", i)]});
  }
  for (const Json& entry : json.at("prompts")) {
    out.prompts.push_back(read_prompt(entry));
    out.prompts.back().logits = arrays[str_cat("logits.", out.prompts.size() - 1)];
  }
  return out;
}

}  // namespace headrace
