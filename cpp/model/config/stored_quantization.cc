#include "model/config/stored_quantization.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "model/config/config_reader.h"

namespace headrace {

namespace {

constexpr const char* kOrigin = "config.json: quantization_config";
constexpr const char* kRemedy =
    "load the checkpoint that isn't quantized, with quantization=\"wint4\" or \"wint8\"";

// What tools write of themselves and of how they chose the numbers. Which modules are quantized,
// the head (lm_head) among them, shows in the tensors' names, and zero points (sym) are tensors.
constexpr std::string_view kToolHarmless[] = {
    "act_group_aware",
    "amp",
    "autoround_version",
    "backend",
    "batch_size",
    "block_name_to_quantize",
    "cache_block_outputs",
    "damp_auto_increment",
    "damp_percent",
    "dataset",
    "enable_minmax_tuning",
    "enable_norm_bias_tuning",
    "enable_quanted_input",
    "exllama_config",
    "gradient_accumulate_steps",
    "hyb_act",
    "iters",
    "lm_head",
    "low_cpu_mem_usage",
    "low_gpu_mem_usage",
    "lr",
    "max_input_length",
    "meta",
    "minmax_lr",
    "model_file_base_name",
    "model_name_or_path",
    "model_seqlen",
    "modules_to_not_convert",
    "mse",
    "nsamples",
    "offload_to_disk*",
    "pad_token_id",
    "provider",
    "quant_lm_head",
    "quantizer",
    "seqlen",
    "static_groups",
    "sym",
    "to_quant_block_names",
    "tokenizer",
    "true_sequential",
};
constexpr std::string_view kGptqHarmless[] = {
    "module_name_preceding_first_block",
    "modules_in_block_to_quantize",
    "use_exllama",
    "disable_exllama",
    "use_cuda_fp16",
    "parallel_packing",
};
constexpr std::string_view kAwqHarmless[] = {"do_fuse", "fuse_max_seq_len", "modules_to_fuse"};
constexpr std::string_view kFp8Harmless[] = {"ignored_layers", "dequantize", "scale_fmt"};
constexpr std::string_view kMxfp4Harmless[] = {"dequantize"};
constexpr std::string_view kCompressedHarmless[] = {
    "ignore", "quantization_status", "global_compression_ratio", "version", "quantization_version",
};
constexpr std::string_view kWeightsHarmless[] = {
    "observer", "observer_kwargs", "scale_dtype", "zp_dtype", "symmetric",
};

/// Throws for keys beside `own` and those of every tool.
void refuse_other_keys(ConfigReader& reader, std::span<const std::string_view> own) {
  std::vector<std::string_view> harmless(own.begin(), own.end());
  harmless.insert(harmless.end(), std::begin(kToolHarmless), std::end(kToolHarmless));
  reader.refuse_unknown_keys(harmless);
}

/// Keys that GPTQ's and AWQ's tools share: the codes are integers in words of 32 bits, those of all
/// modules are alike, and activations are not rounded.
void check_codes(ConfigReader& reader, const char* method) {
  reader.require("method", method);
  reader.require("pack_dtype", "int32");
  reader.require("data_type", "int");
  constexpr int64_t kWholeBits = 16;
  if (reader.optional_integer("act_bits", 1, 64).value_or(kWholeBits) < kWholeBits) {
    reader.fail_unsupported("act_bits", str_cat("activations of 16 bits are supported; ", kRemedy));
  }
  for (const char* key : {"act_data_type", "act_dynamic", "act_group_size", "act_sym"}) {
    reader.find(key);
  }
  // Overrides for some modules, which tensors don't show; "-:" leaves modules out.
  const JsonValue* overrides = reader.find("dynamic");
  if (overrides == nullptr) return;
  if (!overrides->is_object()) reader.fail_value("dynamic", "must be an object");
  for (const auto& [pattern, values] : overrides->object()) {
    if (pattern.starts_with('-')) continue;
    reader.fail_unsupported("dynamic", str_cat("modules that are quantized in another way than the "
                                               "rest are not supported; ",
                                               kRemedy));
  }
}

int32_t read_bits(ConfigReader& reader, std::string_view key) {
  const auto bits = static_cast<int32_t>(reader.integer(key, 0, 0, 64));
  if (bits != 4 && bits != 8) {
    reader.fail_unsupported(key, str_cat("weights of 4 and 8 bits are supported; ", kRemedy));
  }
  return bits;
}

/// 0 for -1, which means one group.
int32_t read_group_size(ConfigReader& reader, std::string_view key) {
  const auto size = static_cast<int32_t>(reader.integer(key, -1, -1, 1 << 20));
  if (size == -1) return 0;
  if (size == 0 || size % 32 != 0) {
    reader.fail_unsupported(key, str_cat("groups of a multiple of 32 weights, and -1, are "
                                         "supported; ",
                                         kRemedy));
  }
  return size;
}

StoredQuantization read_gptq(ConfigReader& reader) {
  StoredQuantization out{.method = StoredMethod::kGptq};
  out.bits = read_bits(reader, "bits");
  out.group_size = read_group_size(reader, "group_size");
  for (const char* key : {"format", "checkpoint_format"}) {
    const std::string format = reader.text(key, "gptq");
    if (format != "gptq" && format != "gptq_v2") {
      reader.fail_unsupported(key, "this build knows \"gptq\" and \"gptq_v2\"");
    }
    out.zeros_less_one = format == "gptq";
    if (!out.zeros_less_one) break;
  }
  out.own_order = reader.flag("desc_act", false) && out.group_size != 0;
  reader.require("is_marlin_format", false);
  reader.find("checkpoint_format");
  check_codes(reader, "gptq");
  refuse_other_keys(reader, kGptqHarmless);
  return out;
}

StoredQuantization read_awq(ConfigReader& reader) {
  StoredQuantization out{.method = StoredMethod::kAwq};
  const char* bits = reader.has_key("w_bit") ? "w_bit" : "bits";
  out.bits = read_bits(reader, bits);
  if (out.bits != 4) reader.fail_unsupported(bits, "AWQ stores weights of 4 bits");
  out.group_size =
      read_group_size(reader, reader.has_key("q_group_size") ? "q_group_size" : "group_size");
  std::string version = reader.text("version", "gemm");
  std::ranges::transform(version, version.begin(),
                         [](char c) { return c >= 'A' && c <= 'Z' ? char(c - 'A' + 'a') : c; });
  if (version != "gemm") {
    reader.fail_unsupported("version", str_cat("this build loads \"gemm\"; ", kRemedy));
  }
  for (const char* key : {"format", "checkpoint_format"}) {
    if (reader.text(key, "gemm") != "gemm") {
      reader.fail_unsupported(key, str_cat("this build loads \"gemm\"; ", kRemedy));
    }
  }
  // Tools that write `sym` store the zero points of symmetric weights, too.
  if (!reader.flag("zero_point", true) && !reader.flag("sym", false)) {
    reader.fail_unsupported("zero_point", str_cat("version gemm has zero points; ", kRemedy));
  }
  if (reader.flag("desc_act", false)) {
    reader.fail_unsupported("desc_act", "AWQ's inputs have no order of their own");
  }
  check_codes(reader, "awq");
  refuse_other_keys(reader, kAwqHarmless);
  return out;
}

/// Sizes of the blocks that share a scale, [features, inputs].
void read_blocks(ConfigReader& reader, const char* key, StoredQuantization& out) {
  const JsonValue* value = reader.find(key);
  if (value == nullptr || value->is_null()) return;
  const auto side = [&](size_t i) -> int32_t {
    const bool two = value->is_array() && value->size() == 2;
    const double size = two && value->array()[i].is_whole() ? value->array()[i].number() : 0;
    if (size < 1 || size > 1 << 20) reader.fail_value(key, "must be two sizes from 1 to 1048576");
    return static_cast<int32_t>(size);
  };
  out.block_n = side(0);
  out.block_k = side(1);
}

/// Activations have scales that are worked out from row to row.
StoredQuantization read_fp8(ConfigReader& reader) {
  StoredQuantization out{.method = StoredMethod::kFp8, .rounded_rows = true};
  reader.require("fmt", "e4m3");
  reader.require("activation_scheme", "dynamic");
  reader.require("kv_cache_scheme", JsonValue());
  read_blocks(reader, "weight_block_size", out);
  // FP4 experts are packed two by two.
  reader.require("expert_dtype", "fp8");
  refuse_other_keys(reader, kFp8Harmless);
  return out;
}

/// Whether activations are to be rounded: to 8 bits, as they come.
bool read_activations(ConfigReader& group, const char* key, StoredMethod method) {
  const JsonValue* value = group.find(key);
  if (value == nullptr || value->is_null()) return false;
  const auto has = [value](const char* name, const JsonValue& wanted) {
    const JsonValue* member = value->find(name);
    return member != nullptr && *member == wanted;
  };
  const char* type = is_numbers(method) ? "float" : "int";
  const bool four = method == StoredMethod::kMxfp4;
  const bool bits = has("num_bits", 8) || (four && has("num_bits", 4));
  if (!bits || !has("type", type) || !has("dynamic", true)) {
    group.fail_unsupported(
        key, str_cat("only null and dynamic ", type, "8", four ? " or 4" : "", " are supported"));
  }
  return true;
}

/// Of one tensor, each feature, or blocks; the scales' shape tells the first two apart.
StoredQuantization read_float8_scheme(ConfigReader& reader) {
  StoredQuantization out{.method = StoredMethod::kFloat8};
  reader.require("num_bits", 8);
  reader.require("type", "float");
  reader.require("dynamic", false);
  reader.require("symmetric", true);
  reader.require("group_size", JsonValue());
  reader.require("actorder", JsonValue());
  const std::string strategy = reader.text("strategy", "");
  if (strategy == "block") {
    read_blocks(reader, "block_structure", out);
    if (out.block_n == 0) reader.fail_value("block_structure", "must be two sizes");
  } else {
    reader.require("block_structure", JsonValue());
    if (strategy != "tensor" && strategy != "channel") {
      reader.fail_unsupported("strategy", "\"tensor\", \"channel\" and \"block\" are supported");
    }
  }
  reader.refuse_unknown_keys(kWeightsHarmless);
  return out;
}

/// Blocks of 32 inputs, each with a scale that is a power of two.
StoredQuantization read_mxfp4_scheme(ConfigReader& reader) {
  reader.require("num_bits", 4);
  reader.require("type", "float");
  reader.require("dynamic", false);
  reader.require("symmetric", true);
  reader.require("strategy", "group");
  reader.require("group_size", 32);
  reader.require("block_structure", JsonValue());
  reader.require("actorder", JsonValue());
  const JsonValue* scale = reader.find("scale_dtype");
  if (scale != nullptr && !scale->is_null() && *scale != "torch.uint8" && *scale != "uint8") {
    reader.fail_unsupported("scale_dtype", "MXFP4's scales are torch.uint8");
  }
  reader.refuse_unknown_keys(kWeightsHarmless);
  return {.method = StoredMethod::kMxfp4};
}

/// gpt-oss's experts.
StoredQuantization read_mxfp4(ConfigReader& reader) {
  refuse_other_keys(reader, kMxfp4Harmless);
  return {.method = StoredMethod::kMxfp4Blocks};
}

StoredQuantization read_scheme(const JsonValue& scheme, StoredMethod method,
                               const std::string& origin) {
  ConfigReader group(scheme, origin);
  group.find("targets");
  group.find("format");
  const bool rounded = read_activations(group, "input_activations", method);
  group.require("output_activations", JsonValue());
  const JsonValue* weights = group.find("weights");
  if (weights == nullptr || !weights->is_object()) group.fail_value("weights", "must be an object");
  group.refuse_unknown_keys({});

  ConfigReader reader(*weights, origin + ".weights");
  StoredQuantization out{.method = method};
  if (method == StoredMethod::kFloat8) {
    out = read_float8_scheme(reader);
    out.rounded_rows = rounded;
    return out;
  }
  if (method == StoredMethod::kMxfp4) return read_mxfp4_scheme(reader);
  out.bits = read_bits(reader, "num_bits");
  out.rounded_rows = rounded && method == StoredMethod::kInt8;
  if (method == StoredMethod::kInt8 && out.bits != 8) {
    reader.fail_unsupported("num_bits", "int-quantized weights are supported with 8 bits");
  }
  reader.require("type", "int");
  reader.require("dynamic", false);
  reader.require("block_structure", JsonValue());
  const std::string strategy = reader.text("strategy", "");
  const auto size = reader.optional_integer("group_size", -1, 1 << 20);
  if (strategy == "group" || (strategy.empty() && size.value_or(-1) > 0)) {
    out.group_size = read_group_size(reader, "group_size");
  } else if (strategy != "channel") {
    reader.fail_unsupported("strategy", "\"group\" and \"channel\" are supported");
  }
  const JsonValue* order = reader.find("actorder");
  out.own_order = order != nullptr && (*order == "group" || *order == true) && out.group_size != 0;
  if (order != nullptr && *order != "group" && *order != "weight" && *order != "static" &&
      *order != false && *order != true) {
    reader.fail_unsupported("actorder", "\"group\", \"weight\" and null are supported");
  }
  reader.refuse_unknown_keys(kWeightsHarmless);
  return out;
}

StoredQuantization read_compressed(ConfigReader& reader) {
  const std::string format = reader.text("format", "");
  StoredMethod method = StoredMethod::kPacked;
  if (format == "int-quantized" || format == "naive-quantized") {
    method = StoredMethod::kInt8;
  } else if (format == "float-quantized") {
    method = StoredMethod::kFloat8;
  } else if (format == "mxfp4-pack-quantized") {
    method = StoredMethod::kMxfp4;
  } else if (format != "pack-quantized") {
    reader.fail_unsupported(
        "format", str_cat("\"pack-quantized\", \"int-quantized\", \"float-quantized\" and "
                          "\"mxfp4-pack-quantized\" are supported; ",
                          kRemedy));
  }
  for (const char* key : {"kv_cache_scheme", "sparsity_config", "transform_config"}) {
    const JsonValue* value = reader.find(key);
    if (value != nullptr && !value->empty()) reader.fail_unsupported(key, "not supported");
  }
  const JsonValue* groups = reader.find("config_groups");
  if (groups == nullptr || !groups->is_object() || groups->empty()) {
    reader.fail_value("config_groups", "must name groups of modules");
  }
  StoredQuantization out;
  for (const auto& [name, scheme] : groups->object()) {
    const std::string origin = str_cat(kOrigin, ": config_groups.", in_quotes(name));
    if (!scheme.is_object()) reader.fail_value("config_groups", "must hold objects");
    const StoredQuantization read = read_scheme(scheme, method, origin);
    if (out.method != StoredMethod::kNone && out != read) {
      reader.fail_unsupported("config_groups", "groups with other weights than the first one's");
    }
    out = read;
  }
  refuse_other_keys(reader, kCompressedHarmless);
  return out;
}

}  // namespace

const char* stored_method_name(StoredMethod method) {
  switch (method) {
    case StoredMethod::kNone:
      return "";
    case StoredMethod::kGptq:
      return "gptq";
    case StoredMethod::kAwq:
      return "awq";
    case StoredMethod::kPacked:
    case StoredMethod::kInt8:
    case StoredMethod::kFloat8:
    case StoredMethod::kMxfp4:
      return "compressed-tensors";
    case StoredMethod::kFp8:
      return "fp8";
    case StoredMethod::kMxfp4Blocks:
      return "mxfp4";
  }
  return "";
}

StoredQuantization read_stored_quantization(const JsonValue& quantization_config) {
  ConfigReader reader(quantization_config, kOrigin);
  const std::string method = reader.text("quant_method", "");
  if (method == "gptq") return read_gptq(reader);
  if (method == "awq") return read_awq(reader);
  if (method == "compressed-tensors") return read_compressed(reader);
  if (method == "fp8") return read_fp8(reader);
  if (method == "mxfp4") return read_mxfp4(reader);
  reader.fail_unsupported("quant_method", str_cat("this build loads \"gptq\", \"awq\", \"fp8\", "
                                                  "\"mxfp4\" and \"compressed-tensors\"; ",
                                                  kRemedy));
}

}  // namespace headrace
