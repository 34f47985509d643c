#pragma once

// Reads tests/golden/vision: what transformers answers for tiny models that see (make_vision.py).

#include <array>
#include <filesystem>
#include <string>
#include <vector>

#include "model/vision/vision_tower.h"

namespace headrace {

/// Rows of an item within a prompt.
struct GoldenRun {
  int32_t position = 0, count = 0, item = 0, first_row = 0;
};

struct VisionGolden {
  struct Item {
    PatchGrid grid;
    std::vector<float> patches;  ///< [t * h * w, numbers of a patch]
    std::vector<float> rows;     ///< [1 + added, rows, H]
  };
  struct Prompt {
    std::vector<int32_t> tokens;
    std::vector<GoldenRun> runs;
    std::array<std::vector<int32_t>, 3> positions;
    int32_t next = 0;             ///< position of the first generated token
    std::vector<int32_t> greedy;  ///< the continuation
    std::vector<float> logits;    ///< [steps, vocabulary]
  };
  std::filesystem::path folder;
  double row_tolerance = 0.0, logit_tolerance = 0.0;
  double bfloat16_max = 0.0, bfloat16_rms = 0.0;  ///< transformers' own error of rows
  std::vector<int32_t> steps;
  std::vector<Item> items;
  std::vector<Prompt> prompts;
};

/// Names of all cases, sorted.
std::vector<std::string> vision_golden_names();
VisionGolden load_vision_golden(const std::string& name);

}  // namespace headrace
