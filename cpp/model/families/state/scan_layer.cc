#include "model/families/state/scan_layer.h"

#include <limits>
#include <optional>

#include "base/check.h"
#include "model/blocks/states/conv_block.h"
#include "model/families/keys/state_keys.h"

namespace headrace {

namespace {

/// A number, or as transformers writes infinity: {"__float__": "Infinity"}.
std::optional<float> read_bound(const JsonValue& value) {
  if (value.is_number()) return static_cast<float>(value.number());
  const JsonValue* name = value.is_object() ? value.find("__float__") : nullptr;
  if (name == nullptr || *name != "Infinity") return std::nullopt;
  return std::numeric_limits<float>::infinity();
}

}  // namespace

void read_step_limits(ConfigReader& reader, ScanSpec& scan) {
  scan.dt_min = 0.0f;
  scan.dt_max = std::numeric_limits<float>::infinity();
  const JsonValue* limits = reader.find("time_step_limit");
  if (limits == nullptr) return;
  std::optional<float> least, most;
  if (limits->is_array() && limits->size() == 2) {
    least = read_bound(limits->array()[0]);
    most = read_bound(limits->array()[1]);
  }
  const bool is_finite = least && *least < std::numeric_limits<float>::infinity();
  if (!is_finite || !most || !(*least >= 0.0f) || !(*least <= *most)) {
    reader.fail_value("time_step_limit", "must be two numbers, 0 or more, in ascending order");
  }
  scan.dt_min = *least;
  scan.dt_max = *most;
}

void check_scan_groups(ConfigReader& reader, const ScanSpec& scan, const char* key,
                       const char* groups_key) {
  if (scan.heads % scan.groups == 0) return;
  reader.fail_value(key, str_cat("must be a multiple of ", groups_key, " (", scan.groups, ")"));
}

void read_mamba_heads(ConfigReader& reader, int64_t columns, const MambaDefaults& defaults,
                      ModelConfig& config) {
  ScanSpec& scan = config.state.scan;
  scan.heads = read_state_heads(reader, "mamba_n_heads", 128);
  scan.groups = read_state_heads(reader, "mamba_n_groups", 1);
  check_scan_groups(reader, scan, "mamba_n_heads", "mamba_n_groups");
  scan.state_dim = read_state_dim(reader, "mamba_d_state", defaults.state_dim);
  const JsonValue* dim = reader.find("mamba_d_head");
  const auto usual = static_cast<int32_t>(columns / scan.heads);
  const bool is_usual = dim == nullptr || *dim == "auto";
  scan.head_dim = is_usual ? usual : read_state_dim(reader, "mamba_d_head", usual);
  if (scan.x_columns() != columns) {
    reader.fail_value("mamba_n_heads",
                      str_cat("must give, with heads of mamba_d_head (", scan.head_dim, "), ",
                              defaults.columns_from, " (", columns, ")"));
  }
  read_step_limits(reader, scan);
  config.state.conv_kernel = read_conv_kernel(reader, "mamba_d_conv", 4);
  config.state.conv_bias = reader.flag("mamba_conv_bias", true);
}

std::unique_ptr<ScanSources> list_scan(const ModelConfig& config, const LayerNaming& naming,
                                       const std::string& stem) {
  const StateConfig& state = config.state;
  const ScanSpec& heads = state.scan;
  const int64_t hidden = config.hidden_size, x = heads.x_columns(), xbc = heads.xbc_columns();
  const auto stored = [&](const char* tensor) { return naming.stored(stem + tensor); };
  const auto numbers = [&](const char* name, const char* tensor, int64_t n) {
    return VectorSource{.name = naming.own(name), .parts = {{stored(tensor), n}}, .is_float = true};
  };
  auto out = std::make_unique<ScanSources>();
  out->heads = heads;
  out->factors = state.scan_factors;
  out->gate_first = state.gate_first;
  out->kernel = state.conv_kernel;
  out->norm_eps = config.norm.eps;
  out->in = naming.linear("scan_in", {{stem + "in_proj", x + xbc + heads.heads}}, hidden,
                          state.scan_in_bias);
  out->conv = list_taps(naming.own("scan_taps"), stored("conv1d.weight"), xbc, state.conv_kernel);
  if (state.conv_bias) out->conv_bias = numbers("scan_conv_bias", "conv1d.bias", xbc);
  out->a_log = numbers("scan_a_log", "A_log", heads.heads);
  out->dt_bias = numbers("scan_dt_bias", "dt_bias", heads.heads);
  out->skip = numbers("scan_skip", "D", heads.heads);
  if (state.scan_norm) {
    out->norm = numbers("scan_norm", "norm.weight", x);
    out->norm.is_norm = true;
  }
  out->out = naming.linear("scan_out", {{stem + "out_proj", hidden}}, x, state.scan_out_bias);
  return out;
}

}  // namespace headrace
