#include "model/config/rope_scaling.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxLength = int64_t{1} << 31;

/// theta^(2i/d) for each pair i.
std::vector<float> pair_wavelengths(double theta, int32_t dim) {
  std::vector<float> out;
  for (int32_t i = 0; i < dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(dim);
    out.push_back(static_cast<float>(
        std::pow(static_cast<double>(static_cast<float>(theta)), static_cast<double>(exponent))));
  }
  return out;
}

std::vector<float> reciprocals(std::vector<float> values) {
  for (float& value : values) value = 1.0f / value;
  return values;
}

float llama3_frequency(const RopeScaling& s, float frequency) {
  const auto length = static_cast<double>(s.original_length);
  const auto factor = static_cast<float>(s.factor);
  const auto low = static_cast<float>(s.low_freq_factor);
  const float wavelength = (1.0f / frequency) * static_cast<float>(2 * std::numbers::pi);
  if (wavelength > static_cast<float>(length / s.low_freq_factor)) return frequency / factor;
  if (wavelength < static_cast<float>(length / s.high_freq_factor)) return frequency;
  const float turns = (1.0f / wavelength) * static_cast<float>(length);
  const float smooth = (turns - low) / static_cast<float>(s.high_freq_factor - s.low_freq_factor);
  return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

/// The dimension whose pair turns `turns` times over the original length.
double yarn_dimension(const RopeScaling& s, int32_t dim, double turns) {
  const auto length = static_cast<double>(s.original_length);
  return dim * std::log(length / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
}

std::vector<float> yarn_frequencies(const RopeScaling& s, int32_t dim) {
  double low = yarn_dimension(s, dim, s.beta_fast);
  double high = yarn_dimension(s, dim, s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(dim - 1));
  if (low == high) high += 0.001;

  std::vector<float> out = pair_wavelengths(s.theta, dim);
  for (size_t i = 0; i < out.size(); ++i) {
    const float ramp = std::clamp(
        (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low), 0.0f,
        1.0f);
    const float kept = 1.0f - ramp;
    const float extrapolated = 1.0f / out[i];
    const float interpolated = 1.0f / (static_cast<float>(s.factor) * out[i]);
    out[i] = interpolated * (1.0f - kept) + extrapolated * kept;
  }
  return out;
}

double yarn_attention_factor(const RopeScaling& s) {
  const auto scale = [&s](double multiplier) {
    return s.factor <= 1.0 ? 1.0 : 0.1 * multiplier * std::log(s.factor) + 1.0;
  };
  if (s.attention_factor) return *s.attention_factor;
  if (s.mscale != 0.0 && s.mscale_all_dim != 0.0) return scale(s.mscale) / scale(s.mscale_all_dim);
  return scale(1.0);
}

RopeKind read_kind(ConfigReader& rope, bool has_axes) {
  const std::string old_spelling = rope.text("type", "default");
  const std::string name = rope.text("rope_type", old_spelling);
  constexpr std::array<std::pair<std::string_view, RopeKind>, 5> kKinds{{
      {"default", RopeKind::kDefault},
      {"linear", RopeKind::kLinear},
      {"dynamic", RopeKind::kDynamic},
      {"yarn", RopeKind::kYarn},
      {"llama3", RopeKind::kLlama3},
  }};
  if (has_axes && name == "mrope") return RopeKind::kDefault;
  for (const auto& [key, kind] : kKinds) {
    if (key == name) return kind;
  }
  rope.fail_unsupported(rope.has_key("rope_type") ? "rope_type" : "type",
                        "this build knows default, linear, dynamic, yarn and llama3");
}

void read_yarn(ConfigReader& rope, RopeScaling& out) {
  // 0 stands for "not given" here, as it does where these files come from.
  const auto turns = [&rope](std::string_view key, double fallback) {
    const double value = rope.optional_number(key, 0.0, 1e6).value_or(0.0);
    return value == 0.0 ? fallback : value;
  };
  out.beta_fast = turns("beta_fast", 32.0);
  out.beta_slow = turns("beta_slow", 1.0);
  out.truncate = rope.flag("truncate", true);
  out.attention_factor = rope.optional_number("attention_factor", 1e-3, 1e3);
  out.mscale = rope.optional_number("mscale", 0.0, 1e3).value_or(0.0);
  out.mscale_all_dim = rope.optional_number("mscale_all_dim", 0.0, 1e3).value_or(0.0);
}

double read_factor(ConfigReader& rope, RopeKind kind, double original_ratio) {
  if (kind == RopeKind::kDefault) return 1.0;
  const auto factor = rope.optional_number("factor", 1e-3, kMaxFactor);
  if (factor) return *factor;
  if (kind != RopeKind::kYarn) rope.fail_value("factor", "must be a number");
  return original_ratio;
}

/// mrope_section as it stands; nullopt if it is absent.
std::optional<std::array<int32_t, 3>> read_three(ConfigReader& rope, int32_t pairs,
                                                 const std::string& expected) {
  const JsonValue* value = rope.find("mrope_section");
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || value->size() != 3) rope.fail_value("mrope_section", expected);
  std::array<int32_t, 3> out{};
  for (size_t i = 0; i < 3; ++i) {
    const JsonValue& count = value->array()[i];
    if (!count.is_unsigned() || count.unsigned_integer() > static_cast<uint64_t>(pairs)) {
      rope.fail_value("mrope_section", expected);
    }
    out[i] = static_cast<int32_t>(count.integer());
  }
  return out;
}

/// mrope_section, or freq_allocation: pairs of time. Height and width take turns, so they have as
/// many each; transformers writes them first, the makers time: the equal two tell which is which.
void read_time_last(ConfigReader& config, ConfigReader& rope, int32_t pairs, MropeDefaults& out) {
  int32_t& time = out.sections[0];
  const std::string expected =
      str_cat("must be numbers of pairs of height, width and time that sum to ", pairs,
              ", as many of height as of width");
  const auto stored = read_three(rope, pairs, expected);
  if (stored) {
    const auto& [first, second, third] = *stored;
    if (first != second && second != third) rope.fail_value("mrope_section", expected);
    time = first == second ? third : first;
    if (2 * second + time != pairs) rope.fail_value("mrope_section", expected);
  }
  const int64_t allocated = config.integer("freq_allocation", time, 0, pairs);
  if (stored && allocated != time) {
    config.fail_value("freq_allocation",
                      str_cat("must agree with mrope_section, which has ", time, " of time"));
  }
  time = static_cast<int32_t>(allocated);
  if (time > pairs || (pairs - time) % 2 != 0) {
    config.fail_value("freq_allocation",
                      str_cat("must leave of ", pairs, " pairs as many for height as for width"));
  }
  out.sections[1] = out.sections[2] = (pairs - time) / 2;
}

/// mrope_section and mrope_interleaved, freq_allocation; the kind is known.
MropeDefaults read_sections(ConfigReader& config, ConfigReader& rope, RopeKind kind,
                            const RopeDefaults& defaults) {
  if (defaults.mrope.sections.empty()) return {};
  const int32_t pairs = defaults.rotary_dim / 2;
  MropeDefaults out = defaults.mrope;
  const bool in_turn = out.order == MropeOrder::kInTurn;
  rope.require("mrope_interleaved", in_turn);
  if (out.order == MropeOrder::kTimeLast) {
    if (kind != RopeKind::kDefault) {
      rope.fail_unsupported("rope_type", "this family's rope isn't scaled");
    }
    read_time_last(config, rope, pairs, out);
    return out;
  }
  const std::string expected =
      str_cat("must be three numbers of pairs, of time, height and width, that sum to ", pairs,
              in_turn ? " and can take turns" : "");
  if (const auto stored = read_three(rope, pairs, expected)) {
    out.sections.assign(stored->begin(), stored->end());
  }
  const auto& [time, height, width] = std::tie(out.sections[0], out.sections[1], out.sections[2]);
  const bool fit = 3 * height - 2 < pairs && 3 * width - 1 < pairs;
  if (time + height + width != pairs || (in_turn && !fit)) {
    rope.fail_value("mrope_section", expected);
  }
  if (kind == RopeKind::kDynamic) {
    rope.fail_unsupported("rope_type", "dynamic scaling doesn't run on positions of three axes");
  }
  return out;
}

/// Where the i-th pair of height (axis 1) or width (2) stands.
size_t pair_of(const MropeDefaults& mrope, size_t pairs, size_t axis, size_t i) {
  const auto height = static_cast<size_t>(mrope.sections[1]);
  const auto width = static_cast<size_t>(mrope.sections[2]);
  switch (mrope.order) {
    case MropeOrder::kBlocks:
      return pairs - width - (axis == 1 ? height : 0) + i;
    case MropeOrder::kInTurn:
      return axis + 3 * i;
    case MropeOrder::kTimeLast:
      return axis - 1 + 2 * i;
  }
  HEADRACE_CHECK(false, static_cast<int>(mrope.order));
  return 0;
}

std::vector<uint8_t> pair_axes(const MropeDefaults& mrope, size_t pairs) {
  std::vector<uint8_t> out(pairs, 0);
  for (const size_t axis : {1, 2}) {
    for (size_t i = 0; i < static_cast<size_t>(mrope.sections[axis]); ++i) {
      out[pair_of(mrope, pairs, axis, i)] = static_cast<uint8_t>(axis);
    }
  }
  return out;
}

}  // namespace

