#include "model/config/rope_keys.h"

#include <array>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"

namespace headrace {

namespace {

constexpr double kMaxTheta = 1e15;
constexpr double kMaxFactor = 1e6;
constexpr int64_t kMaxLength = (int64_t{1} << 31) - 1;

/// Of a family whose only scaling is LongRoPE.
RopeKind read_longrope_kind(ConfigReader& rope, const std::string& name) {
  if (name == "default") return RopeKind::kDefault;
  if (name == "longrope" || name == "su" || name == "yarn") return RopeKind::kLongRope;
  rope.fail_unsupported(rope.has_key("rope_type") ? "rope_type" : "type",
                        "of this family the build knows default and longrope");
}

RopeKind read_kind(ConfigReader& rope, const RopeDefaults& defaults) {
  const std::string old_spelling = rope.text("type", "default");
  const std::string name = rope.text("rope_type", old_spelling);
  if (defaults.rules.longrope_original) return read_longrope_kind(rope, name);
  constexpr std::array<std::pair<std::string_view, RopeKind>, 6> kKinds{{
      {"default", RopeKind::kDefault},
      {"linear", RopeKind::kLinear},
      {"dynamic", RopeKind::kDynamic},
      {"yarn", RopeKind::kYarn},
      {"llama3", RopeKind::kLlama3},
      {"longrope", RopeKind::kLongRope},
  }};
  if (!defaults.mrope.sections.empty() && name == "mrope") return RopeKind::kDefault;
  if (defaults.rules.proportional && name == "proportional") return RopeKind::kProportional;
  for (const auto& [key, kind] : kKinds) {
    if (key == name) return kind;
  }
  rope.fail_unsupported(rope.has_key("rope_type") ? "rope_type" : "type",
                        "this build knows default, linear, dynamic, yarn, llama3 and longrope");
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
  if (kind == RopeKind::kProportional) return 1.0;
  if (kind != RopeKind::kYarn && kind != RopeKind::kLongRope) {
    rope.fail_value("factor", "must be a number");
  }
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

/// mrope_section and mrope_interleaved, freq_allocation, of `pairs`; the kind is known.
MropeDefaults read_sections(ConfigReader& config, ConfigReader& rope, RopeKind kind, int32_t pairs,
                            const RopeDefaults& defaults) {
  if (defaults.mrope.sections.empty()) return {};
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
  if (kind == RopeKind::kDynamic || kind == RopeKind::kLongRope) {
    rope.fail_unsupported("rope_type", "scaling by length doesn't run on positions of three axes");
  }
  return out;
}

/// The elements of a head that turn.
int32_t read_rotary_dim(ConfigReader& config, ConfigReader& rope, const RopeDefaults& defaults) {
  constexpr const char* kKey = "partial_rotary_factor";
  if (!defaults.rules.partial_rotary) {
    config.require(kKey, 1.0);
    rope.require(kKey, 1.0);
    return defaults.head_dim;
  }
  const double outer =
      config.optional_number(kKey, 0.0, 1.0).value_or(*defaults.rules.partial_rotary);
  const double factor = rope.optional_number(kKey, 0.0, 1.0).value_or(outer);
  const auto out = static_cast<int32_t>(defaults.head_dim * factor);
  if (out < 4 || out % 2 != 0) {
    (rope.has_key(kKey) ? rope : config)
        .fail_value(kKey, str_cat("must make an even number, 4 or more, of ", defaults.head_dim));
  }
  return out;
}

std::vector<float> read_factors(ConfigReader& rope, const char* key, int32_t rotary_dim) {
  const auto pairs = static_cast<size_t>(rotary_dim / 2);
  const std::string expected = str_cat("must list ", pairs, " numbers from 1e-3 to 1e6");
  const JsonValue* list = rope.find(key);
  if (list == nullptr || !list->is_array() || list->size() != pairs) rope.fail_value(key, expected);
  std::vector<float> out;
  for (const JsonValue& factor : list->array()) {
    if (!factor.is_number() || !(factor.number() >= 1e-3 && factor.number() <= kMaxFactor)) {
      rope.fail_value(key, expected);
    }
    out.push_back(static_cast<float>(factor.number()));
  }
  return out;
}

void read_longrope(ConfigReader& rope, RopeScaling& out) {
  out.attention_factor = rope.optional_number("attention_factor", 1e-3, 1e3);
  out.short_factors = read_factors(rope, "short_factor", out.rotary_dim);
  out.long_factors = read_factors(rope, "long_factor", out.rotary_dim);
  if (!out.attention_factor && out.factor > 1.0 && out.original_length < 2) {
    rope.fail_value("original_max_position_embeddings", "must be 2 or more");
  }
}

void read_llama3(ConfigReader& rope, RopeScaling& out) {
  for (const char* name : {"low_freq_factor", "high_freq_factor"}) {
    if (rope.find(name) == nullptr) rope.fail_value(name, "must be a number");
  }
  out.low_freq_factor = rope.number("low_freq_factor", 0.0, 1e-6, 1e6);
  out.high_freq_factor = rope.number("high_freq_factor", 0.0, 1e-6, 1e6);
  if (out.low_freq_factor >= out.high_freq_factor) {
    rope.fail_value("high_freq_factor", "must be greater than low_freq_factor");
  }
}

/// `rope`: the object with the parameters of one rotary embedding. `theta`: where it has none.
RopeScaling read_object(ConfigReader& config, ConfigReader& rope, const RopeDefaults& defaults,
                        double theta) {
  const int64_t max_position_embeddings = defaults.max_position_embeddings;
  RopeScaling out;
  out.kind = read_kind(rope, defaults);
  out.theta = rope.number("rope_theta", theta, 1.0, kMaxTheta);
  if (defaults.rules.requires_theta && !rope.has_key("rope_theta") &&
      !config.has_key("rope_theta")) {
    config.fail_value("rope_theta", "must be a number");
  }
  if (out.theta == 1.0) config.fail_value("rope_theta", "must be greater than 1");
  if (out.kind == RopeKind::kProportional) {
    const double share = rope.number("partial_rotary_factor", 1.0, 0.0, 1.0);
    out.rotary_dim = defaults.head_dim;
    out.turning_pairs = static_cast<int32_t>(share * defaults.head_dim / 2.0);
  } else {
    out.rotary_dim = read_rotary_dim(config, rope, defaults);
  }

  const auto inner = rope.optional_integer("original_max_position_embeddings", 1, kMaxLength);
  const auto outer = config.optional_integer("original_max_position_embeddings", 1, kMaxLength);
  out.original_length = outer.value_or(
      defaults.rules.longrope_original.value_or(inner.value_or(max_position_embeddings)));
  if (out.kind == RopeKind::kDynamic) {
    out.original_length = max_position_embeddings;
    const auto alpha = defaults.rules.fixed_alpha ? rope.optional_number("alpha", 1e-3, kMaxFactor)
                                                  : std::optional<double>();
    if (alpha) {
      out.kind = RopeKind::kNtkAlpha;
      out.factor = *alpha;
    }
  }
  if (out.kind != RopeKind::kNtkAlpha) {
    out.factor = read_factor(
        rope, out.kind,
        static_cast<double>(max_position_embeddings) / static_cast<double>(out.original_length));
  }
  if (out.kind == RopeKind::kLlama3) read_llama3(rope, out);
  if (out.kind == RopeKind::kYarn) read_yarn(rope, out);
  if (out.kind == RopeKind::kLongRope) read_longrope(rope, out);
  if (defaults.rules.reads_query_beta) {
    out.query_beta = rope.number("llama_4_scaling_beta", 0.0, 0.0, 1e3);
    rope.optional_integer("max_position_embeddings", 1, kMaxLength);  // the same as the model's
  }
  if (defaults.rules.has_mrope_keys) {
    rope.find("mrope_section");
    rope.find("mrope_interleaved");
  }
  out.mrope = read_sections(config, rope, out.kind, out.rotary_dim / 2, defaults);

  // Keys that only other kinds of scaling read: the original ignores them as well.
  constexpr std::array<std::string_view, 13> kIgnored{
      "factor",   "low_freq_factor",  "high_freq_factor", "beta_fast",      "beta_slow",
      "truncate", "attention_factor", "mscale",           "mscale_all_dim", "finetuned",
      "alpha",    "short_factor",     "long_factor"};
  rope.refuse_unknown_keys(kIgnored);
  return out;
}

/// The key's object; absent, null and empty are one.
const JsonValue& object_of(ConfigReader& config, const char* key) {
  static const JsonValue kNone{JsonValue::Object()};
  const JsonValue* value = config.find(key);
  if (value == nullptr || value->empty()) return kNone;
  if (!value->is_object()) config.fail_value(key, "must be an object");
  return *value;
}

}  // namespace

RopeScaling read_rope_scaling(ConfigReader& config, const RopeDefaults& defaults) {
  // A non-empty rope_scaling (the old key) goes before rope_parameters (the new one).
  const JsonValue& scaling = object_of(config, "rope_scaling");
  const JsonValue& stored = object_of(config, "rope_parameters");
  const bool is_usual = scaling.empty() && stored.empty() && defaults.rules.usual != nullptr;
  const JsonValue& parameters = is_usual ? *defaults.rules.usual : stored;
  const bool old_style = !scaling.empty();
  const double theta = config.number("rope_theta", defaults.theta, 1.0, kMaxTheta);
  ConfigReader rope(old_style ? scaling : parameters,
                    config.origin() + ": " + (old_style ? "rope_scaling" : "rope_parameters"));
  return read_object(config, rope, defaults, theta);
}

RopesByType read_ropes_by_type(ConfigReader& config, const RopeDefaults& defaults,
                               const SlidingRope& sliding) {
  const std::string origin = config.origin() + ": rope_parameters";
  ConfigReader types(object_of(config, "rope_parameters"), origin);
  JsonValue of_full = object_of(types, "full_attention");
  const JsonValue& of_sliding = object_of(types, "sliding_attention");
  types.refuse_unknown_keys({});
  const JsonValue& scaling = object_of(config, "rope_scaling");
  const JsonValue* const usual = defaults.rules.usual;
  if (of_full.empty() && scaling.empty() && usual != nullptr) of_full = *usual;
  for (const auto& [key, value] : scaling.object()) of_full.object()[key] = value;
  RopeDefaults of_window = defaults;
  of_window.head_dim = defaults.sliding_head_dim;
  const double full_theta = config.number(sliding.full_theta_key, defaults.theta, 1.0, kMaxTheta);
  const double sliding_theta =
      sliding.theta_key == nullptr
          ? sliding.theta
          : config.number(sliding.theta_key, sliding.theta, 1.0, kMaxTheta);
  ConfigReader full_rope(of_full, origin + ": full_attention");
  ConfigReader sliding_rope(of_sliding, origin + ": sliding_attention");
  return {read_object(config, full_rope, defaults, full_theta),
          read_object(config, sliding_rope, of_window, sliding_theta)};
}

}  // namespace headrace
