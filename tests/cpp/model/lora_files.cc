#include "cpp/model/lora_files.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <random>
#include <stdexcept>

#include "base/check.h"
#include "cpp/model/test_json.h"
#include "model/checkpoint/checkpoint.h"
#include "model/families/family.h"

namespace headrace {

namespace {

/// What adapters see of a linear.
struct ModuleShape {
  std::string path;
  int64_t n = 0, k = 0;
};

/// Of a layer's module; nullopt: the layer hasn't it.
std::optional<ModuleShape> find_module(const ModelConfig& config, const TensorNaming& naming,
                                       int32_t layer, const std::string& module) {
  const LayerNaming names(naming, layer);
  const LayerSources sources = find_family(config.model_type)->list_layer(config, names);
  const std::string path = names.stored(module);
  for (const MatrixSource* matrix : sources.matrices()) {
    for (const StoredPart& part : matrix->parts) {
      if (!matrix->adaptable || part.name != path + ".weight") continue;
      return ModuleShape{path, part.shape.empty() ? part.n : part.shape.front(), matrix->k};
    }
  }
  return std::nullopt;
}

std::vector<float> decode(const CheckpointTensor& tensor) {
  const size_t size = dtype_size(tensor.dtype);
  std::vector<float> out(tensor.bytes / size);
  for (size_t i = 0; i < out.size(); ++i) {
    const char* from = static_cast<const char*>(tensor.data) + i * size;
    uint16_t half = 0;
    std::memcpy(size == 4 ? static_cast<void*>(&out[i]) : &half, from, size);
    if (tensor.dtype == DType::kBF16) out[i] = bf16_to_f32(half);
    if (tensor.dtype == DType::kF16) out[i] = f16_to_f32(half);
  }
  return out;
}

void add_to(std::vector<float>& weight, const WrittenModule& module) {
  for (int64_t i = 0; i < module.n; ++i) {
    for (int64_t j = 0; j < module.k; ++j) {
      double sum = 0.0;
      for (int64_t r = 0; r < module.rank; ++r) {
        sum += static_cast<double>(module.b[static_cast<size_t>(i * module.rank + r)]) *
               static_cast<double>(module.a[static_cast<size_t>(r * module.k + j)]);
      }
      float& out = weight[static_cast<size_t>(i * module.k + j)];
      out = static_cast<float>(static_cast<double>(out) + module.scale * sum);
    }
  }
}

}  // namespace

std::string adapter_config(const AdapterToWrite& adapter) {
  Json names = Json::array();
  for (const std::string& module : adapter.modules) {
    names.push_back(module.substr(module.find('.') + 1));
  }
  return Json{{"peft_type", "LORA"},
              {"task_type", "CAUSAL_LM"},
              {"r", adapter.rank},
              {"lora_alpha", adapter.alpha},
              {"use_rslora", adapter.rslora},
              {"target_modules", names},
              {"bias", "none"},
              {"lora_dropout", 0.05},
              {"init_lora_weights", true},
              {"base_model_name_or_path", "elsewhere"},
              {"fan_in_fan_out", false},
              {"modules_to_save", nullptr},
              {"rank_pattern", Json::object()}}
      .dump();
}

std::vector<TensorToWrite> adapter_tensors(const std::vector<WrittenModule>& modules, DType dtype,
                                           const std::string& infix) {
  std::vector<TensorToWrite> out;
  for (const WrittenModule& module : modules) {
    const std::string stem = "base_model.model." + module.path;
    out.push_back({stem + ".lora_A" + infix + ".weight",
                   dtype,
                   {module.rank, module.k},
                   encode(module.a, dtype)});
    out.push_back({stem + ".lora_B" + infix + ".weight",
                   dtype,
                   {module.n, module.rank},
                   encode(module.b, dtype)});
  }
  return out;
}

std::vector<WrittenModule> write_adapter(const TempFolder& folder, const ModelConfig& config,
                                         const AdapterToWrite& adapter) {
  std::mt19937 random(adapter.seed);
  std::uniform_real_distribution<float> draw(-adapter.spread, adapter.spread);
  const auto numbers = [&](int64_t count) {
    std::vector<float> out(static_cast<size_t>(count));
    for (float& x : out) x = draw(random);
    return out;
  };
  const double rank = adapter.rank;
  const Family& family = *find_family(config.model_type);
  TensorNaming torch = family.torch_naming(family.prefixes.front());
  if (adapter.prefix) torch.prefix = *adapter.prefix;
  std::vector<WrittenModule> modules;
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    for (const std::string& module : adapter.modules) {
      std::optional<ModuleShape> shape = find_module(config, torch, layer, module);
      if (!shape) {
        shape = find_module(config, {CheckpointLayout::kPaddle, "model."}, layer, module);
      }
      if (!shape) continue;
      const auto& [path, n, k] = *shape;
      modules.push_back({path, n, k, adapter.rank,
                         adapter.alpha / (adapter.rslora ? std::sqrt(rank) : rank),
                         numbers(adapter.rank * k), numbers(n * adapter.rank)});
    }
  }
  folder.write("adapter_config.json", adapter_config(adapter));
  folder.write("adapter_model.safetensors",
               safetensors_file(adapter_tensors(modules, adapter.dtype, adapter.infix)));
  return modules;
}

void write_merged(const std::filesystem::path& from, const std::vector<WrittenModule>& modules,
                  const TempFolder& to) {
  const Checkpoint checkpoint(from);
  std::vector<TensorToWrite> merged;
  size_t changed = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    std::vector<float> weight = decode(tensor);
    for (const WrittenModule& module : modules) {
      if (tensor.name != module.path + ".weight") continue;
      add_to(weight, module);
      ++changed;
    }
    merged.push_back({tensor.name, DType::kF32, tensor.shape, encode(weight, DType::kF32)});
  }
  if (changed != modules.size()) throw std::logic_error("modules that the checkpoint has not");
  to.write("model.safetensors", safetensors_file(merged));
  std::filesystem::copy_file(from / "config.json", to.path() / "config.json");
}

}  // namespace headrace