RopeSpec make_rope(const RopeScaling& scaling, RopeStyle style, int32_t rotary_dim) {
  HEADRACE_CHECK(rotary_dim > 2 && rotary_dim % 2 == 0, rotary_dim);
  HEADRACE_CHECK(scaling.theta > 1.0 && scaling.factor > 0.0, scaling.theta, " ", scaling.factor);
  RopeSpec spec;
  spec.style = style;
  spec.rotary_dim = rotary_dim;
  if (!scaling.mrope.sections.empty()) {
    spec.axes = pair_axes(scaling.mrope, static_cast<size_t>(rotary_dim / 2));
  }
  if (scaling.kind == RopeKind::kYarn) {
    spec.inv_freq = yarn_frequencies(scaling, rotary_dim);
    spec.attention_factor = static_cast<float>(yarn_attention_factor(scaling));
    return spec;
  }
  spec.inv_freq = reciprocals(pair_wavelengths(scaling.theta, rotary_dim));
  if (scaling.kind == RopeKind::kLinear) {
    for (float& frequency : spec.inv_freq) frequency /= static_cast<float>(scaling.factor);
  } else if (scaling.kind == RopeKind::kLlama3) {
    for (float& frequency : spec.inv_freq) frequency = llama3_frequency(scaling, frequency);
  } else if (scaling.kind == RopeKind::kDynamic) {
    spec.dynamic_original_max = static_cast<int32_t>(scaling.original_length);
    spec.dynamic_base = scaling.theta;
    spec.dynamic_factor = scaling.factor;
  }
  return spec;
}

