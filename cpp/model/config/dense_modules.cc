#include "model/config/dense_modules.h"

#include "base/mapped_file.h"
#include "model/checkpoint/dense_folders.h"
#include "model/config/config_reader.h"

namespace headrace {

namespace {

constexpr int64_t kMaxOutputs = 1 << 20;

/// By the class of torch.nn.
std::optional<Activation> read_module_activation(ConfigReader& reader) {
  const char* key = "activation_function";
  const std::string name = reader.text(key, "torch.nn.modules.activation.Tanh");
  const std::string kind = name.substr(name.rfind('.') + 1);
  if (kind == "Identity") return std::nullopt;
  if (kind == "Tanh") return Activation::kTanh;
  if (kind == "GELU") return Activation::kGeluErf;
  if (kind == "SiLU") return Activation::kSilu;
  reader.fail_unsupported(key, "this build knows Identity, Tanh, GELU and SiLU");
}

}  // namespace

std::vector<HeadLayer> read_dense_modules(const std::filesystem::path& folder) {
  std::vector<HeadLayer> out;
  for (const std::string& path : dense_folders(folder)) {
    const std::filesystem::path file = folder / path / "config.json";
    const JsonValue json = parse_json_object(read_small_file(file, kConfigLimits.max_bytes),
                                             file.string(), kConfigLimits);
    ConfigReader reader(json, file.string());
    if (!reader.has_key("out_features")) {
      reader.fail_value("out_features", "must be the module's number of outputs");
    }
    HeadLayer& layer = out.emplace_back();
    layer.module = path + "/linear";
    layer.outputs = static_cast<int32_t>(reader.integer("out_features", 0, 1, kMaxOutputs));
    layer.bias = reader.flag("bias", true);
    layer.activation = read_module_activation(reader);
    reader.find("in_features");  // the tensor's shape says it
    for (const char* key : {"module_input_name", "module_output_name"}) {
      reader.require(key, std::string("sentence_embedding"));
    }
    reader.refuse_unknown_keys({});
  }
  return out;
}

}  // namespace headrace