RopeScaling read_rope_scaling(ConfigReader& config, const RopeDefaults& defaults) {
  const int64_t max_position_embeddings = defaults.max_position_embeddings;
  // A non-empty rope_scaling (the old key) goes before rope_parameters (the new one).
  static const JsonValue kNone{JsonValue::Object()};
  const JsonValue* scaling = config.find("rope_scaling");
  const JsonValue* parameters = config.find("rope_parameters");
  const bool old_style = scaling != nullptr && !scaling->empty();
  const char* key = old_style ? "rope_scaling" : "rope_parameters";
  const JsonValue* object = old_style ? scaling : (parameters != nullptr ? parameters : &kNone);
  if (!object->is_object()) config.fail_value(key, "must be an object");
  ConfigReader rope(*object, config.origin() + ": " + key);

  RopeScaling out;
  out.kind = read_kind(rope, !defaults.mrope.sections.empty());
  const double theta = config.number("rope_theta", defaults.theta, 1.0, kMaxTheta);
  out.theta = rope.number("rope_theta", theta, 1.0, kMaxTheta);
  if (out.theta == 1.0) config.fail_value("rope_theta", "must be greater than 1");

  const auto inner = rope.optional_integer("original_max_position_embeddings", 1, kMaxLength);
  const auto outer = config.optional_integer("original_max_position_embeddings", 1, kMaxLength);
  out.original_length = outer.value_or(inner.value_or(max_position_embeddings));
  if (out.kind == RopeKind::kDynamic) out.original_length = max_position_embeddings;
  out.factor = read_factor(
      rope, out.kind,
      static_cast<double>(max_position_embeddings) / static_cast<double>(out.original_length));
  if (out.kind == RopeKind::kLlama3) {
    for (const char* name : {"low_freq_factor", "high_freq_factor"}) {
      if (rope.find(name) == nullptr) rope.fail_value(name, "must be a number");
    }
    out.low_freq_factor = rope.number("low_freq_factor", 0.0, 1e-6, 1e6);
    out.high_freq_factor = rope.number("high_freq_factor", 0.0, 1e-6, 1e6);
    if (out.low_freq_factor >= out.high_freq_factor) {
      rope.fail_value("high_freq_factor", "must be greater than low_freq_factor");
    }
  }
  if (out.kind == RopeKind::kYarn) read_yarn(rope, out);
  out.mrope = read_sections(config, rope, out.kind, defaults);
  rope.require("partial_rotary_factor", 1.0);

  // Keys that only other kinds of scaling read: the original ignores them as well.
  constexpr std::array<std::string_view, 11> kIgnored{
      "factor",   "low_freq_factor",  "high_freq_factor", "beta_fast",      "beta_slow",
      "truncate", "attention_factor", "mscale",           "mscale_all_dim", "finetuned",
      "alpha"};
  rope.refuse_unknown_keys(kIgnored);
  return out;
}

}  // namespace headrace
